"""Residual networks are those of Transformers and torchvision, on one core and in parts, and go back as they were."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from meshtf.checkpoint.conversion.family import find_family
from tests.checkpoint.conversion.drawn_models import tolerance
from tests.checkpoint.conversion.drawn_tensors import images_of, weights_of
from tests.checkpoint.conversion.imported_models import interpreted, run
from tests.house.sharpest import sharpest

STORED = {case["name"]: case for case in json.loads((Path(__file__).parent / "drawn_resnet.json").read_text())}
LAYOUTS = {"bottleneck": "height:rows;width:cols", "resnet18": "batch:rows;height:cols"}
"""The height is 64 and the width 60, so that cores have windows that begin at odd places, and rows of padding."""

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "first stage": (
        {"downsample_in_first_stage": True},
        r"has downsample_in_first_stage = True; models of these rules",
    ),
    "activation": ({"hidden_act": "gelu"}, r"has hidden_act = 'gelu'; models of these rules, resnet, have 'relu'"),
    "sizes": (
        {"hidden_sizes": [16, 32, 64, 96]},
        r"hidden_sizes = \[16, 32, 64, 96\], .* twice the filters of the one before, \[16, 32, 64, 128\]: "
        r"meshtf has no such model",
    ),
    "stages": ({"depths": [1, 1, 1]}, r"depths = \[1, 1, 1\], .* have four stages"),
    "block": ({"layer_type": "wide"}, r"has layer_type = 'wide', and these rules know basic, bottleneck"),
    "backbone": ({"architectures": ["ResNetBackbone"]}, r"architectures\.0 = 'ResNetBackbone'"),
    "key": ({"replace_stride": 2}, r"has replace_stride = 2, which the rules resnet\.toml do not know"),
}


def write(case: Mapping[str, Any], folder: Path) -> None:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(case["config"]))
    tensors = {name: weights_of(name, shape) for name, shape in case["tensors"].items()}
    safetensors.numpy.save_file(tensors, folder / "model.safetensors")


@pytest.mark.parametrize("name", sharpest(STORED, ["bottleneck", "basic, grey"]))
def test_logits_are_those_of_pytorch_and_weights_go_back(name: str, tmp_path: Path) -> None:
    case = STORED[name]
    write(case, tmp_path / "source")
    assert run("import", tmp_path / "source", tmp_path / "imported") == 0
    images = np.moveaxis(images_of(case["config"].get("num_channels", 3)), 1, -1)
    layouts = {"": "rows:1", **({LAYOUTS[name]: "rows:2;cols:2"} if name in LAYOUTS else {})}
    for layout, mesh_shape in layouts.items():
        found = interpreted(
            tmp_path / "imported",
            {"images": images},
            lambda model, x: model.logits(x["images"], False),
            mesh_shape,
            layout,
        )
        np.testing.assert_allclose(found, case["logits"], rtol=0, atol=tolerance(case))
    assert run("export", tmp_path / "imported", tmp_path / "exported") == 0
    before, again = (safetensors.numpy.load_file(tmp_path / f / "model.safetensors") for f in ("source", "exported"))
    assert {n: x.tobytes() for n, x in again.items()} == {n: x.tobytes() for n, x in before.items()}


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_that_there_is_not_is_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changes, told = REFUSED[name]
    case = STORED["bottleneck"]
    write({**case, "config": case["config"] | changes}, tmp_path / "source")
    assert run("import", tmp_path / "source", tmp_path / "imported") == 2
    error = capsys.readouterr().err
    assert re.search(told, error), error
    assert not (tmp_path / "imported").exists()


def test_networks_of_torchvision_without_rules_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = STORED["resnet18"]
    write({**case, "config": {"architecture": "resnet50d"}}, tmp_path / "source")
    assert run("import", tmp_path / "source", tmp_path / "imported") == 2
    assert "there are no rules for models of type 'resnet50d'; did you mean" in capsys.readouterr().err
    write({**case, "config": {"architecture": "resnet34"}}, tmp_path / "other")
    assert run("import", tmp_path / "other", tmp_path / "imported") == 2
    assert re.search(r"layer1\.2\.\w+\.weight", capsys.readouterr().err)


def test_keys_of_published_configurations_are_known() -> None:
    """Of microsoft/resnet-50 and timm/resnet50.tv_in1k."""
    published = {"depths": [3, 4, 6, 3], "model_type": "resnet", "torch_dtype": "float32", "hidden_act": "relu"}
    find_family("huggingface", "resnet").check_keys({**STORED["bottleneck"]["config"], **published}, (), "config.json")
    timm = {"architecture": "resnet50", "num_classes": 1000, "num_features": 2048, "global_pool": "avg"}
    timm["pretrained_cfg"] = {"tag": "tv_in1k", "mean": [0.485], "pool_size": [7, 7]}
    find_family("huggingface", "resnet50").check_keys(timm, (), "config.json")
