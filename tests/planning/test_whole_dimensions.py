"""Where to work on dimensions that must be whole: no splits send less."""

from __future__ import annotations

import pytest

import meshtf as mtf
from meshtf.dimension import convert_to_shape
from meshtf.planning.whole_dimensions import bytes_sent, whole_splits
from tests.planning.every_layout import every_layout
from tests.planning.small_planner import planner_of

pytestmark = pytest.mark.quick

MESH = convert_to_shape("rows:2;cols:4")
SIZES = (4, 8, 4)


@pytest.mark.parametrize("names", [["b"], ["a", "c"], ["a", "b", "c"]], ids=str)
def test_no_splits_with_these_dimensions_whole_send_less(names: list[str]) -> None:
    """Of those that split each dimension over one mesh axis at most, among those of source and target."""
    layouts = every_layout(SIZES, MESH)
    legal = [dict(zip("abc", axes, strict=True)) for axes in layouts]
    legal = [s for s in legal if not any(s[name] for name in names) and max(map(len, s.values())) <= 1]
    for source in layouts[::4]:
        for target in layouts[::5]:
            mesh = mtf.Mesh(mtf.Graph())
            x, y = (mtf.placeholder(mesh, "a:4 b:8 c:4", name=name) for name in ("x", "y"))
            planner = planner_of({x: source, y: target}, MESH)
            found = whole_splits(planner, [x], names, [y])
            assert not any(found.get(name) for name in names)
            used = {a for axes in (*source, *target) for a in axes}
            others = [s for s in legal if {a for axes in s.values() for a in axes} <= used]
            least = min(bytes_sent(planner, [x], [y], splits) for splits in others)
            assert bytes_sent(planner, [x], [y], found) <= least, (source, target, found)


def test_the_batch_takes_over_a_split_that_it_can_take() -> None:
    mesh = mtf.Mesh(mtf.Graph())
    x = mtf.placeholder(mesh, "batch:8 n:8")
    assert whole_splits(planner_of({x: ((), ("cols",))}, MESH), [x], ["n"], [x]) == {"batch": ("cols",)}
    odd = mtf.placeholder(mesh, "batch:6 n:8", name="odd")
    assert whole_splits(planner_of({odd: ((), ("cols",))}, MESH), [odd], ["n"], [odd]) == {}
