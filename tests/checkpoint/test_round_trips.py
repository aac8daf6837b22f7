"""What is saved under one mesh and layout comes back under any other, bit for bit."""

from __future__ import annotations

import weakref
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from small_training import SPECS, Trained, X, assert_same_bits, build, by_layer

import meshtf as mtf
from meshtf.checkpoint import CheckpointFolder, restore
from meshtf.checkpoint._box import Box
from meshtf.checkpoint.chunks import Chunk, chunks_of
from meshtf.checkpoint.formats import tensor_files
from meshtf.testing import assert_close

MESHES = [
    ("rows:2;cols:2", "batch:rows;f:cols", None),
    ("all:8", "batch:all", "f:all"),
    ("all:4", "d:all", "vocab:all;f:all"),
    ("rows:2;cols:4", "f:cols+rows", None),
    ("all:3", "", "layers:all"),
    ("all:1", "", None),
]
CASES = [(*mesh, unroll) for mesh in MESHES for unroll in (False, True) if not (unroll and mesh[2] == "layers:all")]


@pytest.mark.parametrize(("mesh", "layout", "parameter_layout", "unroll"), CASES)
def test_restored_under_another_layout(
    trained: Trained, mesh: str, layout: str, parameter_layout: str | None, unroll: bool
) -> None:
    program = build(mesh, layout, parameter_layout=parameter_layout, unroll=unroll)
    restore(trained.saved, [program])
    assert_same_bits(by_layer(program.variables), trained.values)


@pytest.mark.parametrize(("mesh", "layout", "parameter_layout", "unroll"), CASES)
def test_saved_under_another_layout(
    trained: Trained, tmp_path: Path, mesh: str, layout: str, parameter_layout: str | None, unroll: bool
) -> None:
    program = build(mesh, layout, parameter_layout=parameter_layout, unroll=unroll)
    restore(trained.saved, [program])
    folder = CheckpointFolder(tmp_path)
    path = folder.save(7, program.variables, {})
    reader = tf.train.load_checkpoint(str(path))
    whole = {name: np.asarray(reader.get_tensor(name)) for name in reader.get_variable_to_shape_map()}
    assert_same_bits(whole, trained.values)
    other = build("rows:2", "f:rows")
    restore(folder.open(7), [other])
    assert_same_bits(by_layer(other.variables), trained.values)


def test_training_goes_on_as_if_nothing_had_happened(trained: Trained) -> None:
    program = build()
    restore(trained.saved, [program])
    assert [float(program(X)) for _ in range(2)] == trained.losses


def test_restoring_into_a_program_that_runs_already(trained: Trained) -> None:
    restore(trained.saved, [trained.program])
    assert_same_bits(by_layer(trained.program.variables), trained.values)
    assert [float(trained.program(X)) for _ in range(2)] == trained.losses


def test_no_initial_value_is_computed(tmp_path: Path) -> None:
    calls = []

    def initializer(mesh: mtf.Mesh, shape: mtf.Shape, dtype: tf.DType) -> mtf.Tensor:
        calls.append(shape)
        return mtf.zeros(mesh, shape, dtype)

    def program(mesh: mtf.Mesh) -> mtf.Tensor:
        return mtf.get_variable(mesh, "v", "a:4", initializer=initializer)

    first, second = (mtf.function(program, mtf.SpmdMeshImpl("all:2", "a:all")) for _ in range(2))
    first.initialize()
    assert len(calls) == 1
    first.variables["v"] = np.arange(4)
    folder = CheckpointFolder(tmp_path)
    folder.save(0, first.variables, {})
    restore(folder.open(0), [second])
    np.testing.assert_array_equal(second(), np.arange(4))
    assert len(calls) == 1


def test_each_slice_is_written_once_without_padding(trained: Trained) -> None:
    store = trained.program.variables
    chunks = list(chunks_of(store.slices(name) for name in store))
    assert sum(p.num_bytes for p in chunks) == sum(value.nbytes for value in trained.values.values())
    assert {p.shape for p in chunks if p.variable == "embedding"} == {(5, 4)}
    assert {p.tensor for p in chunks if p.variable == "layer/w"} == {f"layer_{i:03d}/w" for i in range(3)}
    halves = [p.box.start for p in chunks if p.tensor == "layer_001/w"]
    assert halves == [(0, 0), (0, 4)]


def test_large_slices_are_cut_into_chunks(trained: Trained) -> None:
    store = trained.program.variables
    chunks = [p for p in chunks_of([store.slices("layer/w")], largest=20) if p.tensor == "layer_002/w"]
    assert all(p.num_bytes <= 20 for p in chunks)
    covered = np.zeros([4, 8], int)
    for chunk in chunks:
        covered[chunk.box.slices] += 1
    np.testing.assert_array_equal(covered, 1)


TYPES = [
    *(tf.float32, tf.float64, tf.float16, tf.bfloat16, tf.complex64, tf.complex128, tf.bool),
    *(tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8, tf.uint16, tf.uint32, tf.uint64),
]


