"""Where in the user's code a thing was made, and errors that say so."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from typing import ParamSpec, TypeVar

from meshtf.errors import MeshtfError, UsageError

_AT = "\n  at "
_OURS = frozenset((
    "meshtf", "tensorflow", "keras", "optree", "numpy", "contextlib", "functools", "dataclasses", "copy",
    "collections",
))  # fmt: skip
_WRITTEN_IN_THE_LANGUAGE = ("bin", "models", "train")  # folders of meshtf whose lines a reader of a report looks for

P = ParamSpec("P")
T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class Site:
    """A line of the user's code."""

    filename: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.filename}:{self.line} in {self.function}"


def user_site() -> Site:
    """The innermost caller that is neither the language (layers count as part of it) nor TensorFlow.

    meshtf's own models and training loop are written in the language as a user's are, and count as a user's.
    """
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_ours(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
    if "__autograph_generated_file" in frame.f_code.co_filename:
        return _before_autograph()
    return Site(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


def _before_autograph() -> Site:
    """The same inside a tf.function of the user's that autograph has rewritten: the line that was written."""
    from meshtf.tensorflow_private.stack_traces import written_frames  # of TensorFlow, which only this needs

    between = contextlib.__file__  # a context manager that decorates a function of ours
    frames = [f for f in written_frames() if not (f.filename == between or _is_our_file(f.filename))]
    return Site(frames[-1].filename, frames[-1].lineno or 0, frames[-1].name)


def _is_our_file(filename: str) -> bool:
    layers = sys.modules.get("meshtf.layers")  # in an editable install its folder is not inside meshtf's
    ours = os.path.dirname(__file__)
    written_in_it = tuple(os.path.join(ours, name, "") for name in _WRITTEN_IN_THE_LANGUAGE)
    folders = (os.path.join(ours, ""), *(os.path.join(path, "") for path in (layers.__path__ if layers else ())))
    return filename.startswith(folders) and not filename.startswith(written_in_it)


def language_function(fn: Callable[P, T]) -> Callable[P, T]:
    """Adds to an error raised inside the name of what the user called, the operands' named shapes, and the user's line.

    A function that is called within another adds operands and line, since it is nearest to the fault. The name is that
    of the outermost function that the same line of the user called.
    """

    @functools.wraps(fn)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return fn(*args, **kwargs)
        except MeshtfError as error:
            if hasattr(error, "named_by"):
                _name_caller(error, _public_name(wrapper))
            else:
                _locate(error, _public_name(wrapper), [*args, *kwargs.values()])
            raise
        except TypeError:
            if fact := _misfit(fn, args, kwargs):
                refused = UsageError(fact)
                _locate(refused, _public_name(wrapper), [*args, *kwargs.values()])
                raise refused from None
            raise

    return wrapper


def tensor_method(shown_name: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """`language_function` for a method of tensors. Messages call it by `shown_name`, such as `x.sum`."""

    def decorate(fn: Callable[P, T]) -> Callable[P, T]:
        wrapper = language_function(fn)
        wrapper.shown_as = shown_name  # type: ignore[attr-defined]
        return wrapper

    return decorate


def says_where(fn: Callable[P, T]) -> Callable[P, T]:
    """Adds the user's line to an error raised inside that has none yet, also for functions called outside
    operations."""

    @functools.wraps(fn)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return fn(*args, **kwargs)
        except MeshtfError as error:
            if _AT not in str(error):
                error.site_text = f"{_AT}{user_site()}"  # type: ignore[attr-defined]
                error.args = (f"{error}{error.site_text}",)  # type: ignore[attr-defined]
            raise

    return wrapper


def _misfit(fn: Callable[..., object], args: tuple[object, ...], kwargs: Mapping[str, object]) -> str:
    """Why a function cannot be called with these arguments; empty if it can."""
    signature = inspect.signature(fn)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        parameters = [name for name in signature.parameters if name != "self"]
        return f"{error}; its parameters are {', '.join(parameters)}"
    return ""


def _locate(error: MeshtfError, name: str, arguments: list[object]) -> None:
    fact, site = str(error).removesuffix(getattr(error, "site_text", "")), user_site()
    flat = [a for x in arguments for a in (x if isinstance(x, list | tuple) else [x])]
    operands = [f"    {a}" for a in flat if hasattr(a, "operation") and hasattr(a, "shape")][:8]
    lines = [f"{name}: {fact}", *(["  operands:", *operands] if operands else []), f"  at {site}"]
    error.args = ("\n".join(lines),)
    error.named_by, error.shown_name, error.site = name, name, site  # type: ignore[attr-defined]


def _name_caller(error: MeshtfError, caller: str) -> None:
    """Puts the caller's name in place of the name of the function that it called, if one line of the user reached
    both."""
    named_by, before = error.named_by, error.shown_name  # type: ignore[attr-defined]
    text = str(error)
    if error.site != user_site() or not text.startswith(f"{before}: "):  # type: ignore[attr-defined]
        return
    is_layer = (
        caller.startswith("mtf.") and caller.count(".") > 1
    )  # the user knows a layer's parts as well as the layer
    is_alike = caller.rpartition(".")[2] == named_by.rpartition(".")[2]
    shown = f"{caller}, in {named_by}" if is_layer and not is_alike else caller
    error.args = (shown + text.removeprefix(before),)
    error.shown_name = shown  # type: ignore[attr-defined]


def _public_name(wrapper: Callable[..., object]) -> str:
    """The name by which users call a function of the language: `mtf.einsum`, `mtf.layers.conv1d`, `x.sum`."""
    if shown := getattr(wrapper, "shown_as", ""):
        return shown
    parts = wrapper.__module__.split(".")
    for length in range(1, len(parts)):
        found: object = sys.modules.get(".".join(parts[:length]))
        for name in wrapper.__qualname__.split("."):
            found = getattr(found, name, None)
        if found is wrapper:
            rooms = ".".join(parts[:length]).removeprefix("meshtf").removeprefix(".compat.mesh_tensorflow")
            return f"mtf{rooms}.{wrapper.__qualname__}".removesuffix(".__call__")
    return f"mtf.{wrapper.__name__.strip('_')}"


def _is_ours(module: str) -> bool:
    package, _, rest = module.partition(".")
    return package in _OURS and not (package == "meshtf" and rest.partition(".")[0] in _WRITTEN_IN_THE_LANGUAGE)
