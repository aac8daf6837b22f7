"""`checked`: a function whose annotations are a contract."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from meshtf.call_sites import says_where, user_site
from meshtf.contracts.hints import RESULT, hints_of, name_of, tensor_hints, where_defined
from meshtf.contracts.matching import Matching
from meshtf.errors import ContractError, GraphError

P = ParamSpec("P")
T = TypeVar("T")


@says_where
def checked(fn: Callable[P, T]) -> Callable[P, T]:
    """Makes the annotations of a function a contract. Each call checks its arguments and its result against them.

    An annotation has an element type and the dimensions: `mtf.f32["batch length:16"]`. `mtf.Tensor["batch"]` allows any
    element type.

    - "batch" alone may have any size. Within one call, all arguments and results must have the same size for it.
    - "memory:length" is the dimension `memory`, with the size of the name `length`.
    - "batch:64" must have exactly this size.
    - "..." means any other dimensions. Without it, a tensor has no others.

    The order of dimensions does not matter. Annotations may be inside a list, a tuple, a dict or a union. Parameters
    without such an annotation are not checked.

    Raises:
      GraphError: `fn` is not a function, or none of its annotations is of a tensor.
      ContractError: from a call. It lists all mismatches, and says which argument fixed each size.

    Examples:
      >>> @mtf.checked
      ... def scores(q: mtf.f32["... length d_kv"], k: mtf.f32["... memory d_kv"]) -> mtf.f32["... length memory"]:
      ...     return mtf.einsum([q, k], reduced_dims=[("d_kv", 8)])
      >>> q, k = mtf.ones(mesh, "batch:4 length:16 d_kv:8"), mtf.ones(mesh, "batch:4 memory:10 d_kv:8")
      >>> scores(q, k).shape
      Shape[batch:4 length:16 memory:10]
    """
    if not callable(fn) or inspect.isclass(fn):
        raise GraphError(f"mtf.checked takes a function, and not {fn!r}; of a class, decorate the methods")
    hints = hints_of(fn)
    if not any(next(tensor_hints(hint), None) is not None for hint in hints.values()):
        raise GraphError(
            f"no annotation of {name_of(fn)} says anything of a tensor; write one, as in "
            f'def {name_of(fn)}(x: mtf.f32["batch hidden"])'
        )
    signature = inspect.signature(fn)

    @functools.wraps(fn)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            arguments = signature.bind(*args, **kwargs)
        except TypeError:
            return fn(*args, **kwargs)  # raises an error for the arguments
        matching = Matching()
        compare_arguments(matching, hints, signature, arguments.arguments)
        raise_faults(matching, fn)
        result = fn(*args, **kwargs)
        matching.compare(hints.get(RESULT), result, "the result")
        raise_faults(matching, fn)
        return result

    return wrapper


def compare_arguments(
    matching: Matching, hints: Mapping[str, Any], signature: inspect.Signature, arguments: Mapping[str, Any]
) -> None:
    """Compares the arguments of a call with their annotations."""
    for name, value in arguments.items():
        hint, kind = hints.get(name), signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            for i, part in enumerate(value):
                matching.compare(hint, part, f"{name}[{i}]")
        elif kind is inspect.Parameter.VAR_KEYWORD:
            for key, part in value.items():
                matching.compare(hint, part, key)
        else:
            matching.compare(hint, value, name)


def raise_faults(matching: Matching, fn: Callable[..., Any]) -> None:
    """Raises ContractError with all mismatches, if there is one."""
    if matching.faults:
        head = f"{name_of(fn)}{where_defined(fn)} was called against its annotations:"
        raise ContractError("\n  ".join([head, *matching.faults, f"at {user_site()}"]))
