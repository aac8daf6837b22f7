"""The annotations of a function, evaluated."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Annotated, Any, get_args, get_origin

from meshtf.annotations.tensor_annotation import TensorAnnotation
from meshtf.errors import GraphError, MeshtfError
from meshtf.graph.tensor import Tensor

RESULT = "return"
"""The key of the annotation of a function's result."""


def hints_of(fn: Callable[..., Any], *, needs_all: bool = True) -> dict[str, Any]:
    """The evaluated annotations of a function's parameters, by name, and of its result, under "return".

    Annotations that are text, as under `from __future__ import annotations`, are evaluated with the names that are
    visible where the function is defined.

    Args:
      fn: a function with named parameters.
      needs_all: whether an annotation that cannot be evaluated is an error even if it may not be of a tensor. Names
        that only type checkers import cannot be evaluated.

    Raises:
      GraphError: an annotation cannot be evaluated. The message names the parameter.
    """
    signature = inspect.signature(fn)
    written = {name: p.annotation for name, p in signature.parameters.items()} | {RESULT: signature.return_annotation}
    names = _names_around(fn)
    found = {}
    for name, annotation in written.items():
        if annotation is inspect.Signature.empty:
            continue
        try:
            found[name] = eval(annotation, dict(names)) if isinstance(annotation, str) else annotation
        except Exception as error:
            if needs_all or _is_of_the_language(error):
                raise GraphError(_unknown(fn, name, annotation, error)) from None
    return found


def tensor_hint(hint: object) -> TensorAnnotation | None:
    """Returns the annotation of a tensor: `mtf.f32["batch"]`, `mtf.Tensor["batch"]`, or one of these in Annotated.

    Returns None for other annotations.
    """
    if hint is Tensor:
        return TensorAnnotation(None)
    if get_origin(hint) is Annotated:
        return next((x for x in get_args(hint)[1:] if isinstance(x, TensorAnnotation)), None) or tensor_hint(
            get_args(hint)[0]
        )
    return hint if isinstance(hint, TensorAnnotation) else None


def tensor_hints(hint: object) -> Iterator[TensorAnnotation]:
    """Every annotation of a tensor inside an annotation, such as the two of `tuple[mtf.f32["n"], mtf.i32[""]]`.

    A function (`Callable[[mtf.Tensor], mtf.Tensor]`) has no tensors in it, and neither has a class.
    """
    own = tensor_hint(hint)
    if own is not None:
        yield own
        return
    if get_origin(hint) in (Callable, type):
        return
    for part in get_args(hint):
        yield from tensor_hints(part)


def _is_of_the_language(error: Exception) -> bool:
    """Whether an annotation that could not be evaluated was meant to be of a tensor."""
    return isinstance(error, MeshtfError) or getattr(error, "obj", None) is sys.modules["meshtf"]


def _unknown(fn: Callable[..., Any], name: str, annotation: str, error: Exception) -> str:
    what = "the result" if name == RESULT else f'"{name}"'
    # The error has the line of the evaluated text, which is not a line of the user's file.
    told = str(error).removesuffix(getattr(error, "site_text", ""))
    fact = told if isinstance(error, MeshtfError) else f"{type(error).__name__}: {error}"
    return f"the annotation of {what} of {name_of(fn)}, {annotation}, cannot be evaluated: {fact}"


def _names_around(fn: Callable[..., Any]) -> dict[str, Any]:
    """The names that a function's annotations may use: names of its module, and local names where it is defined."""
    plain = _plain(fn)
    if plain is None:
        return {}
    variables = inspect.getclosurevars(plain).nonlocals
    return {**plain.__globals__, **_locals_around(plain.__code__), **variables}


def _plain(fn: Any) -> Any:
    """The Python function inside decorators, partial applications and methods; None if there is none."""
    while True:
        if isinstance(fn, functools.partial):
            fn = fn.func
        elif hasattr(fn, "__wrapped__"):
            fn = fn.__wrapped__
        elif inspect.ismethod(fn):
            fn = fn.__func__
        elif inspect.isfunction(fn):
            return fn
        elif not inspect.isclass(fn) and inspect.ismethod(getattr(fn, "__call__", None)):  # noqa: B004  # it is used
            fn = fn.__call__
        else:
            return None


def _locals_around(code: CodeType) -> dict[str, Any]:
    """The local names of the running function whose body defines the function with this code."""
    frame = sys._getframe(1)
    while frame is not None:
        if code in frame.f_code.co_consts:
            return dict(frame.f_locals)
        frame = frame.f_back
    return {}


def name_of(fn: object) -> str:
    """A function's name in messages."""
    return getattr(fn, "__name__", type(fn).__name__)


def where_defined(fn: Callable[..., Any]) -> str:
    """The file and line of a function, as text to follow its name; empty if it is not a Python function."""
    plain = _plain(fn)
    return "" if plain is None else f" ({plain.__code__.co_filename}:{plain.__code__.co_firstlineno})"
