"""Stored models of other libraries, imported, and what meshtf's interpreter makes of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gin
import numpy as np
import tensorflow as tf

import meshtf as mtf
from meshtf.bin.checkpoint import main
from meshtf.checkpoint.conversion.imported_folder import ImportedFolder
from meshtf.checkpoint.reading.saved_checkpoint import SavedCheckpoint
from meshtf.ops.variables.variable import Variable
from meshtf.testing import interpret_graph
from meshtf.train.configuration import read_configuration
from tests.layers.chosen_values import start_as

MODELS = Path(__file__).parent / "models"

DIMS = {2: ("batch", "length"), 4: ("batch", "height", "width", "channels")}
"""The dimensions of texts, and of images."""

Features = Mapping[str, np.ndarray]


def expected(name: str) -> dict[str, np.ndarray]:
    """The ids that a stored model was fed, and the logits that it gave."""
    content = json.loads((MODELS / name / "expected.json").read_text())
    return {key: np.array(value, np.float32 if key == "logits" else np.int32) for key, value in content.items()}


def run(*arguments: object) -> int:
    """meshtf-checkpoint, in this process."""
    return main(["meshtf-checkpoint", *map(str, arguments)])


def configured(folder: Path, *parameters: str) -> Any:
    """The model of an imported folder."""
    read_configuration([ImportedFolder(folder).model_gin], parameters)
    try:
        return gin.query_parameter("Training.model").scoped_configurable_fn()
    finally:
        gin.clear_config()


def interpreted(
    folder: Path,
    features: Features,
    program: Callable[[Any, Mapping[str, mtf.Tensor]], mtf.Tensor],
    mesh_shape: str = "rows:1",
    layout: str = "",
    parameters: Sequence[str] = (),
) -> np.ndarray:
    """What a program makes of texts or images, with the weights of an imported folder."""

    def only(model: Any, given: Mapping[str, mtf.Tensor]) -> list[mtf.Tensor]:
        return [program(model, given)]

    return all_interpreted(folder, features, only, mesh_shape, layout, parameters)[0]


def all_interpreted(
    folder: Path,
    features: Features,
    program: Callable[[Any, Mapping[str, mtf.Tensor]], Sequence[mtf.Tensor]],
    mesh_shape: str = "rows:1",
    layout: str = "",
    parameters: Sequence[str] = (),
) -> Sequence[np.ndarray]:
    """As `interpreted`, of a program of several results."""
    # Unrolled, each variable is one tensor of the checkpoint.
    model = configured(folder, "TransformerStack.unroll = True", *parameters)
    saved = SavedCheckpoint.open(ImportedFolder(folder).checkpoint)
    graph = mtf.Graph("program", mtf.VariableDType(tf.float32))
    mesh = mtf.Mesh(graph)
    with graph:
        shapes = {name: mtf.Shape(list(zip(DIMS[x.ndim], x.shape, strict=True))) for name, x in features.items()}
        given = {n: mtf.placeholder(mesh, shapes[n], tf.as_dtype(x.dtype), name=n) for n, x in features.items()}
        results = program(model, given)
    for variable in graph.variables.values():
        assert isinstance(variable, Variable)
        start_as(variable, saved.read(variable.full_name).numpy())
    return interpret_graph(graph, results, features, mesh_shape, layout).results
