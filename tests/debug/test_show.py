"""Pictures of layouts: which core holds which part, as HTML; and the HTML of tensors, layouts, reports and plans."""

from __future__ import annotations

import pytest

import meshtf as mtf
from meshtf.errors import GraphError, MeshtfError, UsageError
from tests.debug.html_checks import checked_html
from tests.debug.programs import on_paper


def test_each_part_is_a_cell_with_its_cores() -> None:
    picture = mtf.debug.show("hidden/kernel", on_paper())
    assert [block.cores for block in picture.blocks] == [(0, 2), (1, 3)]
    html = picture._repr_html_()
    tags, text = checked_html(html)
    assert html.count('class="core"') == 2
    assert "cores 0, 2" in text
    assert "2 copies" in text
    assert "<b>:12 \\ hidden:16" in text
    assert "b" not in tags[tags.index("table") :]
    assert 'title="&lt;b&gt; 0:6, hidden all"' in html
    x = on_paper().results.graph.exports["seen"]
    assert mtf.debug.show(x).title == mtf.debug.show("seen", on_paper().lowering).title


def test_parts_of_a_third_dimension_fold_and_large_tables_are_cut() -> None:
    html = mtf.debug.show("a:4 b:4 c:4", "x:2;y:2;z:4", "a:x;b:y;c:z")._repr_html_()
    tags, _ = checked_html(html)
    assert tags.count("details") == 4
    assert html.count('class="core"') == 16
    _, text = checked_html(mtf.debug.show("batch:4096 d:2", "x:64;y:32", "batch:x")._repr_html_())
    assert "cores 0-31" in text
    assert "and 32 more rows" in text
    _, scalar = checked_html(mtf.debug.show("", "x:2", "")._repr_html_())
    assert "cores 0-1" in scalar


def test_tensors_layouts_reports_and_plans_are_html() -> None:
    step = on_paper()
    tensor = step.graph.exports["seen"]
    rules = mtf.LayoutRules({"<b>": "cols", "encoder/.*": {"hidden": ""}})
    views = {
        "tensor": (tensor, ["batch", "hidden/relu", "[batch:8/rows hidden:16] on mesh [rows:2 cols:2]"]),
        "rules": (rules, ["<b>", "cols", "at encoder/.*", "(whole)"]),
        "layout": (mtf.TensorLayout(((), ("rows", "cols"))), ["rows+cols", "(whole)"]),
        "report": (step.report(), ['program "training_step" on 4 cores', "every tensor", "<b>:12/cols"]),
        "plan": (step.lowering.plan, ["plan for 4 cores, mesh [rows:2 cols:2]", "Collective all_reduce over"]),
    }
    for name, (view, expected) in views.items():
        tags, text = checked_html(view._repr_html_())
        for part in expected:
            assert part in text, name
        if name in ("report", "plan", "rules"):
            assert "details" in tags, name


WRONG: dict[str, tuple[type[MeshtfError], str, object, tuple[object, ...]]] = {
    "no name": (GraphError, r'no tensor "hidden/rely" in program .*; did you mean "hidden/relu"', "hidden/rely", (0,)),
    "two layouts": (
        UsageError,
        "a program has its layout; to see another one",
        "seen",
        (0, "batch:rows"),
    ),
    "no tensor": (UsageError, "a tensor of the program or its name is needed, and not 3", 3, (0,)),
}


@pytest.mark.parametrize("name", WRONG)
def test_mistakes_are_told(name: str) -> None:
    kind, message, x, rest = WRONG[name]
    with pytest.raises(kind, match=message) as caught:
        mtf.debug.show(x, on_paper(), *rest[1:])  # type: ignore[arg-type]
    assert f"\n  at {__file__}:" in str(caught.value)


def test_a_tensor_without_a_mesh_says_how_to_give_one() -> None:
    with mtf.Graph() as graph, pytest.raises(UsageError, match=r"give a mesh, mtf\.debug\.show\(x, mesh_impl\)"):
        mtf.debug.show(mtf.zeros(mtf.Mesh(graph), "n:4"))
