"""Errors for a tensor that has no value yet, when Python, NumPy or TensorFlow needs its value."""

from __future__ import annotations

from typing import NoReturn, Self, SupportsIndex

import numpy as np
import tensorflow as tf

from meshtf.call_sites import says_where
from meshtf.errors import UsageError

_NO_VALUE = "is a tensor of the language, which has no value while the graph is built"
_SEEN = "to see it, return it from the program"

_VALUES = (bool, int, float, complex, np.ndarray, np.generic, tf.Tensor, tf.Variable)


class SymbolicValue:
    """The base of `Tensor`. Every use that needs a value raises a UsageError, which says what to write instead."""

    @says_where
    def __bool__(self) -> bool:
        raise UsageError(
            f"{self} has no truth value while the graph is built; use mtf.where, or a Python value known now"
        )

    __hash__ = object.__hash__

    # Tensors are equal only if they are the same object, because graphs keep tensors in tuples and search for them.
    # Whoever compares a tensor with a number means its elements.
    def __eq__(self, other: object) -> bool:
        if isinstance(other, _VALUES):
            self._refuse_comparison()
        return self is other

    @says_where
    def _refuse_comparison(self) -> NoReturn:
        raise UsageError(f"{self} {_NO_VALUE}; to compare elements, use mtf.equal or mtf.not_equal")

    @says_where
    def __iter__(self) -> NoReturn:
        raise UsageError(f"{self} cannot be iterated; use mtf.unstack(x, dim)")

    @says_where
    def __len__(self) -> int:
        raise UsageError(f"{self} has no length: dimensions have names; use x.shape[name].size")

    @says_where
    def __setitem__(self, key: object, value: object) -> NoReturn:
        raise UsageError(f'{self} cannot be changed; make another, as in y = x.at["length", 0].set(v), or mtf.where')

    @says_where
    def __matmul__(self, other: object) -> NoReturn:
        raise UsageError(f"{self} has no @: name what is kept, as in mtf.einsum([x, y], output_shape=[...])")

    @says_where
    def __float__(self) -> float:
        raise UsageError(f"{self} {_NO_VALUE}; {_SEEN}")

    @says_where
    def __int__(self) -> int:
        raise UsageError(f"{self} {_NO_VALUE}; {_SEEN}")

    @says_where
    def __round__(self, *_: object) -> NoReturn:
        raise UsageError(f"{self} {_NO_VALUE}; use mtf.round")

    @says_where
    def __format__(self, form: str) -> str:
        if form:
            raise UsageError(f"{self} {_NO_VALUE}, and so cannot be written as {form!r}; {_SEEN}")
        return str(self)

    # A tensor is a node of its graph, so a copy would belong to no graph.
    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _: object) -> Self:
        return self

    @says_where
    def __reduce_ex__(self, _: SupportsIndex) -> NoReturn:
        raise UsageError(
            f"{self} is a part of a graph, and cannot be pickled; build the graph again where it is needed"
        )

    @says_where
    def __array__(self, *_: object, **__: object) -> NoReturn:
        raise UsageError(f"{self} {_NO_VALUE}; {_SEEN}")

    @says_where
    def __tf_tensor__(self, *_: object, **__: object) -> NoReturn:
        raise UsageError(
            f"{self} {_NO_VALUE}; use mtf's functions, or mtf.slicewise for TensorFlow's; "
            "mtf.import_tf_tensor brings a tf.Tensor in"
        )
