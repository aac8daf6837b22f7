"""What variables a model has, from its gin file alone."""

from __future__ import annotations

from pathlib import Path

import gin
import tensorflow as tf

import meshtf as mtf
from meshtf.checkpoint._chunks import saved_shape
from meshtf.checkpoint.formats.tensor_source import described
from meshtf.checkpoint.manifest import SavedTensor
from meshtf.ops.variables.variable import Variable
from meshtf.train.configuration import ConfigurationError, configuration_errors, read_configuration

_LENGTH = 4
_FEATURES = ("inputs", "targets", "targets_prefix", "targets_weights", "labels")
_NO_MODEL = """\
{file} binds no Training.model, as in Training.model = @TransformerLM()"""


def model_forms(file: Path) -> dict[str, SavedTensor]:
    """Shape and type of each tensor that a checkpoint of a gin file's model has: of its weights, not of an optimizer.

    The model is built over a batch of one short sequence, and nothing runs.

    Raises:
      ConfigurationError: the file binds no model, or one that cannot be made.
    """
    read_configuration([file], [])
    with configuration_errors():
        try:
            reference = gin.query_parameter("Training.model")
        except ValueError:
            raise ConfigurationError(_NO_MODEL.format(file=file)) from None
        model = reference.scoped_configurable_fn()
    graph = mtf.Graph("model", mtf.VariableDType(tf.float32))
    mesh = mtf.Mesh(graph)
    with graph:
        features = {name: _feature(mesh, name) for name in _FEATURES}
        model.metrics(features, is_training=False)
    variables = [v for v in graph.variables.values() if isinstance(v, Variable)]
    return {name: described(saved_shape(v), v.slice_dtype) for v in variables for name in v.saved_names}


def _feature(mesh: mtf.Mesh, name: str) -> mtf.Tensor:
    dtype = tf.float32 if name.endswith("_weights") else tf.int32
    shape = "batch:1" if name == "labels" else f"batch:1 length:{_LENGTH}"
    return mtf.placeholder(mesh, shape, dtype, name=name)
