"""NumPy's functions on tensors. Each builds the matching operation of the language, if there is one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from meshtf.call_sites import says_where
from meshtf.tensor_face.registry import Face, registered

if TYPE_CHECKING:
    from meshtf.graph.tensor import Tensor


class NumpyFunctions(Face):
    """NumPy's two protocols for values of other libraries."""

    @says_where
    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, **options: Any) -> Tensor:
        """The operation for an elementwise function, such as `np.exp(x)`."""
        return registered("of_ufunc")(self, function, method, inputs, options)

    @says_where
    def __array_function__(self, function: Any, types: Any, args: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
        """The operation for any other function, such as `np.sum(x, axis="length")`."""
        return registered("of_numpy_function")(self, function, args, options)
