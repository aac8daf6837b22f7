"""Local work with one form for compilers and another for processors.

A compiler needs static shapes, and reuses memory by itself. TensorFlow on processors executes operation by operation.
So shapes may depend on values there, and a result may be written piece by piece into memory of its own.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class ProcessorWork(Protocol):
    """An `Emit` in two forms with the same result. A plain call runs the form for compilers and all devices but
    processors."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Does the work on a core's slices, as any `Emit`."""
        ...

    def on_processors(self, *args: Any, **kwargs: Any) -> Any:
        """The same for TensorFlow on processors."""
        ...
