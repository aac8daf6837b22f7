"""Decoders of today with odd but legal settings: the logits of Transformers, at once and token by token, or an error.

`drawn_decoders.json` has the cases that `decoder_configurations.py` names, made by `draw_configurations.py --named`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

import meshtf as mtf
from tests.checkpoint.conversion.drawn_models import tolerance, verdict, write_folder
from tests.checkpoint.conversion.imported_models import interpreted, run
from tests.house.sharpest import sharpest

STORED = {c["name"]: c for c in json.loads((Path(__file__).parent / "drawn_decoders.json").read_text())}
REFUSED = {
    "gemma 3, sees both ways": r"has use_bidirectional_attention = True; models of these rules, gemma3_text, have",
    "falcon rw, alibi": r"has alibi = True; models of these rules, falcon, have False: meshtf has no such model",
    "stablelm, norms of queries": r"has qk_layernorm = True; models of these rules, stablelm, have False",
}
BY_LENGTH = ("llama, dynamic, long", "llama, longrope", "phi 3, longrope, long")
STEPS = 4
STEPPED = ("qwen 3 with experts, one layer without",)
"""Which the short run decodes token by token."""
SHARPEST = (
    "qwen 3 with experts, one layer without",
    "mixtral, a window",
    "gemma 3, ssfss, capped",
    "olmo 3, sssfs, yarn",
    "phi, tied, norms of queries",
    "smollm 3, rrrnr",
    "starcoder 2",
    "falcon 40b",
    "llama, dynamic, long",
    "stablelm, side by side",
    "granite",
    "phi 3, longrope, short",
)
"""One of each family."""
LAYOUTS = {
    "qwen 3, ffs": "batch:rows;heads:cols;d_ff:cols;vocab:cols",
    "qwen 3 with experts, one layer without": "batch:rows;experts:cols;vocab:cols",
    "gemma 3, ssfss, capped": "length:rows;d_kv:cols",
    "llama, dynamic, long": "length:rows;d_kv:cols",
    "olmo 2": "heads:cols;d_kv:rows;vocab:cols",
}


@pytest.mark.parametrize("name", sharpest(STORED, [*REFUSED, *SHARPEST]))
def test_a_decoder_gives_its_logits_or_an_error(name: str, tmp_path: Path) -> None:
    """And what is imported is exported bit for bit."""
    found = verdict(STORED[name], tmp_path)
    if name in REFUSED:
        assert found.startswith("refused")
        assert re.search(REFUSED[name], found, re.DOTALL), found
        return
    assert found == "equal"
    assert run("export", tmp_path / "imported", tmp_path / "exported") == 0
    before, after = (_tensors(tmp_path / folder) for folder in ("source", "exported"))
    assert before.keys() == after.keys()
    assert all(np.array_equal(before[tensor], after[tensor]) for tensor in before)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in STEPPED else [pytest.mark.long])
        for name in STORED
        if name not in (*REFUSED, *BY_LENGTH)
    ],
)
def test_logits_are_the_same_token_by_token(name: str, tmp_path: Path) -> None:
    """From nothing. Where frequencies depend on the length, they are those of the length so far: logits are others."""
    case = STORED[name]
    write_folder(case, tmp_path / "source")
    assert run("import", tmp_path / "source", tmp_path / "imported") == 0
    ids, known = np.array(case["input_ids"], np.int32), np.array(case["logits"])
    known = known.reshape(*ids.shape, -1)[:, :STEPS]
    logits = interpreted(tmp_path / "imported", {"targets": ids[:, :STEPS]}, _steps)[..., : known.shape[-1]]
    np.testing.assert_allclose(logits, known, atol=tolerance(case), rtol=0)


@pytest.mark.parametrize("name", sharpest(LAYOUTS, ["qwen 3 with experts, one layer without"]))
def test_a_layout_changes_no_logits(name: str, tmp_path: Path) -> None:
    case = STORED[name]
    write_folder(case, tmp_path / "source")
    assert run("import", tmp_path / "source", tmp_path / "imported") == 0
    ids, known = np.array(case["input_ids"], np.int32), np.array(case["logits"])
    targets = {"targets": np.concatenate([ids[:, 1:], np.zeros_like(ids[:, :1])], 1)}
    logits = interpreted(
        tmp_path / "imported", targets, lambda model, x: model.logits(x, False), "rows:2;cols:2", LAYOUTS[name]
    )
    found = logits[..., : known.shape[-1]].reshape(known.shape)
    np.testing.assert_allclose(found, known, atol=tolerance(case), rtol=0)


def _steps(model: Any, given: Mapping[str, mtf.Tensor]) -> mtf.Tensor:
    """Logits [batch, length, vocab], decoded one after the other."""
    ids = given["targets"]
    batch, length = ids.shape
    decoder = model.incremental_decoder({})
    state = decoder.start(ids.mesh, mtf.Shape([batch]), length.size, tf.float32)
    logits = []
    for number in range(length.size):
        position = mtf.constant(ids.mesh, number, dtype=tf.int32)
        tokens = mtf.reshape(mtf.slice(ids, number, 1, length.name), [batch])
        found, state = decoder.step(tokens, position, position, state)
        logits.append(found)
    return mtf.stack(logits, length.name, 1)


def _tensors(folder: Path) -> dict[str, np.ndarray]:
    return safetensors.numpy.load_file(folder / "model.safetensors")
