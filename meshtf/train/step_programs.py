"""The two programs of a training: one step, and the evaluation of a batch."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

import meshtf as mtf
from meshtf.errors import GraphError, LayoutWarning
from meshtf.mesh_impl.mesh_impl import MeshImpl
from meshtf.optimize.norms import global_norm
from meshtf.quantization import move_ranges
from meshtf.quantization.quantization_aware import INPUT_RANGE
from meshtf.train._metric_sums import (
    MetricSums,
    evaluation_sums,
    tells_of_whole_batch,
    training_sums,
    whole_batch_value,
)
from meshtf.train._model_metrics import check_names, model_metrics
from meshtf.train._ranked_scores import SCORES, ranked
from meshtf.train.configuration import ConfigurationError
from meshtf.train.side_program import side_program
from meshtf.train.task import WEIGHTS
from meshtf.train.training import LOSS, Metric, Training

GRADIENT_NORM = "gradient_norm"
NUMERATORS, DENOMINATORS = "numerators", "denominators"

_QUANTIZED = """\
Training.quantization keeps the kernels in {weights}, which cannot be trained. Train the run that was quantized, and
run meshtf-quantize again."""


def training_step(training: Training, mesh_impl: MeshImpl) -> mtf.Function:
    """Builds a program that takes one step and returns scalars and vectors by name.

    - "loss" is the mean over the batch before the update.
    - "gradient_norm", if gradients are checked, is the square root of the sum of the squares of all gradients.
    - The model's metrics that describe the batch as a whole are scalars, [n] or [layers, n].
    - The others are the scalars that the model or the optimizer passes to `mtf.scalar_summary`.

    If the loss or the norm is a NaN or an infinity, the step assigns nothing and raises NonFiniteError.

    Raises:
      LayoutError, LayoutWarning: if the layout does not fit the program, or has a rule for a missing dimension.
      ConfigurationError: if the weights are quantized.
    """
    if training.quantization is not None:
        raise ConfigurationError(_QUANTIZED.format(weights=training.quantization.weights))

    def train_step(**features: mtf.Tensor) -> dict[str, mtf.Tensor]:
        measured = _measured(training, features)
        loss, grads = measured.loss, measured.grads
        results = {LOSS: mtf.check_finite(loss, "the loss")}
        if training.check_gradients:
            results[GRADIENT_NORM] = mtf.check_finite(global_norm(grads), "the gradients")
        training.optimizer.apply_grads(grads, loss.graph.trainable_variables)
        if training.quantization_aware is not None:
            move_ranges(training.quantization_aware, measured.input_ranges)
        return {LOSS: loss, **measured.seen, **_scalar_summaries(loss.graph), **results}

    with warnings.catch_warnings():
        # A misspelt rule would only make training slower, for days and unseen.
        warnings.simplefilter("error", LayoutWarning)
        return mtf.function(
            train_step,
            mesh_impl,
            inputs=training.task.inputs(training.batch),
            seed=training.seed,
            variable_dtype=training.variable_dtype,
        )


def training_step_on(mesh_impl: MeshImpl, step: mtf.Function) -> mtf.Function:
    """Returns the same training step on another mesh or layout. Raises the layout errors of `training_step`."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", LayoutWarning)
        return step.on(mesh_impl)


@dataclasses.dataclass(frozen=True)
class EvaluationProgram:
    """An evaluation step, and the names of the metrics that need batches without padding."""

    step: mtf.Function
    of_whole_batch: tuple[str, ...]


def evaluation_step(
    training: Training, mesh_impl: MeshImpl, variables: mtf.VariableStore | None = None
) -> mtf.Function:
    """Builds a program that returns the "numerators" and the "denominators" of the model's metrics over a batch.

    For areas under the curve it also returns "scores": the scores and labels [batch] of each.

    Its inputs are the task's, and `weights` [batch], 1 for an example and 0 for padding. A metric without `batch` also
    counts the padding: see `EvaluationProgram`.
    """
    return evaluation_program(training, mesh_impl, variables).step


def evaluation_program(
    training: Training, mesh_impl: MeshImpl, variables: mtf.VariableStore | None = None
) -> EvaluationProgram:
    """Builds `evaluation_step`, and lists the metrics that need batches without padding."""
    of_whole_batch: list[str] = []

    def evaluation_step(**features: mtf.Tensor) -> dict[str, dict[str, Any]]:
        weights = features.pop(WEIGHTS)
        with training.kept_weights():
            metrics = model_metrics(training, features, is_training=False)
        of_curves = ranked(metrics, training.batch.name)
        metrics = {name: metric for name, metric in metrics.items() if name not in of_curves}
        of_whole_batch.extend(name for name, metric in metrics.items() if tells_of_whole_batch(name, metric))
        sums = {name: evaluation_sums(name, metric, weights) for name, metric in metrics.items()}
        return {
            NUMERATORS: {name: s.numerator for name, s in sums.items()},
            DENOMINATORS: {name: s.denominator for name, s in sums.items()},
            **({SCORES: {name: _in_float32(metric) for name, metric in of_curves.items()}} if of_curves else {}),
        }

    weights = mtf.TensorSpec(mtf.Shape([training.batch]), tf.float32)
    step = side_program(evaluation_step, training, mesh_impl, variables, {WEIGHTS: weights})
    return EvaluationProgram(step, tuple(of_whole_batch))


