"""`watch`: shows tensors of a program at each call, without changing its results."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from meshtf.call_sites import says_where
from meshtf.debug.lowered_program import LoweredProgram
from meshtf.errors import UsageError
from meshtf.function.program import Function
from meshtf.graph.blocks import PROGRAM
from meshtf.graph.tensor import Tensor
from meshtf.host_array import host_array
from meshtf.lowering.feeding import check_feeds, inputs_of
from meshtf.lowering.lowering import Lowering
from meshtf.ops.inputs.placeholder import InputOperation
from meshtf.visualize import picture_of

_MOST_PRINTED = 16
"""The most elements of an array that is printed whole. A larger array shows two at either end of each dimension."""

_IN_BLOCK = """\
{x} is inside {what}, where it has another value in each run; watch a tensor that the function returns, or print it \
there with mtf.print_tensor"""

_IN_TF_FUNCTION = """\
a watched program is called inside a tf.function, where its tensors have no values; call it outside, or print tensors \
of the program with mtf.print_tensor"""


@dataclasses.dataclass(frozen=True)
class Watched:
    """A program whose tensors are shown at each call: see `mtf.debug.watch`. Call it like the program.

    Attributes:
      program: the program, which runs unchanged.
      names: the names of the watched tensors.
      call: called with the arrays by name; None to print them.
      per_core: whether each tensor is shown as the slices of the cores.
    """

    program: Function
    names: tuple[str, ...]
    call: Callable[[Mapping[str, Any]], object] | None
    per_core: bool
    _tensors: dict[Lowering, dict[str, Tensor]] = dataclasses.field(default_factory=dict, init=False, repr=False)

    @tf.autograph.experimental.do_not_convert
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Passes the tensors of this call to the callback, runs the program, and returns its results."""
        values = self.values(*args, **kwargs)
        if self.call is None:
            self._print(values)
        else:
            self.call(values)
        return self.program(*args, **kwargs)

    @says_where
    def values(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Returns the tensors of a call with these inputs, whole or core by core, without running the program.

        They are the values of the next step, with its random bits and the present values of variables. Nothing is
        assigned.

        Raises:
          FeedError: an input is missing, unknown, or of the wrong shape or dtype.
          UsageError: inside a tf.function.
        """
        if not tf.executing_eagerly():
            raise UsageError(_IN_TF_FUNCTION)
        lowering, feeds = self.program.lowering_for(*args, **kwargs)
        tensors = self._tensors_in(lowering)
        known = {o.name: o for o in lowering.graph.operations if isinstance(o, InputOperation)}
        execution = lowering.peek(list(tensors.values()))
        results = execution(check_feeds(inputs_of(execution.plan), feeds, known, lowering.graph.name))
        arrays = {name: host_array(x) for name, x in zip(tensors, results, strict=True)}
        if not self.per_core:
            return dict(arrays)
        return {name: self._slices(tensors[name], array, lowering) for name, array in arrays.items()}

    def _tensors_in(self, lowering: Lowering) -> dict[str, Tensor]:
        """The watched tensors. A program has a separate graph for each choice of open sizes."""
        if lowering not in self._tensors:
            lowered = LoweredProgram(lowering, ())
            self._tensors[lowering] = {name: _checked(lowered.tensor(name)) for name in self.names}
        return self._tensors[lowering]

    def _print(self, values: Mapping[str, Any]) -> None:
        tensors = self._tensors_in(self.program.lowering)  # the lowering of the last call
        for name, value in values.items():
            x = tensors[name]
            head = f"{name} [{x.shape}] {x.dtype.name}"
            if isinstance(value, dict):
                print("\n".join([head, *(f"  core {core}: {_text(own)}" for core, own in value.items())]))
            else:
                print(f"{head}\n  {_text(value)}")

    def _slices(self, x: Tensor, whole: np.ndarray, lowering: Lowering) -> dict[int, np.ndarray]:
        layouts = lowering.layouts
        picture = picture_of("", x.shape, layouts[x], layouts.mesh_shape)
        own = {core: b.bounds for b in picture.blocks for core in b.cores}
        return {core: whole[tuple(slice(*bounds) for bounds in own[core])] for core in sorted(own)}


@says_where
def watch(
    program: Function,
    *names: str | Tensor,
    call: Callable[[Mapping[str, Any]], object] | None = None,
    per_core: bool = False,
) -> Watched:
    """Shows tensors of a program at each call. The program runs unchanged, so its results have the same bits.

    A second program first computes the tensors, from the same inputs, variables and random bits. It assigns nothing.
    So a watched call takes longer, by the time to compute the tensors.

    Args:
      program: the program.
      names: its tensors, or their names: of operations, variables or exports, or labels in reports.
      call: called with the arrays by name, before each step. By default they are printed.
      per_core: whether each tensor is a dict of the cores' slices, by core number, instead of the whole array.

    Raises:
      GraphError: the program has no such tensor.
      UsageError: `program` is not an mtf.function, or a tensor is inside a loop or a branch.

    Examples:
      >>> two_cores = mtf.SpmdMeshImpl("rows:2", "batch:rows")
      >>> step = mtf.function(lambda x: mtf.exp(x), two_cores, {"x": mtf.TensorSpec("batch:2")})
      >>> watched = mtf.debug.watch(step, "x", per_core=True)
      >>> y = watched(x=np.zeros([2], np.float32))
      x [batch:2] float32
        core 0: [0.]
        core 1: [0.]
      >>> y.numpy()
      array([1., 1.], dtype=float32)
    """
    if not isinstance(program, Function):
        raise UsageError(f"watch needs a program of mtf.function, and not {type(program).__name__}")
    if not names:
        raise UsageError('watch needs the names of tensors: mtf.debug.watch(step, "decoder/logits")')
    watched = Watched(program, tuple(n.name if isinstance(n, Tensor) else n for n in names), call, per_core)
    if not program.has_open_sizes:
        for own in names:
            _checked(LoweredProgram.of(program).tensor(own))
    return watched


def _checked(x: Tensor) -> Tensor:
    if x.operation.place is not PROGRAM:
        raise UsageError(_IN_BLOCK.format(x=x, what=x.operation.place.what))
    return x


def _text(array: np.ndarray) -> str:
    return np.array2string(array, precision=4, threshold=_MOST_PRINTED, edgeitems=2).replace("\n", "\n  ")
