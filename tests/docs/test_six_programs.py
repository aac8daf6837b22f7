"""docs/six_programs.md: both forms of meshtf are one graph, layouts change nothing, and the table counts rightly."""

from __future__ import annotations

import io
import keyword
import re
import tokenize
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from pages import blocks_of

import meshtf as mtf
from meshtf.testing import FUNCTION_TERMS, assert_close, interpret
from tests.tensor_face.same_graph import assert_same_graph

PAGE = Path(__file__).resolve().parents[2] / "docs" / "six_programs.md"

WEIGHTS = "w_q:d_model heads d_kv, w_k:d_model heads d_kv, w_v:d_model heads d_kv, w_o:heads d_kv d_model"
PROGRAMS = {
    "A perceptron": ("mlp", "x:batch pixels, labels:batch, w1:pixels hidden, b1:hidden, w2:hidden classes, b2:classes"),
    "Causal attention": ("attention", f"x:batch length d_model, {WEIGHTS}"),
    "A Transformer block": (
        "block",
        f"x:batch length d_model, scale_1:d_model, scale_2:d_model, {WEIGHTS}, w_in:d_model d_ff, w_out:d_ff d_model",
    ),
    "Convolution and pooling": (
        "convolution",
        "images:batch rows columns channels, kernel:kernel_rows kernel_columns channels filters, b:filters, "
        "w:rows=4 columns=4 filters classes",
    ),
    "A mixture of experts": (
        "experts",
        "x:batch length d_model, w_router:d_model experts, w_in:experts d_model d_ff, w_out:experts d_ff d_model",
    ),
    "A recurrent network": (
        "gru",
        "x:batch length d_in, w_z:d_in hidden, w_r:d_in hidden, w_h:d_in hidden, u_z:hidden hidden_out, "
        "u_r:hidden hidden_out, u_h:hidden hidden_out",
    ),
}
SIZES = {
    "batch": 4, "pixels": 6, "hidden": 8, "hidden_out": 8, "classes": 5, "length": 6, "d_model": 8, "heads": 2,
    "d_kv": 4, "d_ff": 16, "rows": 8, "columns": 8, "channels": 3, "filters": 4, "experts": 4, "d_in": 5,
    "kernel_rows": 3, "kernel_columns": 3,
}  # fmt: skip
NUM_FORMS = 4


def forms(title: str) -> list[str]:
    """The four spellings of a program, in the order of the table's columns, without imports."""
    section = PAGE.read_text().partition(f"## {title}\n")[2].partition("\n## ")[0]
    texts = [re.sub(r"^(import|from) .*\n", "", block.text, flags=re.MULTILINE).strip() for block in blocks_of(section)]
    assert len(texts) == NUM_FORMS
    return texts


def shapes(title: str) -> dict[str, str]:
    pairs = (text.split(":") for text in PROGRAMS[title][1].split(", "))
    return {name: " ".join(sized(dim) for dim in dims.split()) for name, dims in pairs}


def sized(dim: str) -> str:
    return dim.replace("=", ":") if "=" in dim else f"{dim}:{SIZES[dim]}"


def functions(which: int) -> dict[str, Callable[..., Any]]:
    """The programs of one form, which see one another as on the page."""
    names: dict[str, Any] = {"mtf": mtf}
    for title in PROGRAMS:
        exec(compile(forms(title)[which], str(PAGE), "exec"), names)
    return names


@pytest.mark.parametrize("title", PROGRAMS)
def test_both_forms_of_meshtf_are_one_graph(title: str) -> None:
    name = PROGRAMS[title][0]
    new, old = functions(0)[name], functions(1)[name]
    specs = {n: mtf.TensorSpec(shape, tf.int32 if n == "labels" else tf.float32) for n, shape in shapes(title).items()}
    assert_same_graph(lambda given: old(**vars(given)), lambda given: new(**vars(given)), specs)


@pytest.mark.parametrize("title", PROGRAMS)
def test_layouts_change_no_result(title: str) -> None:
    generator, fn = np.random.default_rng(0), functions(0)[PROGRAMS[title][0]]
    inputs: dict[str, tuple[str, np.ndarray]] = {}
    for name, shape in shapes(title).items():
        sizes = mtf.convert_to_shape(shape).to_integer_list
        value = generator.integers(0, SIZES["classes"], sizes) if name == "labels" else generator.normal(size=sizes)
        inputs[name] = (shape, value.astype(np.int32 if name == "labels" else np.float32))

    def program(mesh: mtf.Mesh, **tensors: mtf.Tensor) -> mtf.Tensor:
        return fn(**tensors)

    expected = interpret(program, inputs, "rows:2;cols:2", "").results
    layout = "batch:rows;heads:cols;d_ff:cols;experts:rows+cols;hidden:cols;filters:cols"
    layout = (
        layout.replace("experts:rows+cols", "experts:cols").replace("d_ff:cols;", "") if "experts" in title else layout
    )
    found = interpret(program, inputs, "rows:2;cols:2", layout).results
    # A chain of at most eight sums of at most 64 terms and four functions, over at most six steps of a loop.
    terms = (8 * 64 + 4 * FUNCTION_TERMS) * SIZES["length"]
    assert_close(found, expected, terms=terms, magnitude=float(np.abs(expected).max()) * 64)


def test_lines_and_names_are_counted() -> None:
    rows = re.findall(r"^\| \[(.*?)\]\(#.*?\) \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    assert [title for title, _ in rows] == [title.lower() for title in PROGRAMS]
    for (_, cells), title in zip(rows, PROGRAMS, strict=True):
        assert cells == " | ".join(counted(text) for text in forms(title))
    totals = [
        [sum(int(counted(forms(title)[form]).split(", ")[part]) for title in PROGRAMS) for part in (0, 1)]
        for form in range(NUM_FORMS)
    ]
    assert f"| all six | {' | '.join(f'{lines}, {names}' for lines, names in totals)} |" in PAGE.read_text()


def counted(text: str) -> str:
    """The lines that are not blank, and the different names, as the table has them."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    names = {t.string for t in tokens if t.type == tokenize.NAME and not keyword.iskeyword(t.string)}
    return f"{sum(bool(line.strip()) for line in text.splitlines())}, {len(names)}"
