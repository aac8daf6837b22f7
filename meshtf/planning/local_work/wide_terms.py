"""Terms of float16 sums over cores. A term may be infinite in float16 although the sum is not.

For example, the sum of [40000, 40000 | -40000, 0] over two cores is 40000. The first core's term is 80000, which
float16 does not hold. So cores make such terms in float32, send them in float32, and round their sum. The sum is done
at once, so no operation reads a pending float16 sum. bfloat16 has the range of float32, so its terms are rounded first,
and take half the bytes to send.
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
    """The dtype of each core's term of a sum over cores."""
    return tf.float32 if dtype == tf.float16 else dtype


def made_wide(emit: Emit, dtypes: Sequence[tf.DType]) -> Emit:
    """Local work that computes in float32 instead of float16, with outputs of these dtypes."""
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
