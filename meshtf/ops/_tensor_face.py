"""Gives tensors their operators, methods and brackets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from meshtf.ops.named_indices.picks import picks
from meshtf.ops.named_indices.put import add_at, set_at
from meshtf.ops.named_indices.take import take
from meshtf.ops.numpy_protocols.functions import of_numpy_function
from meshtf.ops.numpy_protocols.ufuncs import of_ufunc
from meshtf.tensor_face.registry import register_functions


def register(public: Mapping[str, Callable[..., Any]]) -> None:
    """Registers the operations of `mtf` by name, and the functions that only methods of tensors call."""
    register_functions(
        public,
        {
            "add_at": add_at,
            "of_numpy_function": of_numpy_function,
            "of_ufunc": of_ufunc,
            "picks": picks,
            "set_at": set_at,
            "take": take,
        },
    )
