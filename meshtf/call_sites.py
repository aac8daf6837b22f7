"""Finds the line of the user's code that made an operation, and adds it to errors."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from types import CodeType, FrameType
from typing import ParamSpec, TypeVar

from meshtf.errors import MeshtfError, UsageError
from meshtf.field_checks import unfit_argument

_AT = "\n  at "
_ENGINE, _LAYERS, _MODELS, _USER = range(4)
_ROOMS_IN_THE_LANGUAGE = {"layers": _LAYERS, "optimize": _LAYERS, "models": _MODELS, "train": _MODELS, "bin": _MODELS}
_OTHER_PACKAGES = frozenset((
    "meshtf", "tensorflow", "keras", "optree", "numpy", "gin", "contextlib", "functools", "dataclasses", "copy",
    "collections",
))  # fmt: skip
_MOST_SITES = 1 << 16

P = ParamSpec("P")
T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class Site:
    """A line of a program: the user's, or of a built-in layer, model or optimizer.

    Attributes:
      is_gradient: whether the site is of a gradient. The line is then that of the differentiated operation.
    """

    filename: str
    line: int
    function: str
    is_gradient: bool = False

    @property
    def of_gradient(self) -> Site:
        """The site of the gradient of an operation that has this site."""
        return _gradient_site(self)

    @property
    def place(self) -> str:
        """File, line and function, with the file as `place_text` shortens it."""
        return f"{place_text(self.filename, self.line)} in {self.function}"

    @property
    def text(self) -> str:
        """File, line and function, without the words "gradient of"."""
        return f"{self.filename}:{self.line} in {self.function}"

    def __str__(self) -> str:
        return f"gradient of {self.text}" if self.is_gradient else self.text


def place_text(filename: str, line: int) -> str:
    """The short form of file and line: `layers/dense.py:73` for a file of meshtf.

    Other files are shown relative to the current folder if they are inside it, else by their last two path parts.
    """
    for folder, shown in _folders():
        if filename.startswith(folder):
            return f"{shown}{filename.removeprefix(folder)}:{line}"
    relative = os.path.relpath(filename)
    if relative.startswith(os.pardir):
        relative = os.sep.join(filename.split(os.sep)[-2:])
    return f"{relative}:{line}"


def operation_site() -> Site:
    """The most informative line for the operation that is being made.

    If the user's own code makes the operation or calls a layer that does, this is the user's line. If a built-in model
    makes it, this is a line of the innermost layer, in its public function, since private helpers serve many callers.
    """
    frame: FrameType = sys._getframe(1)
    inner = shown = None
    while (kind := _kind(frame.f_globals.get("__name__", ""))) < _MODELS and frame.f_back is not None:
        if kind == _LAYERS and shown is None:
            inner = inner or frame
            shown = frame if _is_public(frame) else None
        frame = frame.f_back
    return _site_of(frame if kind == _USER else shown or inner or frame)


def user_site() -> Site:
    """The innermost line of the user's own code; layers, models and training loops of meshtf do not count.

    If no user code calls the model, for example when `meshtf.train` builds it, this is the model's own line.
    """
    frame, model = sys._getframe(1), None
    while frame.f_back is not None:
        name = frame.f_globals.get("__name__", "")
        kind = _kind(name)
        if kind == _USER or (model is not None and name == "meshtf.function.tracing"):
            break
        if kind == _MODELS:
            model = model or frame
        frame = frame.f_back
    is_users = _kind(frame.f_globals.get("__name__", "")) == _USER
    return _site_of(frame if is_users or model is None else model)


def _site_of(frame: FrameType) -> Site:
    if "__autograph_generated_file" in frame.f_code.co_filename:
        return _before_autograph()
    return _site(frame.f_code, frame.f_lineno)


@functools.lru_cache(_MOST_SITES)
def _site(code: CodeType, line: int) -> Site:
    return Site(code.co_filename, line, code.co_name)


@functools.lru_cache(_MOST_SITES)
def _gradient_site(site: Site) -> Site:
    return dataclasses.replace(site, is_gradient=True)


@functools.lru_cache(_MOST_SITES)
def _kind(module: str) -> int:
    package, _, rest = module.partition(".")
    if package in ("meshtf_programs", "absl", "runpy"):
        return _MODELS
    if package not in _OTHER_PACKAGES:
        return _USER
    return _ROOMS_IN_THE_LANGUAGE.get(rest.partition(".")[0], _ENGINE) if package == "meshtf" else _ENGINE


def _is_public(frame: FrameType) -> bool:
    """Whether a layer's frame is a public function of a public module."""
    name, module = frame.f_code.co_name, frame.f_globals["__name__"]
    is_method = name.startswith("__") and name.endswith("__")
    return (is_method or name[0] not in "_<") and "._" not in module


