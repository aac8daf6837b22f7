"""A Vision Transformer under torchvision's names is PyTorch's, on one core and in parts, and goes back as it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from meshtf.checkpoint.conversion.family import find_family
from tests.checkpoint.conversion.drawn_models import tolerance
from tests.checkpoint.conversion.drawn_tensors import square_images, weights_of
from tests.checkpoint.conversion.imported_models import interpreted, run

STORED: dict[str, Any] = json.loads((Path(__file__).parent / "drawn_torchvision_vit.json").read_text())
OLD_NAMES = {".mlp.0.": ".mlp.linear_1.", ".mlp.3.": ".mlp.linear_2."}


def write(folder: Path, *, old_names: bool = False, **changes: object) -> None:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(STORED["config"] | changes))
    tensors = {name: weights_of(name, shape) for name, shape in STORED["tensors"].items()}
    for new, old in OLD_NAMES.items() if old_names else ():
        tensors = {name.replace(new, old): value for name, value in tensors.items()}
    safetensors.numpy.save_file(tensors, folder / "model.safetensors")


def test_logits_are_those_of_pytorch_and_weights_go_back(tmp_path: Path) -> None:
    """Under the names of older files, too, which an export does not keep."""
    images = np.moveaxis(square_images(STORED["config"]["image_size"]), 1, -1)
    for name in ("today", "old"):
        write(tmp_path / name, old_names=name == "old")
        assert run("import", tmp_path / name, tmp_path / f"{name}_here") == 0
        for mesh_shape, layout in (("rows:1", ""), ("rows:2;cols:2", "batch:rows;heads:cols;d_ff:cols")):
            found = interpreted(
                tmp_path / f"{name}_here",
                {"images": images},
                lambda model, x: model.logits(x["images"], False),
                mesh_shape,
                layout,
            )
            np.testing.assert_allclose(found, STORED["logits"], rtol=0, atol=tolerance(STORED))
        assert run("export", tmp_path / f"{name}_here", tmp_path / f"{name}_back") == 0
        before, again = (
            safetensors.numpy.load_file(tmp_path / folder / "model.safetensors") for folder in ("today", f"{name}_back")
        )
        assert {n: x.tobytes() for n, x in again.items()} == {n: x.tobytes() for n, x in before.items()}


def test_sizes_that_the_weights_do_not_have_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The published weights of 384 x 384 need their `image_size` in the configuration."""
    write(tmp_path / "source", image_size=48)
    assert run("import", tmp_path / "source", tmp_path / "here") == 2
    assert "encoder.pos_embedding" in capsys.readouterr().err


def test_architectures_have_their_published_sizes() -> None:
    form = find_family("huggingface", "vit_h_14").form
    sizes = {name: form.read({"architecture": name}, "") for name in ("vit_b_32", "vit_l_16", "vit_h_14")}
    keys = ("patch_size", "num_layers", "num_heads", "hidden_dim", "mlp_dim", "image_size")
    assert [[sizes[name][key] for key in keys] for name in sizes] == [
        [32, 12, 12, 768, 3072, 224],
        [16, 24, 16, 1024, 4096, 224],
        [14, 32, 16, 1280, 5120, 224],
    ]
