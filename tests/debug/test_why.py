"""Where layouts come from, and what was sent for a tensor."""

from __future__ import annotations

import pytest

import meshtf as mtf
from meshtf.errors import GraphError, UsageError
from tests.debug.html_checks import checked_html
from tests.debug.programs import on_paper


def reasons(step: mtf.Function, name: str) -> dict[str, str]:
    return {d.dimension: d.why for d in mtf.debug.why(name, step).dimensions}


def test_rules_overrides_and_operands_are_named_with_their_lines() -> None:
    step = on_paper()
    assert reasons(step, "hidden/kernel") == {"<b>:12": 'rule "<b>:cols"', "hidden:16": "no rule is for it"}
    override = reasons(step, "with_layout")
    assert override["batch:8"] == 'as in operand hidden/relu: rule "batch:rows"'
    assert override["hidden:16"].startswith('mtf.with_layout(x, "hidden:cols"), at ')
    assert "tests/debug/programs.py:" in override["hidden:16"]
    assert reasons(step, "logits/einsum")["batch:8"].startswith("as in operand with_layout: as in operand hidden/relu")


def test_collectives_are_those_of_the_report_with_who_asked() -> None:
    step = on_paper()
    answer = mtf.debug.why("logits/einsum", step)
    assert [(s.kind, s.axes, s.reason) for s in answer.sent] == [("all_reduce", ("cols",), "to make it")]
    (record,) = (c for c in step.report().collectives if c.operation == "logits/einsum")
    assert answer.bytes_sent == record.bytes_sent > 0
    assert answer.line == f"{mtf.debug.why('logits/add', step).line}"  # one call of dense made both
    assert answer.layout == "batch:8/rows classes:8"
    _, text = checked_html(answer._repr_html_())
    for part in ("to make it", 'rule "batch:rows"', "all_reduce"):
        assert part in text
        assert part in str(answer)
    assert "nothing was sent for it" in str(mtf.debug.why("hidden/bias", step))


def test_places_small_axes_primals_and_stored_layouts() -> None:
    def fn(x: mtf.Tensor) -> mtf.Tensor:
        with mtf.variable_scope("encoder"):
            w = mtf.get_variable(x.mesh, "w", "hidden:8 out:8")
        y = mtf.einsum([x, w], output_shape="batch:4 out:8", name="product")
        (grad,) = mtf.gradients([y], [w])
        assert grad is not None
        mtf.assign(w, w - grad)
        return mtf.replicate(y)

    layout = "batch:rows;hidden:one;encoder/.*{out:cols}"
    mesh_impl = mtf.PlanMeshImpl("rows:2;cols:2;one:1", layout, parameter_layout="hidden:rows")
    step = mtf.function(fn, mesh_impl, {"x": mtf.TensorSpec("batch:4 hidden:8")})
    weight = reasons(step, "encoder/w")
    assert weight["hidden:8"] == 'rule "hidden:one", but mesh axis one has size 1'
    assert weight["out:8"] == 'rule "encoder/.*{out:cols}"'
    assert mtf.debug.why("encoder/w", step).kept == "hidden:8/rows out:8"
    assert reasons(step, step.results.name)["out:8"].startswith("mtf.replicate, at ")
    assert mtf.debug.why("gradient of product", step).label == "gradient of product"


def test_an_axis_that_another_dimension_took_is_told() -> None:
    def fn(x: mtf.Tensor) -> mtf.Tensor:
        with mtf.variable_scope("there"):
            return mtf.identity(x)

    step = mtf.function(fn, mtf.PlanMeshImpl("r:2", "a:r;there/.*{b:r}"), {"x": mtf.TensorSpec("a:4 b:4")})
    assert reasons(step, step.results.name) == {
        "a:4": 'rule "a:r", but r splits another dimension here',
        "b:4": 'rule "there/.*{b:r}"',
    }
    mesh_impl = mtf.PlanMeshImpl("r:4", "a:r.0;there/.*{b:r}", axis_parts="r:2x2")
    in_parts = mtf.function(fn, mesh_impl, {"x": mtf.TensorSpec("a:4 b:4")})
    assert reasons(in_parts, in_parts.results.name)["a:4"] == 'rule "a:r.0", but r.0 splits another dimension here'


def test_a_tensor_alone_is_that_of_the_program_that_was_lowered_last() -> None:
    step = on_paper()
    logits = next(o for o in step.graph.operations if o.name == "logits/einsum").outputs[0]
    assert mtf.debug.why(logits) == mtf.debug.why("logits/einsum", step)
    assert [s.kind for s in mtf.debug.why(logits).sent] == ["all_reduce"]
    with mtf.Graph() as graph, pytest.raises(UsageError, match=r"give its program, mtf\.debug\.why\(x, step\)"):
        mtf.debug.why(mtf.zeros(mtf.Mesh(graph), "n:4"))


def test_wrong_programs_and_tensors_are_told() -> None:
    with pytest.raises(UsageError, match=r"a program is needed, from mtf\.function or mtf\.Lowering, and not int"):
        mtf.debug.why("x", 3)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="a tensor of the program or its name is needed, and not None"):
        mtf.debug.why(None, on_paper())  # type: ignore[arg-type]
    with mtf.Graph() as graph:
        other = mtf.zeros(mtf.Mesh(graph), "n:4")
    with pytest.raises(GraphError, match=r'constant \[n:4\] float32 is no tensor of program "training_step"'):
        mtf.debug.why(other, on_paper())
    with pytest.raises(GraphError, match=r'no tensor "zzz" in program "training_step"; the names of its tensors'):
        mtf.debug.why("zzz", on_paper())