def _before_autograph() -> Site:
    """The line as the user wrote it, for code that autograph rewrote inside the user's tf.function."""
    from meshtf.tensorflow_private.stack_traces import written_frames  # imports TensorFlow, which only this needs

    between = contextlib.__file__  # a context manager that decorates a function of ours
    frames = [f for f in written_frames() if not (f.filename == between or _is_our_file(f.filename))]
    return Site(frames[-1].filename, frames[-1].lineno or 0, frames[-1].name)


def _is_our_file(filename: str) -> bool:
    return any(
        filename.startswith(folder) and _ROOMS_IN_THE_LANGUAGE.get(place_text(filename, 0).split("/")[0]) != _MODELS
        for folder, _ in _folders()
    )


def _folders() -> list[tuple[str, str]]:
    """The folders of meshtf, each with the text shown for it. An editable install has some outside meshtf's own."""
    rooms = [(room, sys.modules.get(f"meshtf.{room}")) for room in ("layers", "models")]
    own = [(path, f"{room}/") for room, module in rooms if module is not None for path in module.__path__]
    return [(os.path.join(path, ""), shown) for path, shown in [*own, (os.path.dirname(__file__), "")]]


def language_function(fn: Callable[P, T]) -> Callable[P, T]:
    """Decorates a function so that its errors show the function's name, the operands' shapes, and the user's line.

    If such functions call each other, the innermost adds operands and line, since it is nearest to the fault. The name
    shown is that of the outermost function that the same user line called.
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
        except (AttributeError, TypeError, ValueError) as error:
            fact = _misfit(fn, args, kwargs) if isinstance(error, TypeError) else ""
            cause = None if fact else error
            if not fact and not _is_of_user(error):
                fact = unfit_argument(fn, args, kwargs)
            if fact:
                refused = UsageError(fact)
                _locate(refused, _public_name(wrapper), [*args, *kwargs.values()])
                raise refused from cause
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
    """Decorates a function so that its errors show the user's line, if they do not show one yet.

    It also suits functions that make no operation.
    """

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
        if args and isinstance(args[0], str) and "->" in args[0]:
            return f"the tensor comes first, and then the pattern: (x, {args[0]!r}, ...)"
        parameters = [name for name in signature.parameters if name != "self"]
        return f"{error}; its parameters are {', '.join(parameters)}"
    return ""


def _is_of_user(error: Exception) -> bool:
    """Whether the user's own code, such as the body of a loop, was running below the function that raises."""
    frames = traceback.walk_tb(error.__traceback__)
    return any(_kind(frame.f_globals.get("__name__", "")) == _USER for frame, _ in frames)


def _locate(error: MeshtfError, name: str, arguments: list[object]) -> None:
    fact, site = str(error).removesuffix(getattr(error, "site_text", "")), user_site()
    flat = [a for x in arguments for a in (x if isinstance(x, list | tuple) else [x])]
    operands = [f"    {a}" for a in flat if hasattr(a, "operation") and hasattr(a, "shape")][:8]
    lines = [f"{name}: {fact}", *(["  operands:", *operands] if operands else []), f"  at {site}"]
    lines += _inside_model(site, flat)
    error.args = ("\n".join(lines),)
    error.named_by, error.shown_name, error.site = name, name, site  # type: ignore[attr-defined]


def _inside_model(user: Site, arguments: list[object]) -> list[str]:
    """The layer's line and scope, as lines of a message; empty if the user's own line made the operation."""
    if (inner := operation_site()) == user:
        return []
    graphs = (getattr(x, "graph", None) for x in arguments)
    scope = next((scope for graph in graphs if isinstance(scope := getattr(graph, "scope", None), str)), "")
    return [f"  in {scope + ', at ' if scope else ''}{inner}"]


def _name_caller(error: MeshtfError, caller: str) -> None:
    """Replaces the name in an error by the caller's name, if the same user line called both functions."""
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
            return f"mtf{rooms}.{wrapper.__qualname__}".removesuffix(".__call__").removesuffix(".__init__")
    return f"mtf.{wrapper.__name__.strip('_')}"
