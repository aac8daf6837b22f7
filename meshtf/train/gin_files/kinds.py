"""Checks the values of bindings against type hints, so that a string instead of a number is reported with its line."""

from __future__ import annotations

import collections.abc
import dataclasses
import inspect
import math
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gin import config as gin_config

from meshtf.errors import nearest
from meshtf.field_checks import DICTS, INTEGER_END, LISTS, SCALARS, UNIONS, resolved_hint, words
from meshtf.train.gin_files.bindings import MACRO, Binding
from meshtf.train.gin_files.errors import ConfigurationError

_OURS = "meshtf."
_LOOKS_ITSELF = "meshtf.train.Training"  # it checks its own values, and accepts None for a default


def check_kinds(bindings: Sequence[Binding]) -> None:
    """Raises ConfigurationError for the first value that its parameter's type hint does not allow.

    A type that gin cannot write allows every value, except in meshtf's own parameters. A reference with parentheses is
    allowed: its object is checked when it is made. In meshtf's own parameters, integers must be below 2^63, and other
    numbers finite.
    """
    macros = {binding.scope: binding.value for binding in bindings if binding.is_macro}
    effective = {binding.key: binding for binding in bindings if not binding.is_macro}
    for binding in effective.values():
        if binding.selector != _LOOKS_ITSELF and (parameter := _parameter(binding)) is not None:
            value = _without_macros(binding.value, macros)
            if not parameter.allows(value):
                raise ConfigurationError(
                    f"{binding.name} must be {parameter.words}, and is {value!r}{parameter.hint_for(value)}\n"
                    f"  {binding}  is from {binding.origin}"
                )


@dataclasses.dataclass(frozen=True)
class _Parameter:
    """A parameter of a configurable.

    Attributes:
      hint: its type.
      default: its value if none is bound.
      is_ours: whether the configurable is meshtf's own.
    """

    hint: Any
    default: Any
    is_ours: bool

    def allows(self, value: Any) -> bool:
        if type(value) is type(self.default) and value == self.default:  # a run writes defaults like this
            return True
        return _fits(value, self.hint, self.is_ours) and not (self.is_ours and _is_beyond(value))

    @property
    def words(self) -> str:
        return words(self.hint)

    def hint_for(self, value: Any) -> str:
        """Returns why the value is wrong, or what could have been meant."""
        if self.is_ours and _is_beyond(value):
            return "; no integer of 2^63 or more fits, and no infinity"
        if typing.get_origin(self.hint) is typing.Literal:
            return nearest(str(value), map(str, typing.get_args(self.hint)))
        is_class = not isinstance(value, gin_config.ConfigurableReference) and _is_made(self.hint)
        is_bare = isinstance(value, gin_config.ConfigurableReference) and not value.evaluate
        return "; in gin @Name() makes one, parentheses included" if is_class or is_bare else ""


def _parameter(binding: Binding) -> _Parameter | None:
    """Returns the parameter of a binding, or None if nothing is known of its type."""
    wrapped = gin_config._REGISTRY[binding.selector].wrapped
    owner = wrapped if dataclasses.is_dataclass(wrapped) or not inspect.isclass(wrapped) else wrapped.__init__
    annotation, module = _annotation(owner, binding.parameter)
    if annotation is None:
        return None

    hint = resolved_hint(annotation, inspect.getmodule(module))
    if hint is None:
        return None
    try:
        default = inspect.signature(typing.cast("Callable[..., object]", wrapped)).parameters[binding.parameter].default
    except Exception:  # of a user's own configurable, such as one whose parameters are in **options
        return None
    return _Parameter(hint, default, binding.selector.startswith(_OURS))


def _annotation(owner: Any, name: str) -> tuple[Any, Any]:
    """Returns a parameter's annotation as it was written, and the class or function that has it."""
    for holder in inspect.getmro(owner) if inspect.isclass(owner) else [inspect.unwrap(owner)]:
        annotations = inspect.get_annotations(holder)
        if name in annotations:
            return annotations[name], holder
    return None, None


def _without_macros(value: Any, macros: Mapping[str, Any]) -> Any:
    """Replaces macros by their values, unless these have further references."""
    for _ in macros:
        if not isinstance(value, gin_config.ConfigurableReference) or value.config_key[1] != MACRO:
            break
        value = macros.get(value.config_key[0], value)
    return value


def _fits(value: Any, hint: Any, is_ours: bool) -> bool:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return True
    if origin in UNIONS:
        return any(_fits(value, argument, is_ours) for argument in arguments)
    if origin is typing.Literal:
        return isinstance(value, gin_config.ConfigurableReference) or any(
            type(value) is type(x) and value == x for x in arguments
        )
    if isinstance(value, gin_config.ConfigurableReference):
        return value.evaluate or _takes_bare(value, hint)
    if hint in SCALARS:
        return _is_scalar(value, hint)
    if (origin or hint) in LISTS:
        if not isinstance(value, list | tuple):
            return False
        if origin is tuple and Ellipsis not in arguments:
            return len(value) == len(arguments) and all(map(_fits, value, arguments, [is_ours] * len(value)))
        return all(_fits(x, arguments[0], is_ours) for x in value if arguments)
    if (origin or hint) in DICTS:
        return isinstance(value, dict) and all(_fits(x, arguments[-1], is_ours) for x in value.values() if arguments)
    return not (is_ours and _is_made(hint)) or (inspect.isclass(hint) and _is_instance(value, hint))


def _is_scalar(value: Any, hint: type) -> bool:
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, hint) and (hint is bool or not isinstance(value, bool))


def _is_made(hint: Any) -> bool:
    """Tells whether no literal has this type, because it is a class of objects or a function."""
    origin = typing.get_origin(hint) or hint
    if origin in UNIONS:
        return any(_is_made(argument) for argument in typing.get_args(hint))
    return origin is collections.abc.Callable or (
        inspect.isclass(origin) and origin not in (*SCALARS, *LISTS, *DICTS, object)
    )


def _is_instance(value: Any, hint: type) -> bool:
    try:
        return isinstance(value, hint)
    except TypeError:  # a protocol that isinstance does not support
        return False


def _takes_bare(reference: gin_config.ConfigurableReference, hint: Any) -> bool:
    """Tells whether `@Name`, without parentheses, is possible: not for a number, nor for an object that the
    class makes.
    """
    if hint in SCALARS or (typing.get_origin(hint) or hint) in (*LISTS, *DICTS):
        return False
    wrapped = reference.configurable.wrapped
    return not (inspect.isclass(wrapped) and inspect.isclass(hint))


def _is_beyond(value: Any) -> bool:
    """Tells whether it has a number that no parameter takes."""
    if isinstance(value, list | tuple):
        return any(map(_is_beyond, value))
    if isinstance(value, int) and not isinstance(value, bool):
        return abs(value) >= INTEGER_END
    return isinstance(value, float) and not math.isfinite(value)
