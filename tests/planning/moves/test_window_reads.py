"""Windows of a split dimension against NumPy, and what is sent for them."""

from __future__ import annotations

import random

import numpy as np
import pytest

import meshtf as mtf
from meshtf.dimension import convert_to_shape
from meshtf.lowering.interpreter import Interpreter
from meshtf.planning.moves.window_reads import Window, part_of, read_window
from meshtf.planning.plan import Plan
from tests.planning.small_planner import planner_of

pytestmark = pytest.mark.quick

MESH = convert_to_shape("rows:2;cols:3")
AXES = [(), ("rows",), ("cols",), ("cols", "rows"), ("rows", "cols")]
PARTS = {(): 1, ("rows",): 2, ("cols",): 3, ("cols", "rows"): 6, ("rows", "cols"): 6}


def read(axes: tuple[str, ...], whole: np.ndarray, window: Window, wrap: bool) -> tuple[np.ndarray, Plan]:
    """The windows of all cores, one after the other."""
    x = mtf.placeholder(mtf.Mesh(mtf.Graph()), [("a", whole.shape[0]), ("b", 2)], name="x")
    planner = planner_of({x: (axes, ())}, MESH)
    value = read_window(planner, planner.read(x), 0, window, wrap=wrap, fill=-1)
    plan = Plan(MESH, planner.record.instructions, (value,), (), False)
    return Interpreter(plan).run({"x": whole})[0], plan


@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize("axes", AXES, ids="+".join)
def test_every_core_has_its_window(axes: tuple[str, ...], wrap: bool) -> None:
    rng, parts = random.Random(f"{axes} {wrap}"), PARTS[axes]
    for _ in range(6):
        n = rng.randrange(1, 5)
        whole = np.arange(2 * n * parts, dtype=np.float32).reshape(-1, 2)
        divisor = rng.choice([1, 1, 2])
        window = Window(
            rng.randrange(-2 * n, 2 * n), rng.choice([n, n, 2 * n, 1]), rng.randrange(1, 2 * n + 1), divisor
        )
        found, _ = read(axes, whole, window, wrap)
        wanted = [(j * window.step + window.begin) // divisor + i for j in range(parts) for i in range(window.length)]
        outside = [i for i, place in enumerate(wanted) if not 0 <= place < len(whole)]
        expected = whole[np.mod(wanted, len(whole))]
        if not wrap:
            expected[outside] = -1
        np.testing.assert_array_equal(found, expected, err_msg=f"{window}")


def test_only_what_a_core_lacks_is_sent() -> None:
    whole = np.zeros([24, 2], np.float32)  # four elements a core
    border = 2 * 4  # bytes of one element
    for window, sent in [
        (Window(0, 4, 4), []),
        (Window(-1, 4, 6), [border, border]),
        (Window(-3, 4, 4), [3 * border]),
        (Window(4, 4, 4), [4 * border]),
        (Window(1, 4, 2), []),
    ]:
        _, plan = read(("rows", "cols"), whole, window, wrap=False)
        assert [c.step.bytes_sent(c.input.slice_bytes, MESH) for c in plan.collectives] == sent, window


def test_neither_padding_is_sent_nor_what_no_core_needs() -> None:
    """Three elements on two cores: the second holds one, and padding."""
    whole = np.arange(6, dtype=np.float32).reshape(3, 2)
    element = 2 * 4
    for window, sent in [
        (Window(0, 2, 4), [element]),
        (Window(0, 2, 4, needed=((0, 2), (2, 3))), []),
        (Window(-2, 2, 4, needed=((0, 2), (1, 3))), [element]),
    ]:
        found, plan = read(("rows",), whole, window, wrap=False)
        assert [c.step.bytes_sent(c.input.slice_bytes, MESH) for c in plan.collectives] == sent, window
        wanted = window.needed or ((0, 3), (2, 3))
        for core, (begin, end) in enumerate(wanted):
            first = core * window.length - window.start(core)
            np.testing.assert_array_equal(found[first + begin : first + end], whole[begin:end], err_msg=f"{window}")


def test_a_window_that_is_the_slice_is_the_value_itself() -> None:
    x = mtf.placeholder(mtf.Mesh(mtf.Graph()), "a:24 b:2")
    planner = planner_of({x: (("rows",), ())}, MESH)
    held = planner.read(x)
    assert read_window(planner, held, 0, Window(0, 12, 12)) is held
    assert part_of(planner, held, 0, 0, 12) is held
    assert part_of(planner, held, 0, 3, 5).slice_shape == (5, 2)
