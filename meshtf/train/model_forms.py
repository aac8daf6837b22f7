"""The variables that a model has, from its gin file alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gin
import tensorflow as tf

import meshtf as mtf
from meshtf.checkpoint.chunks import saved_shape
from meshtf.checkpoint.conversion.optimizer_slots import Sides
from meshtf.checkpoint.formats.tensor_source import described
from meshtf.checkpoint.manifest import SavedTensor
from meshtf.ops.variables.variable import Variable
from meshtf.optimize import AdafactorOptimizer
from meshtf.train.configuration import ConfigurationError, configuration_errors, read_configuration

_LENGTH, _SIDE = 4, 64
_FEATURES = ("inputs", "targets", "targets_prefix", "targets_weights", "labels")
_NO_MODEL = """\
{file} binds no Training.model, as in Training.model = @TransformerLM()"""


def model_forms(file: Path) -> dict[str, SavedTensor]:
    """Returns the shape and type of each weight in a checkpoint of a gin file's model, without optimizer state.

    The model is built over a batch of one short sequence or image, and nothing runs.

    Raises:
      ConfigurationError: if the file binds no model, or one that cannot be made.
    """
    return {name: described(saved_shape(v), v.slice_dtype) for v in _variables(file) for name in v.saved_names}


def factored_sides(file: Path) -> dict[str, Sides | None]:
    """Returns, for each weight of a gin file's model, the dimensions that Adafactor takes means over.

    They are those of Mesh TensorFlow's variant of Adafactor.

    Raises:
      ConfigurationError: as `model_forms`.
    """
    return {name: _sides(variable) for variable in _variables(file) for name in variable.saved_names}


def _sides(variable: Variable) -> Sides | None:
    dims = AdafactorOptimizer(is_mesh_tensorflow_variant=True).factored_dims(variable)
    if dims is None:
        return None
    own = [dim.name for dim in variable.shape if not variable.stacked_dims.has(dim.name)]
    smaller, larger = (tuple(own.index(dim.name) for dim in side) for side in dims)
    return smaller, larger


def model_of(file: Path) -> Any:
    """Returns the model that a gin file binds.

    Raises:
      ConfigurationError: if it binds none, or one that cannot be made.
    """
    read_configuration([file], [])
    with configuration_errors():
        try:
            reference = gin.query_parameter("Training.model")
        except ValueError:
            raise ConfigurationError(_NO_MODEL.format(file=file)) from None
        return reference.scoped_configurable_fn()


def image_shape_of(model: object) -> Sequence[int] | None:
    """The shape of a model's input image, [height, width, channels], or None if it takes no images.

    A model that fixes only the number of channels takes images of any size, so the size is arbitrary.
    """
    channels = getattr(model, "num_channels", None)
    return getattr(model, "image_shape", None if channels is None else (_SIDE, _SIDE, channels))


def image_batch(batch_size: int, image_shape: Sequence[int]) -> mtf.Shape:
    """The shape of several images of a model: [batch, height, width, channels]."""
    names = ("batch", "height", "width", "channels")
    return mtf.Shape(list(zip(names, (batch_size, *image_shape), strict=True)))


def _variables(file: Path) -> list[Variable]:
    model = model_of(file)
    graph = mtf.Graph("model", mtf.VariableDType(tf.float32))
    mesh = mtf.Mesh(graph)
    with graph:
        features = {name: _feature(mesh, name) for name in _FEATURES}
        if (sizes := image_shape_of(model)) is not None:
            features["images"] = mtf.placeholder(mesh, image_batch(1, sizes), tf.float32, name="images")
        model.metrics(features, is_training=False)
    return [v for v in graph.variables.values() if isinstance(v, Variable)]


def _feature(mesh: mtf.Mesh, name: str) -> mtf.Tensor:
    dtype = tf.float32 if name.endswith("_weights") else tf.int32
    shape = "batch:1" if name == "labels" else f"batch:1 length:{_LENGTH}"
    return mtf.placeholder(mesh, shape, dtype, name=name)
