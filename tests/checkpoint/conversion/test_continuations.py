"""Tokens and scores of greedy decoding and beam search are those of Transformers, whose they are stored."""

from __future__ import annotations

import importlib.util
import itertools
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshtf as mtf
from meshtf.train.decoding import Decoding, Prompts, Stops
from meshtf.train.decoding.programs import decoded
from tests.checkpoint.conversion.imported_models import MODELS, all_interpreted, run
from tests.house.sharpest import sharpest

FOLDER = Path(__file__).parent
STORED = json.loads((FOLDER / "continuations.json").read_text())
NAMES = sorted({case["model"] for case in STORED})
MOST = 8

Case = Mapping[str, Any]


def decoding_of(settings: Mapping[str, Any]) -> Decoding:
    own = dict(settings)
    options: dict[str, Any] = {"end_ids": own.pop("eos_token_id"), "max_new_tokens": own.pop("max_new_tokens")}
    if "num_beams" in own:
        options |= {"method": "beam", "beam_rules": "transformers", "beam_size": own.pop("num_beams")}
    return Decoding(**options, **own)


def all_are_equal(name: str, cases: list[Case], imported: Path) -> None:
    """All cases of a model, in one program."""
    is_pair = name == "t5"

    def program(model: Any, given: Mapping[str, mtf.Tensor]) -> list[mtf.Tensor]:
        results = []
        for case in cases:
            decoding, prompt = decoding_of(case["settings"]), [] if is_pair else case["prompt"]
            batch, length = mtf.Dimension("batch", 1), mtf.Dimension("length", len(prompt) + MOST)
            mesh = given["targets"].mesh
            ids = mtf.constant(mesh, np.array([[*prompt, *[0] * MOST]], np.int32), [batch, length], np.int32)
            lengths = mtf.constant(mesh, np.array([len(prompt)], np.int32), [batch], np.int32)
            prompts = Prompts(ids, lengths, lengths + (decoding.max_new_tokens or 0))
            inputs = np.array([case["prompt"]], np.int32)
            features = (
                {"inputs": mtf.constant(mesh, inputs, [batch, ("length", inputs.shape[1])], np.int32)}
                if is_pair
                else {}
            )
            found = decoded(model, features, prompts, decoding, Stops(tuple(decoding.end_ids or ())))
            results += [found.ids, found.lengths, found.scores]
        return results

    targets = {"targets": np.zeros([1, MOST], np.int32)}
    begins = [] if is_pair else ["TransformerLM.starts_prompts = False"]  # the stored models have no tokenizers
    found = all_interpreted(imported, targets, program, parameters=begins)
    for number, case in enumerate(cases):
        ids, lengths, scores = (np.atleast_2d(x[0]) for x in found[3 * number : 3 * number + 3])
        begin = 0 if is_pair else len(case["prompt"])
        rows = [row[begin:end].tolist() for row, end in zip(ids, lengths.ravel(), strict=True)]
        assert rows == case["ids"], case
        if case["scores"]:
            np.testing.assert_allclose(scores.ravel(), case["scores"], rtol=2e-5, atol=2e-5, err_msg=str(case))


USUAL = {
    "gpt2": ([5, 6, 9], [True, False, "never"]),
    "llama": ([8], [None, True]),
    "t5": ([8], [False]),
}
"""The prompt of a model, and the early stopping of some cases, None being greedy; the others are for long tests."""


def usual(case: Case) -> bool:
    prompt, early_stopping = USUAL[case["model"]]
    own = case["settings"]
    return (
        case["prompt"] == prompt and own.get("early_stopping") in early_stopping and own.get("length_penalty") != -1.0
    )


@pytest.mark.parametrize(("name", "are_usual"), sharpest(itertools.product(NAMES, [True, False]), [("t5", True)]))
def test_continuations_are_those_of_transformers(name: str, are_usual: bool, tmp_path: Path) -> None:
    assert run("import", MODELS / name, tmp_path / "imported") == 0
    cases = [case for case in STORED if case["model"] == name and usual(case) == are_usual]
    all_are_equal(name, cases, tmp_path / "imported")


@pytest.mark.long
def test_other_continuations_are_those_of_transformers(seed: int, tmp_path: Path) -> None:
    for package in ("torch", "transformers"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package}, of the extra test-transformers, is not installed")
    command = [sys.executable, FOLDER / "make_continuations.py", f"--seed={seed}", tmp_path / "drawn.json"]
    subprocess.run(command, capture_output=True, check=True, timeout=600)
    drawn = json.loads((tmp_path / "drawn.json").read_text())
    for name in NAMES:
        assert run("import", MODELS / name, tmp_path / name) == 0
        all_are_equal(name, [case for case in drawn if case["model"] == name], tmp_path / name)
