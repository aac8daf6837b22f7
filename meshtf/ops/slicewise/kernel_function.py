"""Functions of slices for which some platform has a kernel: the plain form, and the kernel's form."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import tensorflow as tf

from meshtf.planning.plan import Core


@runtime_checkable
class KernelFunction(Protocol):
    """A function of slices that has its own kernel on some platform. The results of both forms differ only in rounding.

    `mtf.slicewise` accepts it like any other function.
    """

    def __call__(self, *slices: tf.Tensor) -> Any:
        """The plain form, by TensorFlow's documented operations."""
        ...

    def module(self, platform: str, slices: Sequence[tf.TensorSpec]) -> str | None:
        """The text of a StableHLO module that does the same there, or None if the platform has no kernel for it."""
        ...

    def flops(self, slices: Sequence[Sequence[int]]) -> int:
        """The additions and multiplications for slices of these sizes."""
        ...

    def gradient_function(self) -> tuple[Callable[..., Any], Sequence[int]] | None:
        """The function that computes gradients, and the operands that have one; None for TensorFlow's own gradient.

        It takes the operands, the outputs, and the gradient of the first output.
        """
        ...


@dataclasses.dataclass(frozen=True, eq=False)
class EmittedFunction:
    """Emits a function of slices, whose outputs have these sizes and dtypes."""

    tf_fn: Callable[..., Any]
    sizes: Sequence[tuple[int, ...]]
    dtypes: Sequence[tf.DType]

    def __call__(self, core: Core, *slices: tf.Tensor) -> list[tf.Tensor]:
        returned = self.tf_fn(*slices)
        return self.checked([tf.convert_to_tensor(y) for y in (returned if _is_list(returned) else [returned])])

    def module(self, platform: str, slices: Sequence[tf.TensorSpec]) -> str | None:
        """The text of a StableHLO module that does the same, or None if the platform has no kernel for it."""
        return self.tf_fn.module(platform, slices) if isinstance(self.tf_fn, KernelFunction) else None

    def checked(self, returned: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """The function's results, of the sizes and dtypes of the outputs."""
        # A py_function's size is unknown while the program is traced, and is checked when it runs.
        outputs = zip(returned, self.sizes, self.dtypes, strict=True)
        return [tf.cast(tf.ensure_shape(y, size), dtype) for y, size, dtype in outputs]


def _is_list(returned: Any) -> bool:
    return isinstance(returned, list | tuple)
