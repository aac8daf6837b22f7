"""Terms of float16 sums over cores, which may be infinite in float16 where their sum is not.

The sum over two cores of [40000, 40000 | -40000, 0] is 40000, and the first term 80000. So cores make such terms in
float32, send them so, and round their sum. It is done at once: no operation finds a pending sum of float16.
bfloat16 has the range of float32; its terms are rounded, and are sent in half the bytes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from meshtf.planning.local_work.processor_work import ProcessorWork

if TYPE_CHECKING:
    from meshtf.planning.plan import Emit


def term_dtype(dtype: tf.DType) -> tf.DType:
    """The dtype of what each core has of a sum over cores."""
    return tf.float32 if dtype == tf.float16 else dtype


def made_wide(emit: Emit, dtypes: Sequence[tf.DType]) -> Emit:
    """Local work done in float32 where it was to be done in float16, with outputs of these dtypes."""
    of_processors = isinstance(emit, ProcessorWork)
    return _WideProcessorWork(emit, tuple(dtypes)) if of_processors else _WideWork(emit, tuple(dtypes))


@dataclasses.dataclass(frozen=True)
class _WideWork:
    emit: Any
    dtypes: tuple[tf.DType, ...]

    def __call__(self, core: Any, *slices: tf.Tensor) -> Any:
        return self._done_by(self.emit, core, slices)

    def _done_by(self, emit: Emit, core: Any, slices: Sequence[tf.Tensor]) -> Any:
        made = emit(core, *(tf.cast(x, term_dtype(x.dtype)) for x in slices))
        if isinstance(made, list | tuple):
            return [tf.cast(y, dtype) for y, dtype in zip(made, self.dtypes, strict=True)]
        return tf.cast(made, self.dtypes[0])


class _WideProcessorWork(_WideWork):
    def on_processors(self, core: Any, *slices: tf.Tensor) -> Any:
        """Does the same as on other devices, by the work's form for processors."""
        return self._done_by(self.emit.on_processors, core, slices)
