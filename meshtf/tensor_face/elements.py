"""Elementwise methods of tensors, with the names that they have in NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshtf.call_sites import tensor_method
from meshtf.tensor_face.registry import Face, registered

if TYPE_CHECKING:
    from meshtf.graph.tensor import Tensor


class Elements(Face):
    """Elementwise methods that NumPy's arrays also have. All other elementwise functions are functions of `mtf`."""

    @tensor_method("x.astype")
    def astype(self, dtype: Any) -> Tensor:
        """The tensor in another dtype, as in `x.astype(tf.bfloat16)`; see `mtf.cast`."""
        return registered("cast")(self, dtype)

    @tensor_method("x.clip")
    def clip(self, minimum: Tensor | float, maximum: Tensor | float) -> Tensor:
        """The tensor limited to [minimum, maximum]; see `mtf.clip_by_value`."""
        return registered("clip_by_value")(self, minimum, maximum)

    @tensor_method("x.round")
    def round(self) -> Tensor:
        """The nearest integers, in the same dtype; see `mtf.round`."""
        return registered("round")(self)

    @tensor_method("x.conj")
    def conj(self) -> Tensor:
        """The complex conjugate; see `mtf.conj`."""
        return registered("conj")(self)

    @property
    def real(self) -> Tensor:
        """The real part; see `mtf.real`."""
        return registered("real")(self)

    @property
    def imag(self) -> Tensor:
        """The imaginary part; see `mtf.imag`."""
        return registered("imag")(self)
