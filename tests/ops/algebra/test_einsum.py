"""Patterns of einsum build what lists of tensors do. Its values are in tests/ops/algebra/test_contraction.py."""

from __future__ import annotations

import pytest

import meshtf as mtf

pytestmark = pytest.mark.quick

SHAPES = {"x": "batch:4 length:6 d_model:8", "w": "d_model:8 heads:2 d_kv:4", "v": "length:6 heads:2"}


@pytest.mark.parametrize(
    ("pattern", "names", "output_shape"),
    [
        ("batch length d_model, d_model heads d_kv -> batch length heads d_kv", "xw", "batch length heads d_kv"),
        ("... d_model, d_model ... -> ...", "xw", "batch length heads d_kv"),
        ("d_model length batch, length heads -> heads batch", "xv", "heads batch"),
        ("batch ... d_model, heads d_kv d_model, heads length -> batch d_kv ...", "xwv", "batch d_kv length"),
        ("batch length d_model ->", "x", ""),
        ("batch ... -> batch", "x", None),
        ("batch ... -> ... copies:3 batch", "x", "length d_model copies:3 batch"),
        ("batch length:6 d_model, length heads", "xv", "batch d_model heads"),
    ],
)
def test_a_pattern_builds_what_a_list_does(pattern: str, names: str, output_shape: str | None) -> None:
    def built(by_pattern: bool) -> list[str]:
        with mtf.Graph() as graph:
            mesh = mtf.Mesh(graph)
            xs = [mtf.placeholder(mesh, SHAPES[name], name=name) for name in names]
            y = mtf.einsum(pattern, *xs) if by_pattern else mtf.einsum(xs, output_shape)
        return [f"{type(op).__name__} {op.inputs} {op.outputs}" for op in graph.operations] + [repr(y)]

    if output_shape is None:
        with pytest.raises(mtf.errors.ShapeError, match=r'write "\.\.\." on the right too'):
            built(by_pattern=True)
    else:
        assert built(by_pattern=True) == built(by_pattern=False)


def test_a_name() -> None:
    with mtf.Graph() as graph:
        x = mtf.ones(mtf.Mesh(graph), "batch:4 hidden:8")
    assert mtf.einsum("batch hidden, batch hidden -> batch", x, x, name="norms").name == "norms"
