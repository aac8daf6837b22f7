"""Other formats, means and comparisons: all on parts of tensors, without programs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import safetensors
import safetensors.tensorflow
import tensorflow as tf

from meshtf.checkpoint import SavedCheckpoint
from meshtf.checkpoint._box import Box
from meshtf.checkpoint.average import Average
from meshtf.checkpoint.checkpoint_paths import open_source, write_to
from meshtf.checkpoint.comparison import TensorDifference, compare
from meshtf.checkpoint.formats import tensor_source
from meshtf.checkpoint.formats.tensor_source import TensorSource, elements, parts_of
from meshtf.checkpoint.manifest import SavedTensor
from meshtf.errors import CheckpointError, SaveError


class Arrays:
    """A source of tensors in memory."""

    def __init__(self, tensors: dict[str, tf.Tensor], step: int = 7) -> None:
        self.values = tensors
        self.step = step
        self.state = {"position": [1, "two"]}
        self.tensors = {name: tensor_source.described(t.shape, t.dtype) for name, t in sorted(tensors.items())}

    def read(self, name: str, box: Box | None = None) -> tf.Tensor:
        return self.values[name] if box is None else self.values[name][box.slices]


TYPES = [
    *(tf.float32, tf.float64, tf.float16, tf.bfloat16, tf.complex64, tf.bool),
    *(tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8, tf.uint16, tf.uint32, tf.uint64),
]


@pytest.fixture(scope="module")
def source() -> Arrays:
    generator = np.random.default_rng(3)
    tensors = {"empty": tf.zeros([0, 3]), "scope/scalar": tf.constant(2.5)}
    for dtype in TYPES:
        tensors[f"scope/{dtype.name}"] = tf.cast(generator.integers(0, 100, [5, 3, 2]), dtype)
    return Arrays(tensors)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_source, "LARGEST_CHUNK", 40)


def assert_same(actual: TensorSource, expected: TensorSource) -> None:
    assert (actual.step, dict(actual.state)) == (expected.step, dict(expected.state))
    assert compare(actual, expected).are_equal
    assert {n: str(t) for n, t in actual.tensors.items()} == {n: str(t) for n, t in expected.tensors.items()}


@pytest.mark.parametrize("name", ["checkpoint", "file.npz", "file.safetensors"])
def test_round_trip(source: Arrays, tmp_path: Path, name: str) -> None:
    write_to(source, tmp_path / "first")
    write_to(open_source(tmp_path / "first"), tmp_path / name) if name != "checkpoint" else None
    again = open_source(tmp_path / name if name != "checkpoint" else tmp_path / "first")
    assert_same(again, source)
    part = Box((1, 0, 1), (3, 2, 1))
    np.testing.assert_array_equal(again.read("scope/int16", part), source.values["scope/int16"][1:4, 0:2, 1:2])
    write_to(again, tmp_path / "back")
    assert_same(SavedCheckpoint.open(tmp_path / "back"), source)
    SavedCheckpoint.open(tmp_path / "back").verify()


def test_numpy_reads_the_npz_file(source: Arrays, tmp_path: Path) -> None:
    write_to(source, tmp_path / "file.npz")
    with np.load(tmp_path / "file.npz") as arrays:
        assert sorted(arrays) == ["__meshtf__", *source.tensors]
        for name, tensor in source.values.items():
            widened = tf.cast(tensor, tf.float32) if tensor.dtype == tf.bfloat16 else tensor
            np.testing.assert_array_equal(arrays[name], widened.numpy(), strict=True)


def test_the_safetensors_library_reads_the_file(source: Arrays, tmp_path: Path) -> None:
    without_complex = Arrays({n: t for n, t in source.values.items() if not t.dtype.is_complex})
    write_to(without_complex, tmp_path / "file.safetensors")
    with safetensors.safe_open(tmp_path / "file.safetensors", "tf") as file:
        assert sorted(file.keys()) == list(without_complex.tensors)
        for name, tensor in without_complex.values.items():
            if name != "empty":
                np.testing.assert_array_equal(file.get_tensor(name), tensor)
        assert json.loads(file.metadata()["meshtf"])["step"] == 7


def test_files_that_others_wrote(tmp_path: Path) -> None:
    values = {"b": np.arange(6, dtype=np.float32).reshape(2, 3), "a/c": np.arange(4)}
    np.savez_compressed(tmp_path / "theirs.npz", **values)
    safetensors.tensorflow.save_file({n: tf.constant(v) for n, v in values.items()}, tmp_path / "theirs.safetensors")
    for path in (tmp_path / "theirs.npz", tmp_path / "theirs.safetensors"):
        read = open_source(path)
        assert (read.step, dict(read.state), list(read.tensors)) == (0, {}, ["a/c", "b"])
        for name, value in values.items():
            np.testing.assert_array_equal(read.read(name), value, strict=True)


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
@pytest.mark.parametrize("content", [b"", b"not one of these", b"\xff" * 100])
def test_bad_files(tmp_path: Path, suffix: str, content: bytes) -> None:
    path = tmp_path / f"bad{suffix}"
    with pytest.raises(CheckpointError, match="cannot be read as"):
        open_source(path)
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="cannot be read as"):
        open_source(path)


def test_arrays_that_no_variable_can_hold(tmp_path: Path) -> None:
    np.savez(tmp_path / "text.npz", words=np.array(["a", "b"]))
    with pytest.raises(CheckpointError, match='array "words" is of type <U1, which no variable can have'):
        open_source(tmp_path / "text.npz")
    double = Arrays({"z": tf.zeros([2], tf.complex128)})
    with pytest.raises(SaveError, match=r'has no type for tensor "z" \[2\] complex128; convert to .npz'):
        write_to(double, tmp_path / "z.safetensors")
    assert not (tmp_path / "z.safetensors").exists()


@pytest.mark.parametrize(
    ("name", "dtype", "message"),
    [
        ("x/../y", tf.float32, r'an array is called "x/\.\./y", which cannot be .*; convert to \.safetensors'),
        ("/w", tf.float32, 'an array is called "/w", which cannot be the name of a variable; convert'),
        ("w", tf.as_dtype("float8_e5m2"), 'NumPy has no type for tensor "w" of float8_e5m2'),
    ],
)
def test_an_npz_file_that_could_not_be_read_is_not_written(
    name: str, dtype: tf.DType, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "file.npz"
    with pytest.raises(SaveError, match=message):
        write_to(Arrays({name: tf.cast(tf.zeros([2]), dtype)}), path)
    assert not path.exists()


def test_a_safetensors_file_that_is_cut_short(source: Arrays, tmp_path: Path) -> None:
    path = tmp_path / "file.safetensors"
    write_to(source, path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match="file not fully covered: it is cut short or damaged"):
        open_source(path)


def test_what_is_there_is_not_overwritten(source: Arrays, tmp_path: Path) -> None:
    path = tmp_path / "file.npz"
    path.write_text("precious")
    with pytest.raises(CheckpointError, match="already exists; give another output"):
        write_to(source, path)
    assert path.read_text() == "precious"
    with pytest.raises(SaveError, match="cannot be written: No such file or directory"):
        write_to(source, tmp_path / "nowhere" / "file.npz")


@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 5), (1, 1, 9), (2, 3, 4), (0, 2)])
def test_parts_are_in_the_order_of_memory(shape: tuple[int, ...]) -> None:
    array = np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)
    parts = list(elements(Arrays({"x": tf.constant(array)}), "x"))
    assert all(part.nbytes <= 40 for part in parts)
    np.testing.assert_array_equal(np.concatenate([part.ravel() for part in parts]), array.ravel())
    assert len(list(parts_of(SavedTensor(shape, tf.uint64, ())))) == 1


def test_average() -> None:
    def numbered(n: int) -> Arrays:
        w = tf.constant([[n, 10.0 * n]] * 3)
        return Arrays({"w": w, "h": tf.cast(w, tf.bfloat16), "count": tf.constant(n), "z": tf.complex(w, -w)}, step=n)

    mean = Average([numbered(1), numbered(2), numbered(6)])
    assert (mean.step, mean.read("count").numpy()) == (6, 6)
    np.testing.assert_array_equal(mean.read("w"), [[3, 30]] * 3)
    np.testing.assert_array_equal(mean.read("w", Box((1, 1), (2, 1))), [[30]] * 2)
    np.testing.assert_array_equal(mean.read("h"), tf.constant([[3, 30]] * 3, tf.bfloat16))
    np.testing.assert_array_equal(mean.read("z"), np.array([[3 - 3j, 30 - 30j]] * 3))


def test_average_of_different_models() -> None:
    first = Arrays({"w": tf.zeros([2]), "v": tf.zeros([2]), "b": tf.zeros([2])}, step=1)
    second = Arrays({"w": tf.zeros([2]), "v": tf.zeros([3])}, step=2)
    with pytest.raises(CheckpointError, match=r"checkpoint 1 of 2 \(step 1\) differs .* types: b, v$"):
        Average([first, second])


def test_quantized_tensors_have_no_average() -> None:
    values = {"w/int8": tf.constant([127, -1], tf.int8), "w/int8_scale": tf.constant(0.5)}
    with pytest.raises(
        CheckpointError, match=r"have 1 quantized tensor, the first w/int8, and .* quantize the result$"
    ):
        Average([Arrays(values), Arrays({**values, "w/int8_scale": tf.constant(1.0)})])
    np.testing.assert_array_equal(Average([Arrays(values)]).read("w/int8"), [127, -1])


def test_comparison() -> None:
    nan, inf = float("nan"), float("inf")
    first = Arrays({"same": tf.constant([1.0, nan]), "v": tf.constant([1.0, 2.0, 3.0]), "only": tf.zeros([])})
    second = Arrays({"same": tf.constant([1.0, nan]), "v": tf.constant([1.0, 2.5, 3.25]), "w": tf.zeros([])})
    found = compare(first, second)
    assert (found.only_first, found.only_second, found.num_equal) == (("only",), ("w",), 1)
    assert found.differences == {"v": TensorDifference(2, 0.5, 3)}
    assert compare(first, second, tolerance=0.4).num_equal == 1
    assert compare(first, second, tolerance=0.5).num_equal == 2
    infinite = compare(Arrays({"x": tf.constant([1.0])}), Arrays({"x": tf.constant([inf])}))
    assert infinite.differences["x"].largest == inf
    other = compare(Arrays({"x": tf.constant([1.0])}), Arrays({"x": tf.constant([1])}))
    assert (other.other_form, other.are_equal) == (("x",), False)


@pytest.mark.parametrize(
    ("dtype", "a", "b", "largest"),
    [
        (tf.int64, 2**53, 2**53 + 1, 1.0),
        (tf.uint64, 2**64 - 1, 2**64 - 3, 2.0),
        (tf.int64, -(2**63), 2**63 - 1, 2.0**64),
        (tf.int8, -5, 127, 132.0),
    ],
)
def test_integers_that_no_float_tells_apart_are_different(dtype: tf.DType, a: int, b: int, largest: float) -> None:
    found = compare(Arrays({"x": tf.constant([a, 1], dtype)}), Arrays({"x": tf.constant([b, 1], dtype)}))
    assert found.differences == {"x": TensorDifference(1, largest, 2)}
