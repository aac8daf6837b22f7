"""Vision Transformers are those of Transformers, and go back as they were."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import gin
import numpy as np
import pytest
import safetensors.numpy

import meshtf as mtf
from meshtf.checkpoint.conversion.family import find_family
from meshtf.checkpoint.conversion.imported_folder import ImportedFolder
from meshtf.errors import ShapeError
from meshtf.train.configuration import ConfigurationError, check_every_binding_is_read, read_configuration
from meshtf.train.model_forms import image_batch
from tests.checkpoint.conversion.drawn_models import tolerance, write_folder
from tests.checkpoint.conversion.imported_models import interpreted, run

STORED = {case["name"]: case for case in json.loads((Path(__file__).parent / "drawn_vit.json").read_text())}
REFUSED = {
    "vit, no biases": r"has qkv_bias = False; models of these rules, vit, have True",
    "vit, without a head": r"has architectures\.0 = 'ViTModel', and these rules know ViTForImageClassification",
    "vit, sides of two sizes": r"lacks image_size / patch_size \* image_size / patch_size \+ 1, from which num_tokens",
}


def images_of(case: dict[str, Any]) -> np.ndarray:
    """The images [2, height, width, channels] of a case."""
    size, channels = case["config"]["image_size"], case["config"].get("num_channels", 3)
    given = np.array(case["pixel_values"], np.float32).reshape(2, channels, size, size)
    return np.moveaxis(given, 1, -1)


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_that_there_is_not_is_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_folder(STORED[name], tmp_path / "source")
    assert run("import", tmp_path / "source", tmp_path / "imported") == 2
    told = capsys.readouterr().err
    assert re.search(REFUSED[name], told), told


@pytest.mark.parametrize("name", [name for name in STORED if name not in REFUSED])
def test_logits_are_those_of_transformers_and_weights_go_back(name: str, tmp_path: Path) -> None:
    case = STORED[name]
    write_folder(case, tmp_path / "source")
    assert run("import", tmp_path / "source", tmp_path / "imported") == 0
    images, expected = images_of(case), np.array(case["logits"])
    for mesh_shape, layout in (("rows:1", ""), ("rows:2;cols:2", "batch:rows;heads:cols;d_ff:cols")):
        found = interpreted(
            tmp_path / "imported",
            {"images": images},
            lambda model, x: model.logits(x["images"], False),
            mesh_shape,
            layout,
        )
        np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance(case))
    assert run("export", tmp_path / "imported", tmp_path / "exported") == 0
    before, again = (safetensors.numpy.load_file(tmp_path / f / "model.safetensors") for f in ("source", "exported"))
    assert {n: x.tobytes() for n, x in again.items()} == {n: x.tobytes() for n, x in before.items()}


def test_whatever_the_gin_file_says_is_read_and_other_images_are_refused(tmp_path: Path) -> None:
    write_folder(STORED["vit"], tmp_path / "source")
    assert run("import", tmp_path / "source", tmp_path / "imported") == 0
    read_configuration([ImportedFolder(tmp_path / "imported").model_gin], [])
    try:
        model = gin.query_parameter("Training.model").scoped_configurable_fn()
        graph = mtf.Graph()
        mesh = mtf.Mesh(graph)
        with graph:
            model.logits(mtf.zeros(mesh, image_batch(2, model.image_shape)), True)
            with pytest.raises(ShapeError, match=r"height:8 .* do not have the sizes of image_shape, \(12, 12, 3\)"):
                model.logits(mtf.zeros(mesh, image_batch(2, (8, 12, 3))), True)
        with pytest.raises(ConfigurationError, match=r"nothing reads this binding:\n  Training\.model"):  # none is made
            check_every_binding_is_read()
    finally:
        gin.clear_config()


def test_keys_of_published_configurations_are_known() -> None:
    """Of google/vit-base-patch16-224 and facebook/deit-small-patch16-224."""
    published = {
        "_name_or_path": "google/vit-base-patch16-224-in21k",
        "attention_probs_dropout_prob": 0.0,
        "encoder_stride": 16,
        "pooler_act": "tanh",
        "pooler_output_size": 768,
        "torch_dtype": "float32",
        "transformers_version": "4.13.0.dev0",
        "initializer_range": 0.02,
    }
    family = find_family("huggingface", "vit")
    configuration = STORED["vit"]["config"] | published
    family.check_keys(configuration, (), "config.json")
    assert family.model(configuration, {}, "config.json").settings["num_tokens"] == 10
