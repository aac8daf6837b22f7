"""Checkpoints of other models, and warm starts from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from small_training import LAYERS, Trained, assert_same_bits, build, by_layer

import meshtf as mtf
from meshtf.checkpoint import CheckpointFolder, WarmStart, restore, warm_start
from meshtf.errors import CheckpointError, GraphError

MESH = mtf.SpmdMeshImpl("all:2", "")


def test_another_model_is_refused_and_what_differs_is_named(trained: Trained) -> None:
    def other(mesh: mtf.Mesh) -> list[mtf.Tensor]:
        return [
            mtf.get_variable(mesh, "embeddings", "vocab:5 d:4"),
            mtf.get_variable(mesh, "embedding/momentum", "vocab:5 d:4", tf.bfloat16),
            mtf.get_variable(mesh, "layer_001/w", "d:4 f:16"),
        ]

    program = mtf.function(other, MESH)
    with pytest.raises(CheckpointError) as caught:
        restore(trained.saved, [program])
    assert str(caught.value).splitlines() == [
        f'checkpoint {trained.saved.folder} does not fit program "other":',
        "  missing from the checkpoint (1):",
        '    embeddings [5, 4] float32; did you mean "embedding"?',
        '  in the checkpoint and not in program "other" (7):',
        "    embedding [5, 4] float32",
        "    layer_000/w [4, 8] float32",
        "    layer_000/w/momentum [4, 8] float32",
        "    layer_001/w/momentum [4, 8] float32",
        "    layer_002/w [4, 8] float32",
        "    layer_002/w/momentum [4, 8] float32",
        "    train_step/step [] int64",
        "  of another shape or type (2):",
        "    embedding/momentum is [5, 4] float32 there and [5, 4] bfloat16 here",
        "    layer_001/w is [4, 8] float32 there and [4, 16] float32 here",
        "Restore into programs of the model that was saved. To use only a part of it, call warm_start with rules for "
        "the names.",
        "With ignore_unused=True, tensors that no program has are ignored.",
    ]
    assert len(program.variables) == 0


def test_nothing_changes_where_it_does_not_fit(trained: Trained) -> None:
    program = build(d_ff=4)
    program.initialize()
    before = by_layer(program.variables)
    with pytest.raises(CheckpointError, match=r"layer_000/w is \[4, 8\] float32 there and \[4, 4\] float32 here"):
        restore(trained.saved, [program], ignore_unused=True)
    assert_same_bits(by_layer(program.variables), before)


def test_long_lists_are_cut(tmp_path: Path) -> None:
    def many(mesh: mtf.Mesh) -> list[mtf.Tensor]:
        return [mtf.get_variable(mesh, f"v{i:02d}", [], initializer=mtf.zeros) for i in range(23)]

    program = mtf.function(many, MESH)
    program.initialize()
    folder = CheckpointFolder(tmp_path)
    folder.save(0, program.variables, {})

    def one(mesh: mtf.Mesh) -> mtf.Tensor:
        return mtf.get_variable(mesh, "v00", [])

    with pytest.raises(CheckpointError, match=r"(?s)\(22\):.*v20 \[\] float32\n    and 2 more"):
        restore(folder.open(0), [mtf.function(one, MESH)])


def test_programs_must_share_a_store(trained: Trained) -> None:
    for programs in ([], [build(), build()]):
        with pytest.raises(CheckpointError, match="programs that are restored together must share one store"):
            restore(trained.saved, programs)


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"ab": "cd"}, r"name rules must be a list of pairs, such as .*, and not \{'ab': 'cd'\}"),
        ([("ab",)], r"a name rule must be a pair, as in .*, and is \('ab',\)"),
        (["ab"], r"a name rule must be a pair, as in .*, and is 'ab'"),
        ([("ab", 3)], r"a name rule must be a pair, as in .*, and is \('ab', 3\)"),
    ],
)
def test_rules_that_are_no_pairs(trained: Trained, rules: Any, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        warm_start(trained.saved, [build()], rules)


def test_what_is_easily_given_in_place_of_a_checkpoint(trained: Trained, tmp_path: Path) -> None:
    program = build()
    with pytest.raises(CheckpointError, match=r"there is no checkpoint .* newest_readable\(\) found none"):
        restore(CheckpointFolder(tmp_path).newest_readable(), [program])  # type: ignore[arg-type]
    with pytest.raises(CheckpointError, match=r"give a checkpoint, such as newest_readable\(\) of a CheckpointFolder"):
        warm_start(tmp_path, [program], [])  # type: ignore[arg-type]
    with pytest.raises(CheckpointError, match=r"of a CheckpointFolder, not a CheckpointFolder"):
        restore(CheckpointFolder(tmp_path), [program])  # type: ignore[arg-type]
    with pytest.raises(CheckpointError, match=r'the programs must be a list, .* give \[program "train_step"\]'):
        restore(trained.saved, program)  # type: ignore[arg-type]
    with pytest.raises(CheckpointError, match=r"takes a store of variables, such as step.variables, not Function"):
        CheckpointFolder(tmp_path).save(1, program, {})  # type: ignore[arg-type]
    program.initialize()
    with pytest.raises(CheckpointError, match="the state must be a dict of values by name, and not list"):
        CheckpointFolder(tmp_path).save(1, program.variables, [1])  # type: ignore[arg-type]
    with pytest.raises(CheckpointError, match=r"must be an int of Python, 0 or more, not np.int64\(1\)"):
        CheckpointFolder(tmp_path).save(np.int64(1), program.variables, {})  # type: ignore[arg-type]


def test_a_store_or_a_program_that_has_a_variable_otherwise(trained: Trained) -> None:
    def other(mesh: mtf.Mesh) -> mtf.Tensor:
        return mtf.get_variable(mesh, "embedding", "vocab:5 e:4")

    store = mtf.VariableStore()
    programs = [build(store=store), mtf.function(other, mtf.SpmdMeshImpl("rows:2;cols:2", ""), variables=store)]
    with pytest.raises(CheckpointError, match='two programs have variable "embedding" as'):
        restore(trained.saved, programs)
    programs[0].initialize()
    with pytest.raises(GraphError, match='the store holds variable "embedding" as'):
        restore(trained.saved, programs)


def test_variables_of_the_store_that_no_program_has_stay(trained: Trained) -> None:
    def other(mesh: mtf.Mesh) -> mtf.Tensor:
        return mtf.get_variable(mesh, "mine", "a:4", initializer=np.arange(4))

    store = mtf.VariableStore()
    mtf.function(other, mtf.SpmdMeshImpl("rows:2;cols:2", ""), variables=store).initialize()
    program = build(store=store)
    restore(trained.saved, [program])
    np.testing.assert_array_equal(store["mine"], np.arange(4))
    assert_same_bits({n: v for n, v in by_layer(store).items() if n != "mine"}, trained.values)


RULES = [
    (r"layer_00(\d)/w", r"layer_002/w"),
    (r".*/(momentum|step)", None),
]


@pytest.mark.parametrize("unroll", [False, True])
def test_warm_start_by_rules(trained: Trained, unroll: bool) -> None:
    program = build("all:4", "f:all", unroll=unroll)
    done = warm_start(trained.saved, [program], RULES)
    layers = {f"layer_{i:03d}/w": "layer_002/w" for i in range(3)}
    names = ["embedding/momentum", *(f"{layer}/momentum" for layer in layers), "train_step/step"]
    assert done == WarmStart({"embedding": "embedding", **layers}, done.initial)
    assert sorted(done.initial) == names
    expected = {name: np.zeros_like(trained.values[name]) for name in names}
    expected |= {name: trained.values[source] for name, source in done.restored.items()}
    assert_same_bits(by_layer(program.variables), expected)


@pytest.mark.parametrize("unroll", [False, True])
def test_warm_start_of_some_layers_of_a_stack(trained: Trained, unroll: bool) -> None:
    program, fresh = (build("rows:2;cols:2", "f:rows", unroll=unroll) for _ in range(2))
    fresh.initialize()
    warm_start(trained.saved, [program], [("layer_001/w", "layer_000/w"), (".*", None)])
    expected = by_layer(fresh.variables) | {"layer_001/w": trained.values["layer_000/w"]}
    assert_same_bits(by_layer(program.variables), expected)


@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float16, tf.float32, tf.bool, tf.uint64])
def test_warm_start_of_single_numbers(dtype: tf.DType, tmp_path: Path) -> None:
    def layer(carried: list[mtf.Tensor], _: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
        return carried, [mtf.get_variable(carried[0].mesh, "number", [], dtype, initializer=mtf.zeros)]

    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        return [
            mtf.get_variable(x.mesh, "alone", [], dtype, initializer=mtf.zeros),
            *mtf.layer_stack(layer, x, LAYERS)[1],
        ]

    def made() -> mtf.Function:
        return mtf.function(program, mtf.SpmdMeshImpl("all:2", ""), {"x": mtf.TensorSpec("n:1")})

    first, second = made(), made()
    first.initialize({"alone": np.ones([]), "layer/number": np.ones([3])})
    folder = CheckpointFolder(tmp_path)
    folder.save(1, first.variables, {})
    warm_start(folder.open(1), [second], [])
    assert_same_bits(by_layer(second.variables), by_layer(first.variables))


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (
            [("layer_000/w", "layer_003/w")],
            r"(?s)missing from the checkpoint \(1\):.*layer_003/w \[4, 8\] float32; did",
        ),
        ([("embedding", "layer_000/w")], r"layer_000/w is \[4, 8\] float32 there and \[5, 4\] float32 here"),
        ([("embeding", None)], r'name rule "embeding" applies to none of the 9 names, such as '),
        ([("(", None)], r'name rule "\(" is not a regular expression'),
        ([("embedding", r"\1")], r'name rule "embedding": bad name "\\1"'),
    ],
)
def test_rules_that_do_not_fit(trained: Trained, rules: list[tuple[str, str | None]], message: str) -> None:
    program = build()
    with pytest.raises(CheckpointError, match=message):
        warm_start(trained.saved, [program], rules)
    assert len(program.variables) == 0