def loss_and_gradients(training: Training, features: Mapping[str, mtf.Tensor]) -> tuple[mtf.Tensor, list[mtf.Tensor]]:
    """Returns the mean loss of a batch, and its gradients for the graph's trainable variables, in their order.

    Raises:
      GraphError: if the model has no loss, nothing to train, or a variable on which the loss does not depend.
    """
    measured = _measured(training, features)
    return measured.loss, measured.grads


@dataclasses.dataclass(frozen=True)
class _Measured:
    """The measurements of a batch before the update.

    Attributes:
      loss: the mean loss.
      grads: its gradients.
      seen: the metrics of the batch as a whole.
      input_ranges: the ranges of quantized activations, by the names of kernels.

    Metrics and ranges are means over the micro-batches.
    """

    loss: mtf.Tensor
    grads: list[mtf.Tensor]
    seen: dict[str, mtf.Tensor]
    input_ranges: dict[str, mtf.Tensor]


def _measured(training: Training, features: Mapping[str, mtf.Tensor]) -> _Measured:
    def sums(features: Mapping[str, mtf.Tensor]) -> tuple[MetricSums, dict[str, mtf.Tensor], dict[str, mtf.Tensor]]:
        with training.learned_weights() as ranges:
            metrics = model_metrics(training, features, is_training=True)
        return training_sums(LOSS, _loss(metrics)), _of_the_whole_batch(metrics), ranges

    if training.num_microbatches == 1:
        part, seen, ranges = sums(features)
        loss = part.mean
        return _Measured(loss, _gradients(loss), seen, ranges)

    own: dict[str, str] = {}

    def microbatch(features: Mapping[str, mtf.Tensor]) -> dict[str, mtf.Tensor]:
        part, seen, ranges = sums(features)
        own.update({name: f"{name}/{INPUT_RANGE}" for name in ranges})
        ranged = {own[name]: x for name, x in ranges.items()}
        return {**seen, **ranged, LOSS: part.numerator, DENOMINATORS: part.denominator}

    # Micro-batches return sums: the denominator of the whole batch is known only after the last of them.
    summed, outputs = mtf.serialize_training_step(features, microbatch, training.batch, training.num_microbatches)
    total = MetricSums(outputs[LOSS], outputs[DENOMINATORS])
    scale = MetricSums(mtf.ones_like(total.numerator), total.denominator).mean
    means = {n: x / training.num_microbatches for n, x in outputs.items() if n not in (LOSS, DENOMINATORS)}
    ranges = {name: means.pop(output) for name, output in own.items()}
    return _Measured(total.mean, [mtf.cast(grad, tf.float32) * scale for grad in summed], means, ranges)


def _in_float32(tensors: Mapping[str, mtf.Tensor]) -> dict[str, mtf.Tensor]:
    return {name: mtf.cast(x, tf.float32) for name, x in tensors.items()}


def _of_the_whole_batch(metrics: Mapping[str, Metric]) -> dict[str, mtf.Tensor]:
    curves = ranked(metrics)
    values = {name: whole_batch_value(name, metric) for name, metric in metrics.items() if name not in curves}
    return {name: x for name, x in values.items() if x is not None}


def _loss(metrics: Mapping[str, Metric]) -> Metric:
    if LOSS not in metrics:
        raise GraphError(f'the model has no metric "{LOSS}", which training minimizes; it has {", ".join(metrics)}')
    return metrics[LOSS]


def _gradients(loss: mtf.Tensor) -> list[mtf.Tensor]:
    variables = loss.graph.trainable_variables
    if not variables:
        raise GraphError("the model has no trainable variable")
    grads = mtf.gradients([loss], [variable.value for variable in variables])
    unconnected = [v.full_name for v, grad in zip(variables, grads, strict=True) if grad is None]
    if unconnected:
        raise GraphError(f"the loss does not depend on the trainable variables {', '.join(unconnected)}")
    return [grad for grad in grads if grad is not None]


def _scalar_summaries(graph: mtf.Graph) -> dict[str, mtf.Tensor]:
    check_names(graph.summaries)
    return {name: summary.tensor for name, summary in graph.summaries.items() if not summary.tensor.shape.ndims}
