"""Drawn models of Transformers, imported, beside the logits that Transformers gave; see draw_configurations.py.

    python -m tests.checkpoint.conversion.drawn_models drawn_models.json

says of each whether logits are equal, or the import refused, and ends with status 1 where any logits differ.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from tests.checkpoint.conversion.drawn_tensors import values_of
from tests.checkpoint.conversion.families.encoder_configurations import ENCODERS
from tests.checkpoint.conversion.imported_models import interpreted, run

Case = Mapping[str, Any]


def write_folder(case: Case, folder: Path) -> None:
    """Writes configuration and weights as Transformers opened them."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(case["config"]))
    tensors = {name: values_of(drawn_by, shape) for name, (shape, drawn_by) in case["tensors"].items()}
    safetensors.numpy.save_file(tensors, folder / "model.safetensors")


def verdict(case: Case, folder: Path, mesh_shape: str = "rows:1", layout: str = "") -> str:
    """Imports a case: "equal", "refused: why", "not opened" by Transformers, or "differs: by how much"."""
    write_folder(case, folder / "source")
    told = io.StringIO()
    with contextlib.redirect_stderr(told), contextlib.redirect_stdout(io.StringIO()):
        status = run("import", folder / "source", folder / "imported")
    if status != 0:
        return f"refused: {told.getvalue().strip()}"
    if case["logits"] is None:
        return "not opened"
    features = _features(case)
    logits = interpreted(folder / "imported", features, lambda model, x: model.logits(x, False), mesh_shape, layout)
    known = np.array(case["logits"])
    found = logits[..., : known.shape[-1]].reshape(known.shape)
    is_token = np.ravel(case.get("attention_mask", [])) != 0
    if "decoder_input_ids" not in case and len(is_token) == len(known):  # padding has logits, which mean nothing
        known, found = known[is_token], found[is_token]
    error = np.abs(found - known).max()
    return "equal" if error <= tolerance(case) else f"differs: {error:.3g} of {np.abs(known).max():.3g}"


def tolerance(case: Case) -> float:
    """By how much float32 logits may differ from those of Transformers in float64: 1e-5 of the largest.

    A norm over two numbers that are nearly 0, or a sum that cancels, makes one rounding much larger. Where it does so,
    Transformers' float32 shows it as ours does. Both round at random, so ours may err twice as much as theirs.

    A soft cap brings down large logits, and leaves small ones with the rounding of sums as large as the largest before
    the cap. Where a logit is as large as the cap, its eight digits say that it was eight caps at least.
    """
    largest, cap = np.abs(case["logits"]).max(), case["config"].get("final_logit_softcapping")
    if cap:
        largest = cap * np.arctanh(min(largest / cap, 1 - 2.0**-23))
    return max(1e-5 * max(largest, 1.0), 2.0 * case["float32_error"])


def _features(case: Case) -> dict[str, np.ndarray]:
    inputs = np.array(case["input_ids"], np.int32)
    if "decoder_input_ids" in case:
        return {"inputs": inputs, "targets": _after(np.array(case["decoder_input_ids"], np.int32))}
    return {"inputs": inputs} if case["config"]["model_type"] in ENCODERS else {"targets": _after(inputs)}


def _after(ids: np.ndarray) -> np.ndarray:
    return np.concatenate([ids[:, 1:], np.zeros_like(ids[:, :1])], axis=1)


def main(path: str) -> int:
    counts: Counter[str] = Counter()
    for case in json.loads(Path(path).read_text()):
        with tempfile.TemporaryDirectory() as folder:
            try:
                found = verdict(case, Path(folder))
            except Exception as error:  # the next case is another
                found = f"failed: {type(error).__name__}: {str(error)[:300]}"
        counts[found.partition(":")[0]] += 1
        print(f"{case['name']}: {found}", flush=True)
    print(dict(counts))
    return int(counts["differs"] + counts["failed"] > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
