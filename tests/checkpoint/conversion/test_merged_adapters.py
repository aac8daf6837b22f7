"""What is exported of a model with low-rank adapters computes what the model does; adapters are saved apart."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from meshtf.checkpoint._box import Box
from meshtf.checkpoint.conversion.imported_folder import ImportedFolder
from meshtf.checkpoint.conversion.merged_adapters import MergedAdapters
from meshtf.checkpoint.formats.tensor_source import write_source
from meshtf.checkpoint.reading.saved_checkpoint import SavedCheckpoint
from tests.checkpoint.conversion.imported_models import MODELS, expected, interpreted, run
from tests.checkpoint.conversion.test_converted import Arrays
from tests.checkpoint.conversion.test_importing import features

SETTINGS = ["AttentionConfig.low_rank = @LowRank()", "LowRank.rank = 2", 'LowRank.projections = ("q", "o")']
LAYER = "decoder/layer_{:03d}/self_attention"


def with_adapters(folder: Path) -> None:
    """Random adapters of the queries and outputs of a stored GPT-2, in its imported checkpoint."""
    path = ImportedFolder(folder).checkpoint
    saved = SavedCheckpoint.open(path)
    arrays = {name: saved.read(name).numpy() for name in saved.tensors}
    generator = np.random.default_rng(0)
    for scope in map(LAYER.format, range(2)):
        for name, first, last in (("q", [8, 2], [2, 2, 4]), ("o", [2, 4, 2], [2, 8])):
            arrays[f"{scope}/{name}_lora_a"] = generator.normal(size=first).astype(np.float32)
            arrays[f"{scope}/{name}_lora_b"] = generator.normal(size=last).astype(np.float32)
            arrays[f"{scope}/{name}_lora_scale"] = np.array(0.25, np.float32)
    shutil.rmtree(path)
    write_source(Arrays(arrays), path)


def test_an_export_has_the_sum_of_kernel_and_adapter(tmp_path: Path) -> None:
    given = features(expected("gpt2"))
    assert run("import", MODELS / "gpt2", tmp_path / "imported") == 0
    plain = interpreted(tmp_path / "imported", given, lambda model, x: model.logits(x, False))
    with_adapters(tmp_path / "imported")
    for mesh_shape, layout in (("rows:1", ""), ("rows:2;cols:2", "lora_rank:rows;heads:cols")):
        adapted = interpreted(
            tmp_path / "imported", given, lambda model, x: model.logits(x, False), mesh_shape, layout, SETTINGS
        )
        assert np.abs(adapted - plain)[..., :20].max() > 0.1
        if mesh_shape == "rows:1":
            assert run("export", tmp_path / "imported", tmp_path / "exported") == 0
            assert run("import", tmp_path / "exported", tmp_path / "again") == 0
            merged = interpreted(tmp_path / "again", given, lambda model, x: model.logits(x, False))
        np.testing.assert_allclose(adapted[..., :20], merged[..., :20], rtol=1e-5, atol=1e-5)


def test_adapters_are_saved_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("import", MODELS / "gpt2", tmp_path / "imported") == 0
    with_adapters(tmp_path / "imported")
    output = tmp_path / "adapters.safetensors"
    assert run("convert", tmp_path / "imported", f"--output={output}", "--pattern=_lora_") == 0
    names = {f"{LAYER.format(n)}/{k}_lora_{part}" for n in range(2) for k in "qo" for part in ("a", "b", "scale")}
    assert safetensors.numpy.load_file(output).keys() == names
    assert run("convert", tmp_path / "imported", f"--output={tmp_path / 'b.npz'}", "--pattern=nothing") == 2
    assert "no tensor of" in capsys.readouterr().err


def test_parts_of_a_sum_are_those_of_the_whole() -> None:
    generator = np.random.default_rng(1)
    shapes = {
        "w": [3, 4, 5],
        "w_lora_a": [3, 4, 2],
        "w_lora_b": [2, 5],
        "w_lora_scale": [],
        "w_lora_a/adam_m": [3, 4, 2],
    }
    arrays = {name: generator.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    source = Arrays({**arrays, "v": np.ones([2], np.float32)})
    merged = MergedAdapters(source)
    assert sorted(merged.tensors) == ["v", "w"]
    whole = arrays["w"] + arrays["w_lora_scale"] * np.tensordot(arrays["w_lora_a"], arrays["w_lora_b"], axes=1)
    for box in (Box.whole((3, 4, 5)), Box((1, 0, 2), (2, 3, 1)), Box((2, 3, 0), (1, 1, 5))):
        # A product of two terms and a sum in float64, then one rounding.
        np.testing.assert_allclose(merged.read("w", box), whole[box.slices], rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(merged.read("v"), source.arrays["v"])