@pytest.fixture(scope="module")
def of_every_type(tmp_path_factory: pytest.TempPathFactory) -> tuple[CheckpointFolder, dict[str, np.ndarray]]:
    """A checkpoint with a matrix and a scalar of every type, of random bits; NaNs and negative zeros among them."""
    store = mtf.VariableStore()
    generator = np.random.default_rng(1)
    program = typed_program("rows:2;cols:2", "a:rows;b:cols", store)
    for name in store:
        shape, dtype = store.slices(name).shape.to_integer_list, store.slices(name).dtype
        bits = generator.integers(0, 2 if dtype == tf.bool else 256, [*shape, dtype.size], np.uint8)
        store[name] = bits.view(dtype.as_numpy_dtype).reshape(shape)
    folder = CheckpointFolder(tmp_path_factory.mktemp("types"))
    folder.save(1, program.variables, {})
    return folder, {name: store[name] for name in store}


def typed_program(mesh: str, layout: str, store: mtf.VariableStore | None = None) -> mtf.Function:
    def program(mesh: mtf.Mesh) -> list[mtf.Tensor]:
        return [
            mtf.get_variable(mesh, f"{dtype.name}_{shape.ndims}", shape, dtype, initializer=mtf.zeros)
            for dtype in TYPES
            for shape in (mtf.Shape([]), mtf.Shape([("a", 4), ("b", 6)]))
        ]

    function = mtf.function(program, mtf.SpmdMeshImpl(mesh, layout), variables=store)
    if store is not None:
        for name, layout_of_it in function.variable_layouts.items():
            variable = function.graph.variables[name]
            store.create(variable, layout_of_it, function.lowering.device_mesh)  # type: ignore[arg-type]
    return function


@pytest.mark.parametrize(("mesh", "layout"), [("all:3", "b:all"), ("all:1", "")])
def test_bits_of_every_type(
    of_every_type: tuple[CheckpointFolder, dict[str, np.ndarray]], mesh: str, layout: str
) -> None:
    folder, values = of_every_type
    program = typed_program(mesh, layout)
    restore(folder.open(1), [program])
    assert_same_bits({name: program.variables[name] for name in program.variables}, values)


def test_tensorflow_reads_every_type(of_every_type: tuple[CheckpointFolder, dict[str, np.ndarray]]) -> None:
    folder, values = of_every_type
    reader = tf.train.load_checkpoint(str(folder.path(1)))
    whole = {name: np.asarray(reader.get_tensor(name)) for name in reader.get_variable_to_shape_map()}
    assert_same_bits(whole, values)


def test_programs_that_share_a_store(trained: Trained) -> None:
    store = mtf.VariableStore()
    program = build(store=store)

    def evaluate(x: mtf.Tensor) -> mtf.Tensor:
        embedding = mtf.get_variable(x.mesh, "embedding", "vocab:8 d:4", unpadded_shape="vocab:5 d:4")
        return mtf.reduce_sum(mtf.einsum([x, embedding], "batch:8 vocab:8"))

    mesh_impl = mtf.SpmdMeshImpl("rows:2;cols:2", "d:rows")
    evaluation = mtf.function(evaluate, mesh_impl, SPECS, store)
    restore(trained.saved, [program, evaluation])
    expected = (X @ trained.values["embedding"].T).sum()
    assert_close(
        float(evaluation(X)),
        expected,
        terms=(4, 8 * 5),
        magnitude=(np.abs(X) @ np.abs(trained.values["embedding"].T)).sum(),
        dtype="float32",
    )
    alone = mtf.function(evaluate, mesh_impl, SPECS)
    restore(trained.saved, [alone], ignore_unused=True)
    assert list(alone.variables) == ["embedding"]
    assert_close(
        float(alone(X)),
        expected,
        terms=(4, 8 * 5),
        magnitude=(np.abs(X) @ np.abs(trained.values["embedding"].T)).sum(),
        dtype="float32",
    )


def test_many_data_files(trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable's slices, and its layers, may lie in different files."""
    monkeypatch.setattr(tensor_files, "BYTES_AT_ONCE", 100)
    folder = CheckpointFolder(tmp_path)
    program = build("rows:2;cols:4", "f:cols+rows", unroll=True)
    restore(trained.saved, [program])
    path = folder.save(2, program.variables, {})
    assert len(list(path.glob("variables.data-*"))) > 8
    saved = folder.newest_readable()
    assert saved is not None
    other = build("all:2", "f:all")
    restore(saved, [other])
    assert_same_bits(by_layer(other.variables), trained.values)
    reader = tf.train.load_checkpoint(str(path))
    np.testing.assert_array_equal(reader.get_tensor("layer_001/w"), trained.values["layer_001/w"])


def test_no_more_values_are_held_than_are_being_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_files, "BYTES_AT_ONCE", 4000)
    alive: list[weakref.ref[tf.Tensor]] = []
    most = 0

    def value_of(chunk: Chunk) -> tf.Tensor:
        nonlocal most
        value = tf.zeros(chunk.box.size)
        alive.append(weakref.ref(value))
        most = max(most, sum(reference() is not None for reference in alive))
        return value

    chunks = [Chunk("v", (64, 100), tf.float32, box, "v", None, ()) for box in Box.whole([64, 100]).subdivided(100)]
    tensor_files.write_chunks(tmp_path / "variables", chunks, value_of)
    assert (len(alive), most) == (64, 10)
