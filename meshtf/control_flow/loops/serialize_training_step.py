"""Micro-batches: runs a training step in parts, and sums their gradients.

For a batch of 6 examples and 3 micro-batches, micro-batch 0 holds examples 0 and 3, micro-batch 1 holds 1 and 4, and
micro-batch 2 holds 2 and 5. With the batch split over 2 cores, the first core holds examples 0, 1, 2: one of each
micro-batch. No example moves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from meshtf.autodiff import gradients
from meshtf.call_sites import language_function
from meshtf.control_flow._blocks import block_input, build_block
from meshtf.control_flow.loops.loop import LoopOperation
from meshtf.control_flow.loops.loop_spec import (
    AccumulatedTensor,
    CarriedTensor,
    Iterations,
    LoopSpec,
    Numbering,
    SlicedTensor,
    StackedTensor,
)
from meshtf.dimension import Dimension, DimensionLike, Shape, convert_to_dimension
from meshtf.divisors import divisors
from meshtf.errors import GraphError, ShapeError
from meshtf.graph.blocks import with_nested
from meshtf.graph.dtypes import sum_dtype
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor, check_tensor
from meshtf.ops.algebra.casting import before_cast
from meshtf.ops.algebra.transpose_and_broadcast import transpose
from meshtf.ops.elementwise.cast import cast
from meshtf.ops.inputs.constants import zeros
from meshtf.ops.inputs.scalars import whole_number
from meshtf.ops.rearranging.reshape import ReshapeOperation, replace_dimensions, reshape
from meshtf.planning.microbatch_cut import MicrobatchCut

_MICROBATCH = "microbatch"


@language_function
def serialize_training_step(
    features: Mapping[str, Tensor],
    model_fn: Callable[[dict[str, Tensor]], Mapping[str, Tensor]],
    batch_dim: DimensionLike,
    num_splits: int,
) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Runs a model over `num_splits` micro-batches one after the other, and sums their gradients.

    Micro-batch k holds every `num_splits`-th example, starting at the k-th, so the batch stays split over the mesh as
    it is. Each example has the same random bits, for example of dropout, as in the whole batch. This is also true if
    reshapes make other dimensions from the batch, unless parts of two examples then share a position, as in rows of 4
    made from examples of 6 numbers: such a tensor has other bits than in the whole batch.

    To get the results of the whole batch, the loss must be a sum over examples, or a mean divided by `num_splits`. A
    layer that combines several examples, such as batch normalization, sees only the examples of one micro-batch.

    Args:
      features: inputs by name; those that have `batch_dim` are divided.
      model_fn: takes the features of one micro-batch, in which `batch_dim` has a smaller size, and returns outputs by
        name, including the scalar "loss". It is called once.
      batch_dim: the dimension to divide.
      num_splits: number of micro-batches.

    Returns:
      The gradients of the loss for `graph.trainable_variables`, in their order, summed over the micro-batches. For
      variables read as bfloat16 or float16, the sum and the gradient are in float32. Then the outputs, in their own
      dtypes: outputs with `batch_dim` are concatenated, all others are summed.

    Raises:
      ShapeError: the batch does not divide; or an output has `batch_dim` in another size than a micro-batch.
      GraphError: there is no scalar loss, or it does not depend on a trainable variable; or an output is no tensor.
      DtypeError: an output without `batch_dim` is bool.

    Examples:
      >>> w = mtf.get_variable(mesh, "w", "hidden:8")
      >>> def model_fn(features):
      ...     return {"loss": mtf.reduce_sum(mtf.einsum([features["x"], w]))}
      >>> mtf.serialize_training_step({"x": x}, model_fn, "batch", num_splits=2)
      ([microbatches:1 [hidden:8] float32], {'loss': microbatches:2 [] float32})
    """
    if not isinstance(features, Mapping):
        raise GraphError(f'features are tensors by name, such as {{"x": x}}, and not {features!r}')
    if not callable(model_fn):
        raise GraphError(f"model_fn must be a function of the features, and is {model_fn!r}")
    batch = convert_to_dimension(batch_dim, [check_tensor(x).shape for x in features.values()])
    if batch is None:
        raise ShapeError("serialize_training_step needs the dimension to divide")
    num_splits = whole_number(num_splits, "num_splits")
    if num_splits < 1 or batch.size % num_splits:
        raise ShapeError(
            f'"{batch}" does not divide into {num_splits} micro-batches; these fit: {divisors(batch.size)}'
        )
    micro, splits = Dimension(batch.name, batch.size // num_splits), Dimension(_MICROBATCH, num_splits)
    cut = {name: x for name, x in features.items() if check_tensor(x).shape.has(batch.name)}
    if not cut:
        raise ShapeError(f'no feature has dimension "{batch}": {", ".join(map(repr, features.values()))}')
    # The number of the micro-batch is the minor part of an example's number, so that each core divides its own part.
    wholes = {name: replace_dimensions(x, [batch], [micro, splits]) for name, x in cut.items()}
    parts = {n: block_input(x, n, Shape([micro if d.name == batch.name else d for d in cut[n].shape]))
             for n, x in wholes.items()}  # fmt: skip
    mesh = next(iter(cut.values())).mesh
    operations, (outputs, grads) = build_block(
        mesh, lambda: _called(model_fn, {**features, **parts}), [], "the model of a micro-batch", list(parts.values())
    )
    batched = [n for n, t in outputs.items() if t.shape.has(batch.name)]
    for n in batched:
        if micro not in outputs[n].shape.dims:
            raise ShapeError(f'output "{n}" [{outputs[n].shape}] of model_fn does not have "{micro}" of a micro-batch')
    summed = [n for n in outputs if n not in batched]
    variables = mesh.graph.trainable_variables
    # A loop needs something to carry. Gradients are accumulated and not carried.
    turn = zeros(mesh, [])
    entering = block_input(turn, "turn")
    spec = LoopSpec(
        iterations=Iterations(splits),
        operations=operations,
        carried=(CarriedTensor(turn, entering, entering),),
        sliced=tuple(SlicedTensor(wholes[n], parts[n]) for n in wholes),
        stacked=tuple(StackedTensor(outputs[n], splits) for n in batched),
        accumulated=(
            *(
                AccumulatedTensor(before_cast(t), sum_dtype(t.dtype), v.value)
                for t, v in zip(grads, variables, strict=True)
            ),
            *(AccumulatedTensor(outputs[n], sum_dtype(outputs[n].dtype)) for n in summed),
        ),
        numbering=Numbering(_microbatch_cut(micro, num_splits, operations)),
    )
    loop = LoopOperation(spec, turn, "microbatches")
    totals = zip(summed, loop.accumulated_outputs[len(grads) :], strict=True)
    results = {name: cast(total, outputs[name].dtype) for name, total in totals}
    for name, stacked in zip(batched, loop.stacked_outputs, strict=True):
        results[name] = _together(stacked, outputs[name].shape, batch, splits)
    return list(loop.accumulated_outputs[: len(grads)]), {name: results[name] for name in outputs}


def _called(
    model_fn: Callable[[dict[str, Tensor]], Mapping[str, Tensor]], features: dict[str, Tensor]
) -> tuple[dict[str, Tensor], list[Tensor]]:
    returned = model_fn(features)
    if not isinstance(returned, Mapping):
        raise GraphError(
            f'model_fn must return its outputs by name, such as {{"loss": loss}}, and returned {returned!r}'
        )
    outputs = dict(returned)
    loss = outputs.get("loss")
    if not isinstance(loss, Tensor) or loss.shape.ndims:
        raise GraphError(f'model_fn must return a scalar "loss", and returned {loss!r}')
    for name, output in outputs.items():
        check_tensor(output, f'output "{name}" of model_fn')
    variables = loss.graph.trainable_variables
    grads = gradients([loss], [v.value for v in variables])
    missing = [v.full_name for v, grad in zip(variables, grads, strict=True) if grad is None]
    if missing:
        raise GraphError(f"the loss does not depend on the trainable variables {', '.join(missing)}")
    return outputs, [grad for grad in grads if grad is not None]


def _microbatch_cut(batch: Dimension, count: int, operations: Iterable[Operation]) -> MicrobatchCut:
    """The division of the batch dimension, and of dimensions that the model's reshapes make from it."""
    cut = MicrobatchCut.of_batch(batch, count)
    for operation in with_nested(operations):
        if isinstance(operation, ReshapeOperation):
            cut = cut.after_reshape(operation.inputs[0].shape, operation.outputs[0].shape)
    return cut


def _together(stacked: Tensor, part: Shape, batch: Dimension, splits: Dimension) -> Tensor:
    dims = [d for own in part for d in ((own, splits) if own.name == batch.name else (own,))]
    whole = Shape([batch if d.name == batch.name else d for d in part])
    return reshape(transpose(stacked, dims), whole)
