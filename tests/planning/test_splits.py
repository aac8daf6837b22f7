"""Splits on which operands and output agree, or else the cheapest."""

from __future__ import annotations

import pytest

import meshtf as mtf
from meshtf.dimension import convert_to_shape
from meshtf.layout import Axes, TensorLayout
from meshtf.planning.splits import cheapest_splits, choose_splits, layout_over, summed_axes
from tests.planning.small_planner import table_of

pytestmark = pytest.mark.quick

MESH = convert_to_shape("rows:4")
WHOLE, ROWS = (), ("rows",)


def product(batch: int, inner: int, out: int) -> tuple[mtf.Tensor, mtf.Tensor, mtf.Tensor]:
    mesh = mtf.Mesh(mtf.Graph())
    shapes = (f"batch:{batch} in:{inner}", f"in:{inner} out:{out}", f"batch:{batch} out:{out}")
    x, w, y = (mtf.placeholder(mesh, shape, name=f"t{i}") for i, shape in enumerate(shapes))
    return x, w, y


@pytest.mark.parametrize(
    ("batch", "out", "expected"),
    [
        # To gather w sends 12 of 16 KiB; to gather x, and to bring y [8, 1024] from `out` to `batch`, 6 and a little.
        (8, 1024, {"batch": WHOLE, "in": WHOLE, "out": ROWS}),
        (1024, 8, {"batch": ROWS, "in": WHOLE, "out": WHOLE}),
    ],
)
def test_where_operands_disagree_the_fewest_bytes_are_sent(batch: int, out: int, expected: dict[str, Axes]) -> None:
    x, w, y = product(batch, 4, out)
    table = table_of({x: (ROWS, WHOLE), w: (WHOLE, ROWS), y: (ROWS, WHOLE)}, MESH)
    assert choose_splits([x, w], y, table) == expected


def test_where_all_agree_the_sum_is_left_though_a_gather_would_be_cheaper() -> None:
    x, w, y = product(64, 4, 64)
    table = table_of({x: (WHOLE, ROWS), w: (ROWS, WHOLE), y: (WHOLE, WHOLE)}, MESH)
    agreed = choose_splits([x, w], y, table)
    assert agreed == {"batch": WHOLE, "in": ROWS, "out": WHOLE}
    assert summed_axes(agreed, y.shape) == ROWS
    # 1.5 KiB sent to gather both, instead of 24 to add up 16
    assert cheapest_splits([x, w], y, table)["in"] == WHOLE


def test_a_choice_for_what_a_product_makes_gathers_x_and_repeats_nothing() -> None:
    """Of a feed-forward layer whose weights and residual stream are split by d_model alone: the sum of `inner` that
    each core has a term of, against a gather of x and the scattered sum of y."""
    layer = mtf.Shape([("batch", 8), ("length", 2048), ("d_model", 1024)])
    inner = mtf.Shape([*layer[:2], ("d_ff", 4096)])

    def feed_forward(x: mtf.Tensor) -> mtf.Tensor:
        w1, w2 = (
            mtf.get_variable(x.mesh, n, s) for n, s in (("w1", [layer[2], inner[2]]), ("w2", [inner[2], layer[2]]))
        )
        return mtf.einsum([mtf.relu(mtf.einsum([mtf.tanh(x), w1], inner)), w2], layer)

    found = {}
    for rules in ("", "d_ff:cols"):
        mesh_impl = mtf.PlanMeshImpl("cols:4", "d_model:cols", activation_layout=rules)
        report = mtf.function(feed_forward, mesh_impl, inputs={"x": mtf.TensorSpec(layer)}).report()
        assert report.repeated_flops_per_core < 0.01 * report.flops_per_core
        found[rules] = {(c.kind, c.shape.split()[0]): c.bytes_sent for c in report.collectives}
    x, weights = layer.size * 4, 1024 * 4096 * 4
    assert found[""] == {("all_reduce", "batch:8"): 2 * 3 * 4 * x // 4}  # 403 MB
    assert found["d_ff:cols"] == {
        ("all_gather", "batch:8"): 3 * x // 4,  # 50 MB
        ("reduce_scatter", "batch:8"): 3 * x // 4,
        ("all_to_all", "d_model:1024"): 3 * weights // 16,
        ("all_to_all", "d_ff:4096"): 3 * weights // 16,
    }


def test_a_split_must_suit_every_size_of_its_name() -> None:
    x, w, y = product(8, 4, 8)
    table = table_of({x: (ROWS, WHOLE), w: (WHOLE, WHOLE), y: (ROWS, WHOLE)}, MESH)
    assert choose_splits([x, w], y, table)["batch"] == ROWS
    assert choose_splits([x, w], y, table, shapes=[convert_to_shape("batch:5")])["batch"] == WHOLE  # too much padding
    assert choose_splits([x, w], y, table, shapes=[convert_to_shape("batch:6")])["batch"] == ROWS
    assert choose_splits([x, w], y, table, shapes=[convert_to_shape("batch:12")])["batch"] == ROWS
    assert choose_splits([x, w], y, table, whole=["batch"])["batch"] == WHOLE


def test_the_layout_of_a_shape_over_splits() -> None:
    shape = convert_to_shape("out:8 other:3 batch:4")
    assert layout_over(shape, {"batch": ROWS, "in": ("cols",)}) == TensorLayout((WHOLE, WHOLE, ROWS))
