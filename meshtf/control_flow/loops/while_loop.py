"""Loops that end when a condition, which the program computes, is false."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from meshtf.call_sites import language_function
from meshtf.control_flow._blocks import as_tensors, block_input, build_block
from meshtf.control_flow.loops.loop import LoopOperation
from meshtf.control_flow.loops.loop_spec import AccumulatedTensor, CarriedTensor, Iterations, LoopSpec
from meshtf.control_flow.loops.scan_body import checked_carried
from meshtf.control_flow.recompute_policy import RecomputePolicy, unnested_policy
from meshtf.dimension import Dimension
from meshtf.errors import DtypeError, GraphError, ShapeError, counted
from meshtf.graph.blocks import Block, with_nested
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor, check_tensors
from meshtf.ops.algebra.transpose_and_broadcast import transpose
from meshtf.ops.inputs.scalars import whole_number
from meshtf.ops.side_effects.check_finite import CheckFiniteOperation
from meshtf.ops.side_effects.check_indices import CheckIndicesOperation
from meshtf.ops.variables.variable import Assign
from meshtf.planning.plan import UNBOUNDED


@language_function
def while_loop(  # noqa: PLR0913  # the original's parameters, and five of ours
    cond_fn: Callable[..., Tensor],
    body_fn: Callable[..., Any],
    inputs: Tensor | Sequence[Tensor],
    num_loop_vars: int | None = None,
    has_accumulators: bool = False,
    *,
    maximum_iterations: int | None = None,
    compiled: bool = False,
    may_overrun: bool = False,
    recompute: RecomputePolicy | str | bool | None = None,
    name: str = "while_loop",
) -> list[Tensor]:
    """Repeats `body_fn` while `cond_fn` is true.

    Args:
      cond_fn: `cond_fn(*values)` returns a bool scalar.
      body_fn: `body_fn(*values)` returns the new values, of the same shapes and dtypes. It may read and assign
        variables. With `has_accumulators` it may return more tensors, which are summed over the iterations.
      inputs: initial values.
      num_loop_vars: how many of the final values to return, from the first; all by default. (Mesh TensorFlow keeps the
        others in variables, which is not needed here.)
      has_accumulators: whether the body returns tensors to sum. Sums over cores in them are done once, at the end.
      maximum_iterations: the number of iterations after which the loop ends in any case. A gradient needs it.
      compiled: whether XLA should compile the loop as one function. That pays for many small operations in many
        iterations, such as decoding. The conditions are: nothing inside draws random bits, prints or is slicewise;
        the loop is not differentiated; `maximum_iterations` is large enough to pay for compiling. A loop that
        communicates must also run on virtual CPUs of one process, and not be inside another loop. The program's report
        says whether the loop is compiled or why not. A compiled loop's floats may differ in their last bits.
      may_overrun: whether further iterations change no value that you use, once the condition is false or
        `maximum_iterations` is reached. On a GPU, the condition of a quick loop is then checked only every few
        iterations, since the host must wait for each check. A loop that assigns variables, accumulates, checks indices
        or has a gradient never overruns.
      recompute: what the gradient keeps of each iteration, as for `scan`.
      name: the operation's name.

    Returns:
      The final values, then the sums.

    Raises:
      ShapeError, DtypeError: a value changes its shape or dtype, the condition is not a bool scalar, or a number is no
        whole one.
      GraphError: there is no value, `num_loop_vars` is not between 1 and their number, or a function is none.

    Examples:
      >>> n = mtf.constant(mesh, 1, dtype=tf.int32)
      >>> value(mtf.while_loop(lambda n: n < 100, lambda n: [2 * n], [n])[0])
      np.int32(128)
    """
    initial = check_tensors(inputs)
    if not initial:
        raise GraphError("while_loop needs at least one value")
    if not callable(body_fn):
        raise GraphError(f"body_fn must be a function of mtf.Tensors, and is {body_fn!r}")
    returned_values = len(initial) if num_loop_vars is None else whole_number(num_loop_vars, "num_loop_vars")
    most = UNBOUNDED if maximum_iterations is None else whole_number(maximum_iterations, "maximum_iterations")
    if not 1 <= returned_values <= len(initial):
        raise GraphError(
            f"num_loop_vars is a number of the {counted(len(initial), 'value')}, at least 1, not {num_loop_vars}"
        )
    entering = [block_input(x, "value") for x in initial]
    seen = [block_input(x, "value") for x in initial]
    mesh = initial[0].mesh
    asked, goes_on = build_block(mesh, cond_fn, seen, "the condition of mtf.while_loop", seen)
    if not isinstance(goes_on, Tensor) or goes_on.shape.ndims or goes_on.dtype != tf.bool:
        raise DtypeError(f"cond_fn must return a bool scalar, and returned {goes_on!r}")
    _check_no_effect(asked)
    policy = unnested_policy(recompute)
    # Results after the carried values are summed over the iterations.
    operations, returned = build_block(
        mesh, lambda: _called(body_fn, entering), [], "the body of mtf.while_loop", entering
    )
    policy.check(operations)
    if len(returned) > len(entering) and not has_accumulators:
        raise ShapeError(
            f"body_fn is given {counted(len(entering), 'value')} and returned {len(returned)}; to sum the others over "
            f"the iterations set has_accumulators"
        )
    if most < 0:
        raise ShapeError(f"maximum_iterations must not be negative, and is {most}")
    leaving = checked_carried(entering, returned[: len(entering)], body_fn)
    dim = Dimension("iteration", min(most, UNBOUNDED))
    spec = LoopSpec(
        iterations=Iterations(dim, condition=Block(asked, tuple(seen), (goes_on,))),
        operations=operations,
        carried=tuple(map(CarriedTensor, initial, entering, leaving)),
        accumulated=tuple(AccumulatedTensor(t, t.dtype) for t in returned[len(entering) :]),
        policy=policy,
        asks_to_be_compiled=compiled,
        may_overrun=may_overrun,
    )
    loop = LoopOperation(spec, initial[0], name)
    return [*loop.carried_outputs[:returned_values], *loop.accumulated_outputs]


def _check_no_effect(asked: Sequence[Operation]) -> None:
    for operation in with_nested(asked):
        if isinstance(operation, Assign | CheckFiniteOperation | CheckIndicesOperation):
            raise GraphError(f"cond_fn has {operation.name}, which belongs into body_fn: a condition changes nothing")


def _called(body_fn: Callable[..., Any], entering: list[Tensor]) -> list[Tensor]:
    returned = as_tensors(body_fn(*entering), "body_fn")
    ordered = [
        transpose(x, e.shape) if {*x.shape} == {*e.shape} else x for x, e in zip(returned, entering, strict=False)
    ]
    return ordered + returned[len(entering) :]
