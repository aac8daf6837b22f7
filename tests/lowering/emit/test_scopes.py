"""Every instruction has a name scope of its own, and leads from it to the operation and the user's line."""

from __future__ import annotations

import pytest

import meshtf as mtf
from meshtf.lowering.emit.scopes import origins, scope_name
from meshtf.planning.plan import walk
from meshtf.testing import plan

pytestmark = pytest.mark.quick


def program(x: mtf.Tensor) -> mtf.Tensor:
    total = mtf.reduce_sum(mtf.exp(x), reduced_dim="a")
    doubled = mtf.while_loop(lambda y: mtf.reduce_sum(y) < 9.0, lambda y: 2 * y, [total])[0]
    return mtf.sqrt(doubled)


def test_every_instruction_is_found_inside_of_loops_too() -> None:
    made = plan(program, {"x": mtf.TensorSpec("a:8 b:4")}, "rows:2;cols:2", "a:rows;b:cols")
    found = origins(made.instructions)
    scopes = [scope_name(number, instruction) for number, (instruction, _) in enumerate(walk(made.instructions))]
    assert len(found) == len(scopes) > len(made.instructions)
    assert [scope.split(".")[0] for scope in scopes] == list(found)
    first = program.__code__.co_firstlineno
    lines = {origin.split(", at ")[0]: origin for origin in found.values()}
    assert f"{__file__}:{first + 1} in program" in lines["exp"]
    assert f"{__file__}:{first + 3} in program" in lines["sqrt"]
    assert any(f"{__file__}:{first + 2} in " in origin for origin in found.values())
