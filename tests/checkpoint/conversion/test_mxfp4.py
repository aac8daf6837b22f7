"""Blocks of numbers of four bits are the numbers that their standard says, whole and in part, and import as such."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

from meshtf.checkpoint._box import Box
from meshtf.checkpoint.conversion.huggingface import HuggingFaceFolder
from meshtf.checkpoint.conversion.mxfp4 import Mxfp4Source, without_blocks
from meshtf.errors import CheckpointError
from tests.checkpoint.conversion.drawn_models import write_folder
from tests.checkpoint.conversion.families.test_encoder_families import STORED
from tests.checkpoint.conversion.imported_models import run

EXPERTS, OUTPUTS, BLOCKS = 2, 3, 2
SAID = {"quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}, "hidden_size": 8}


def number(half: int) -> float:
    """The number that four bits are: a sign, two bits of an exponent of bias 1, one bit of a fraction."""
    sign, exponent, fraction = half >> 3, half >> 1 & 3, half & 1
    size = fraction * 0.5 if exponent == 0 else (1 + fraction * 0.5) * 2.0 ** (exponent - 1)
    return -size if sign else size


def write(folder: Path, scales_of: int = 3) -> tuple[np.ndarray, np.ndarray]:
    folder.mkdir()
    generator = np.random.default_rng(0)
    blocks = generator.integers(0, 256, [EXPERTS, OUTPUTS, BLOCKS, 16]).astype(np.uint8)
    scales = generator.integers(120, 135, [EXPERTS, OUTPUTS, BLOCKS]).astype(np.uint8)
    (folder / "config.json").write_text(json.dumps(SAID))
    tensors = {"x_blocks": blocks, "x_scales": scales[:, :scales_of].copy(), "other": np.ones(3, np.float32)}
    safetensors.numpy.save_file(tensors, folder / "model.safetensors")
    return blocks, scales


def test_each_number_is_a_value_times_a_power_of_two(tmp_path: Path) -> None:
    blocks, scales = write(tmp_path / "source")
    folder = HuggingFaceFolder.open(tmp_path / "source")
    configuration, source = without_blocks(folder.configuration, folder)
    assert configuration == {"hidden_size": 8}
    assert source.tensors["x"].shape == (EXPERTS, BLOCKS * 32, OUTPUTS)
    assert source.tensors["x"].dtype == tf.bfloat16
    assert sorted(source.tensors) == ["other", "x"]
    known = np.zeros([EXPERTS, BLOCKS * 32, OUTPUTS])
    for expert, place, output in np.ndindex(*known.shape):
        block, within = divmod(place, 32)
        byte = int(blocks[expert, output, block, within // 2])
        half = byte >> 4 if within % 2 else byte & 15
        known[expert, place, output] = number(half) * 2.0 ** (int(scales[expert, output, block]) - 127)
    np.testing.assert_array_equal(tf.cast(source.read("x"), tf.float64).numpy(), known)
    part = source.read("x", Box((1, 30, 1), (1, 5, 2)))
    np.testing.assert_array_equal(tf.cast(part, tf.float64).numpy(), known[1:, 30:35, 1:])
    np.testing.assert_array_equal(source.read("other").numpy(), np.ones(3))


def test_each_number_is_that_of_transformers(tmp_path: Path) -> None:
    """Bit for bit: of all bytes, and scales from the smallest to the largest (see decoders/draw_mxfp4.py)."""
    known = json.loads((Path(__file__).parent / "decoders" / "drawn_mxfp4.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(SAID))
    blocks = np.arange(256, dtype=np.uint8).reshape(2, 4, 2, 16)
    scales = np.array(known["scales"], np.uint8).reshape(2, 4, 2)
    safetensors.numpy.save_file({"x_blocks": blocks, "x_scales": scales}, tmp_path / "model.safetensors")
    found = Mxfp4Source.of(HuggingFaceFolder.open(tmp_path)).read("x")
    assert found.shape == known["shape"]
    np.testing.assert_array_equal(np.ravel(tf.bitcast(found, tf.uint16).numpy()), known["bits"])


def test_blocks_that_do_not_fit_are_told(tmp_path: Path) -> None:
    write(tmp_path / "source", scales_of=2)
    with pytest.raises(
        CheckpointError, match=r"the weights have x_blocks \[2, 3, 2, 16\] uint8, and x_scales \[2, 2, 2\]"
    ):
        Mxfp4Source.of(HuggingFaceFolder.open(tmp_path / "source"))


def test_a_model_in_blocks_is_imported_and_exported_in_bfloat16(tmp_path: Path) -> None:
    """Of the size of a block, which the stored model has not."""
    case = STORED["gpt-oss"]
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "layer_types": ["full_attention"]}
    wide = {8: 32, 12: 32, 24: 64}
    tensors = {
        name: [
            [wide.get(size, size) if number or "proj" not in name else size for number, size in enumerate(shape)],
            own,
        ]
        for name, (shape, own) in case["tensors"].items()
        if "layers.1." not in name
    }
    for name, (shape, _) in tensors.items():
        if "self_attn" in name and name.endswith("weight"):
            shape[:] = [32, shape[1]] if "o_proj" in name else [shape[0], 32]
        elif name.endswith(("norm.weight", "o_proj.bias")):
            shape[:] = [32]
    write_folder(
        {"config": {**case["config"], **sizes, **SAID, "hidden_size": 32}, "tensors": tensors}, tmp_path / "source"
    )
    file = tmp_path / "source" / "model.safetensors"
    found = safetensors.numpy.load_file(file)
    generator = np.random.default_rng(0)
    for name in [name for name in found if name.endswith(("gate_up_proj", "down_proj"))]:
        experts, _, outputs = found.pop(name).shape
        found[f"{name}_blocks"] = generator.integers(0, 256, [experts, outputs, 1, 16]).astype(np.uint8)
        found[f"{name}_scales"] = generator.integers(120, 128, [experts, outputs, 1]).astype(np.uint8)
    safetensors.numpy.save_file(found, file)
    assert run("import", tmp_path / "source", tmp_path / "imported") == 0
    assert run("export", tmp_path / "imported", tmp_path / "exported") == 0
    assert "quantization_config" not in json.loads((tmp_path / "exported" / "config.json").read_text())
    exported = HuggingFaceFolder.open(tmp_path / "exported")
    name = "model.layers.0.mlp.experts.down_proj"
    plain = Mxfp4Source.of(HuggingFaceFolder.open(tmp_path / "source"))
    assert exported.tensors[name].dtype == tf.bfloat16
    np.testing.assert_array_equal(exported.read(name).numpy(), plain.read(name).numpy())
