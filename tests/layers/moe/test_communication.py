"""What mixtures of experts send, read from the plan: one alltoall to the experts and one back, each way."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import tensorflow as tf
from small_mixture import observed

import meshtf as mtf
from meshtf.layers.moe import Capacity, Gates, MixtureOfExperts, Top2Router
from meshtf.planning.plan import Collective, Plan
from meshtf.testing import plan

BATCH, LENGTH, D_MODEL = mtf.Dimension("batch", 8), mtf.Dimension("length", 64), mtf.Dimension("d_model", 16)
LAYER = MixtureOfExperts(8, 32, Top2Router(), Gates(jitter=0.1, z_loss=0.1), Capacity(2.0))
OF_TOKENS = {"tokens", "slots", "length", "capacity", "slots*d_model", "experts*capacity*d_model"}

LAYOUTS = {
    "on the batch's axis": ("all:4", "batch:all;experts:all", "all"),
    "on one of two axes of the batch": ("rows:2;cols:2", "batch:rows+cols;experts:cols;groups:rows", "cols"),
    "on both axes of the batch": ("rows:2;cols:2", "batch:rows+cols;experts:rows+cols", "rows+cols"),
}


def collectives(
    layout: tuple[str, str, str], *, with_gradients: bool, layer: MixtureOfExperts = LAYER
) -> list[Collective]:
    def values(x: mtf.Tensor, segments: mtf.Tensor) -> list[mtf.Tensor]:
        y, seen = observed(layer, is_training=True)(x, segments)
        return [y, *seen.values()]

    def gradients(x: mtf.Tensor, segments: mtf.Tensor) -> list[mtf.Tensor]:
        y, seen = observed(layer, is_training=True)(x, segments)
        weights = [variable.value for variable in x.graph.trainable_variables]
        found = mtf.gradients(mtf.reduce_sum(mtf.square(y)) + seen["auxiliary_loss"], [x, *weights])
        return [y, *seen.values(), *(grad for grad in found if grad is not None)]

    specs = {"x": mtf.TensorSpec([BATCH, LENGTH, D_MODEL]), "segments": mtf.TensorSpec([BATCH, LENGTH], tf.int32)}
    return list(_each(plan(gradients if with_gradients else values, specs, *layout[:2])))


def _each(planned: Plan) -> Iterator[Collective]:
    for instruction in planned.instructions:
        if isinstance(instruction, Collective):
            yield from instruction.members or [instruction]


def _names(collective: Collective) -> set[str]:
    return set(collective.input.shape.dimension_names)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize(("with_gradients", "expected"), [(False, 2), (True, 4)])
def test_tokens_travel_by_one_alltoall_to_the_experts_and_one_back(
    layout: tuple[str, str, str], with_gradients: bool, expected: int
) -> None:
    found = collectives(layout, with_gradients=with_gradients)
    of_tokens = [c for c in found if _names(c) & OF_TOKENS]
    assert [(c.step.kind, "+".join(c.step.axes)) for c in of_tokens] == [("all_to_all", layout[2])] * expected
    num_slots = LENGTH.size * 4
    assert {c.input.shape.size for c in of_tokens} == {BATCH.size * num_slots * D_MODEL.size}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_nothing_else_travels_but_statistics_of_gates_and_gradients_of_weights(layout: tuple[str, str, str]) -> None:
    others = [c for c in collectives(layout, with_gradients=True) if not _names(c) & OF_TOKENS]
    assert {c.step.kind for c in others} == {"all_reduce"}
    statistics = [c for c in others if c.input.shape.size <= LAYER.num_experts]
    weights = [tuple(c.input.shape.dimension_names) for c in others if c not in statistics]
    assert 0 < len(statistics) <= 10
    of_experts = [("d_model", "d_ff"), ("d_ff", "d_model")]
    shared = [] if "groups" not in layout[1] else [("experts", *names) for names in of_experts]
    assert sorted(weights) == sorted([("d_model", "_experts"), *shared])


def test_the_products_of_an_expert_split_over_a_further_axis_are_one_sum_each_way() -> None:
    found = collectives(("rows:2;cols:2", "batch:rows;experts:rows;d_ff:cols", ""), with_gradients=True)
    of_tokens = [(c.step.kind, c.step.axes) for c in found if _names(c) & OF_TOKENS]
    assert sorted(of_tokens) == [("all_reduce", ("cols",))] * 2 + [("all_to_all", ("rows",))] * 4


def test_experts_on_an_axis_that_tokens_are_not_split_over_give_sums_in_place_of_alltoalls() -> None:
    layout = ("rows:2;cols:2", "batch:rows;groups:rows;experts:cols;slots:cols", "")
    found = collectives(layout, with_gradients=True)
    of_tokens = [c for c in found if _names(c) & OF_TOKENS]
    assert {(c.step.kind, c.step.axes) for c in of_tokens} == {("all_reduce", ("cols",))}
    vectors = [c for c in of_tokens if _names(c) >= {"tokens", "d_model"}]
    assert len(vectors) == 2
    assert all(c.input.shape.size <= BATCH.size * LENGTH.size * 2 for c in of_tokens if c not in vectors)


def test_dropless_tokens_stay_and_weights_of_split_experts_are_gathered() -> None:
    layer = MixtureOfExperts(8, 32, Top2Router(), capacity=None)
    found = collectives(LAYOUTS["on the batch's axis"], with_gradients=True, layer=layer)
    assert not [c for c in found if _names(c) & OF_TOKENS]
    kinds = sorted(c.step.kind for c in found if "experts" in _names(c))
    assert kinds == ["all_gather"] * 2 + ["reduce_scatter"] * 2


def test_gathers_within_groups_are_local() -> None:
    """Neither the lookups nor the sort behind them communicates; only what crosses to the experts does."""
    found = collectives(("all:4", "batch:all", ""), with_gradients=False)
    assert not [c for c in found if _names(c) & {*OF_TOKENS, "batch", "ranks"}]


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_weights_of_experts_are_split_and_never_whole(
    layout: tuple[str, str, str], plan_report: Callable[..., str]
) -> None:
    assert f"experts:8/{layout[2]}" in plan_report(layout)


@pytest.fixture(name="plan_report")
def _plan_report() -> Callable[[tuple[str, str, str]], str]:
    def report(layout: tuple[str, str, str]) -> str:
        def step(x: mtf.Tensor) -> mtf.Tensor:
            y, seen = observed(LAYER, is_training=True)(x)
            loss = mtf.reduce_mean(mtf.square(y)) + seen["auxiliary_loss"]
            mtf.optimize.AdamWOptimizer(1e-3).minimize(loss)
            return loss

        made = mtf.function(step, mtf.PlanMeshImpl(*layout[:2]), inputs={"x": mtf.TensorSpec([BATCH, LENGTH, D_MODEL])})
        kernels = [v for v in made.report().variables if "kernel" in v.name]
        assert len(kernels) == 6, kernels  # two, and two moments of each
        (split,) = {v.layout.split()[0] for v in kernels}
        return split

    return report
