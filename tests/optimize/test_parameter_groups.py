from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

import meshtf as mtf
from meshtf import optimize
from meshtf.errors import GraphError
from meshtf.testing import FUNCTION_TERMS, assert_close
from tests.optimize.interpreted_training import InterpretedTraining

D = mtf.Dimension("d", 4)
SGD = optimize.SgdOptimizer(0.1)


def trained(optimizer: optimize.Optimizer, num_steps: int = 1) -> InterpretedTraining:
    """Three variables, ones, whose gradients are all ones."""

    def step(mesh: mtf.Mesh) -> mtf.Tensor:
        names = ("encoder/kernel", "encoder/bias", "decoder/kernel")
        variables = [mtf.get_variable(mesh, name, [D], initializer=mtf.ones) for name in names]
        loss = mtf.reduce_sum(mtf.add_n(variables))
        optimizer.minimize(loss)
        return loss

    training = InterpretedTraining(step, {}, "all:2", "d:all")
    for _ in range(num_steps):
        training.step()
    return training


def test_the_first_expression_that_finds_a_name_decides() -> None:
    groups = [("bias$", optimize.SgdOptimizer(0.5)), ("^encoder/", optimize.SgdOptimizer(0.25))]
    actual = trained(optimize.ParameterGroups(groups, SGD))
    assert actual["encoder/bias"][0] == 0.5
    assert actual["encoder/kernel"][0] == 0.75
    assert actual["decoder/kernel"][0] == np.float32(1 - np.float32(0.1))


def test_a_frozen_group_is_not_even_assigned() -> None:
    actual = trained(optimize.ParameterGroups([("^encoder/", optimize.FrozenOptimizer())], optimize.AdamOptimizer(0.1)))
    assert {i.name for i in actual.plan.assignments if i.name.startswith("encoder")} == set()
    assert actual["decoder/kernel"][0] < 1


def test_a_frozen_weight_is_neither_decayed_nor_averaged() -> None:
    groups = optimize.ParameterGroups([("bias$", optimize.FrozenOptimizer())], SGD)
    optimizer = optimize.MovingAverageOptimizer(optimize.WeightDecayOptimizer(groups, 0.5))
    actual = trained(optimizer)
    assert "encoder/bias" not in actual.variables or actual["encoder/bias"][0] == 1
    assert "encoder/bias/ema" not in actual.variables
    assert "encoder/kernel/ema" in actual.variables


def test_groups_count_their_steps_each_for_itself() -> None:
    actual = trained(optimize.ParameterGroups([("bias", optimize.AdamOptimizer(0.1))], optimize.AdamOptimizer(0.1)), 3)
    assert actual["adam/step"] == actual["adam_1/step"] == 3


def test_one_norm_for_all_groups() -> None:
    groups = optimize.ParameterGroups([("bias", optimize.SgdOptimizer(2.0))], optimize.SgdOptimizer(1.0))
    actual = trained(optimize.ClippedOptimizer(groups, [optimize.ClipByGlobalNorm(1.0)]))
    share = 1 / np.sqrt(12)
    assert_close(1 - actual["encoder/bias"], 2 * share, terms=(12, 2 * FUNCTION_TERMS), magnitude=1.0)
    assert_close(1 - actual["decoder/kernel"], share, terms=(12, 2 * FUNCTION_TERMS), magnitude=1.0)


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        (
            optimize.ParameterGroups([("decodr", SGD)], SGD),
            r"ParameterGroups: the regular expression 'decodr' finds no variable; did you mean \"decoder\"\?\n"
            r"The trainable variables are: encoder/kernel, encoder/bias, decoder/kernel\.",
        ),
        (
            optimize.ParameterGroups([("coder", SGD), ("^decoder", SGD)], SGD),
            r"earlier groups, such as 'coder', take every variable that '\^decoder' finds; put the narrower .* first",
        ),
        (
            optimize.AdamWOptimizer(0.1, exclude_from_weight_decay=["bais"]),
            r"AdamWOptimizer: the regular expression 'bais' finds no variable; did you mean \"bias\"\?",
        ),
        (optimize.LarsOptimizer(0.1, exclude=["norm"]), r"LarsOptimizer: the regular expression 'norm' finds no"),
        (optimize.WeightDecayOptimizer(SGD, 0.1, exclude=["norm"]), r"WeightDecayOptimizer: .*'norm' finds no"),
    ],
)
def test_a_rule_that_has_no_effect_is_an_error(optimizer: optimize.Optimizer, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        trained(optimizer)


def test_a_rule_for_one_layer_of_a_scan_says_how_to_have_it() -> None:
    def layer(carried: Sequence[mtf.Tensor], _: object) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
        return [carried[0] * mtf.get_variable("scale", "d:2")], []

    with mtf.Graph() as graph:
        (y,), _ = mtf.layer_stack(layer, mtf.ones(mtf.Mesh(graph), "d:2"), ("layers", 2))
        found = r"finds no variable; it finds \"layer_001/scale\", but .* unroll=True\nThe .* are: layer/scale\."
        with pytest.raises(GraphError, match=found):
            optimize.ParameterGroups([("layer_001", SGD)], SGD).minimize(mtf.reduce_sum(y))


def test_a_rule_inside_a_group_may_name_variables_of_another() -> None:
    decayed = optimize.AdamWOptimizer(0.1, exclude_from_weight_decay=["bias"])
    assert trained(optimize.ParameterGroups([("decoder", decayed)], SGD))["decoder/kernel"][0] < 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: optimize.ParameterGroups(None, SGD),
            r"groups must be a list, each a tuple of a string and an Optimizer, and is None",
        ),
        (lambda: optimize.ParameterGroups(["bias"], SGD), r"groups must be a list, .*, and is \['bias'\]"),
        (
            lambda: optimize.ParameterGroups([("(", SGD)], SGD),
            r"groups has '\(', which is not a regular expression: missing \)",
        ),
        (
            lambda: optimize.ParameterGroups([("bias", None)], SGD),
            r"groups must be a list, .*, and is \[\('bias', None\)\]",
        ),
        (lambda: optimize.ParameterGroups([], "sgd"), r"default must be an Optimizer, and is 'sgd'"),
    ],
)
def test_what_groups_cannot_be(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
