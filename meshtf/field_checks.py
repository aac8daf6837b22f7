"""Checks of the fields of dataclasses: their kinds by their type hints, and their ranges.

Python checks no type hint. Without these checks a wrong value ends in an error of whatever uses it first, or in wrong
numbers. When a function of the language has failed, its arguments are compared with its type hints in the same way.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import functools
import inspect
import numbers
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from meshtf.errors import nearest
from meshtf.number_checks import is_number

SCALARS = {bool: "True or False", int: "an integer", float: "a number", str: "a string", type(None): "None"}
LISTS = (list, tuple, collections.abc.Sequence, collections.abc.Iterable, collections.abc.Collection)
DICTS = (dict, collections.abc.Mapping)
UNIONS = (typing.Union, types.UnionType)

INTEGER_END = 2**63


def check_kinds(owner: Any, error: type[Exception] = ValueError) -> None:
    """Checks that each field of a dataclass is of the kind that its type hint says.

    Integers must be below 2^63, and numbers finite. The names in a list are not checked, because dimensions may stand
    for their names.

    Raises:
      ValueError: a field is not, or another error that is given.
    """
    hints = _hints(type(owner))
    for field in dataclasses.fields(owner):
        value, hint = getattr(owner, field.name), hints[field.name]
        if not _fits(value, hint):
            raise error(
                f"{type(owner).__name__}: {field.name} must be {words(hint)}, and is {value!r}{_advice(value, hint)}"
            )


def unfit_argument(fn: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]) -> str:
    """Says which argument of a function is not of the kind that its type hint says; empty if all are.

    The arguments must be such that the function can be called.
    """
    signature = inspect.signature(fn)
    for name, value in signature.bind(*args, **kwargs).arguments.items():
        parameter = signature.parameters[name]
        is_one = parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if is_one and parameter.annotation is not parameter.empty:
            hint = resolved_hint(parameter.annotation, sys.modules.get(fn.__module__))
            if not _fits(value, hint):
                return f"{name} must be {words(hint)}, and is {value!r}{_advice(value, hint)}"
    return ""


def check_sizes(owner: object, *fields: str, error: type[Exception] = ValueError) -> None:
    """Checks that integers are above 0; None is left out.

    Raises:
      ValueError: one is not, or another error that is given.
    """
    _check_each(owner, fields, lambda size: size > 0, "a positive integer", error)


def check_not_negative(owner: object, *fields: str, error: type[Exception] = ValueError) -> None:
    """Checks that numbers are 0 or more; None is left out.

    Raises:
      ValueError: one is not, or another error that is given.
    """
    _check_each(owner, fields, lambda number: number >= 0, "0 or more", error)


def check_above_zero(owner: object, *fields: str, error: type[Exception] = ValueError) -> None:
    """Checks that numbers are above 0; None is left out.

    Raises:
      ValueError: one is not, or another error that is given.
    """
    _check_each(owner, fields, lambda number: number > 0, "above 0", error)


def check_fractions(owner: object, *fields: str, error: type[Exception] = ValueError) -> None:
    """Checks that numbers are at least 0 and below 1; None is left out.

    Raises:
      ValueError: one is not, or another error that is given.
    """
    _check_each(owner, fields, lambda number: 0 <= number < 1, "in [0, 1)", error)


def check_shares(owner: object, *fields: str, error: type[Exception] = ValueError) -> None:
    """Checks that numbers are from 0 to 1; None is left out.

    Raises:
      ValueError: one is not, or another error that is given.
    """
    _check_each(owner, fields, lambda number: 0 <= number <= 1, "in [0, 1]", error)


def check_choice(owner: object, field: str, choices: Iterable[str], error: type[Exception] = ValueError) -> None:
    """Checks that a text is one of some.

    Raises:
      ValueError: it is not, or another error that is given.
    """
    value, known = getattr(owner, field), list(choices)
    if value not in known:
        raise error(
            f"{type(owner).__name__}: {field} must be one of {', '.join(known)}, and is {value!r}"
            f"{nearest(str(value), known)}"
        )


def _check_each(
    owner: object, fields: Sequence[str], holds: Callable[[Any], bool], wanted: str, error: type[Exception]
) -> None:
    for field in fields:
        value = getattr(owner, field)
        check(owner, field, value is None or holds(value), wanted, error)


def check(owner: object, field: str, holds: bool, wanted: str, error: type[Exception] = ValueError) -> None:
    """Raises an error about a field unless `holds`.

    Raises:
      ValueError: `holds` is false, or another error that is given; the message says what the field must be.
    """
    if not holds:
        raise error(f"{type(owner).__name__}: {field} must be {wanted}, and is {getattr(owner, field)!r}")


def what_it_lacks(value: Any, protocol: type) -> str:
    """Says what an object lacks of a protocol. If it has nothing of it or is a class, says how gin makes an object."""
    missing = [name for name in _members(protocol) if not hasattr(value, name)]
    if inspect.isclass(value) or len(missing) == len(_members(protocol)):
        return "; in gin @Name() makes one, parentheses included"
    return f"; it lacks {', '.join(missing)}"


def resolved_hint(annotation: Any, module: ModuleType | None) -> Any:
    """The type of an annotation as it was written in a module; None if it cannot be known."""

    def holder() -> None: ...

    holder.__annotations__ = {"hint": annotation}
    try:
        return typing.get_type_hints(holder, vars(module))["hint"]
    except Exception:  # a hint may hold anything, such as a name that is imported only for type checkers
        return None


def words(hint: Any) -> str:
    """Says what a type is, such as "a number, or None"."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in UNIONS:
        return ", or ".join(dict.fromkeys(map(words, arguments)))
    if origin is typing.Literal:
        return f"one of {', '.join(map(repr, arguments))}"
    if hint in SCALARS:
        return SCALARS[hint]
    if origin is tuple and Ellipsis not in arguments:
        return f"a tuple of {' and '.join(map(words, arguments))}".replace(", or ", " or ")
    if (origin or hint) in LISTS:
        kinds = [argument for argument in arguments if argument is not Ellipsis]
        return "a list" + (f", each {' and '.join(map(words, kinds))}" if kinds else "")
    if (origin or hint) in DICTS:
        return "a dict"
    if (origin or hint) is collections.abc.Callable:
        return "a function"
    name = getattr(hint, "__name__", str(hint))
    return f"an {name}" if name[0] in "AEIOU" else f"a {name}"


@functools.cache
def _hints(owner: type) -> dict[str, Any]:
    """The type of each annotated field, also of inherited ones."""
    hints: dict[str, Any] = {}
    for base in reversed(inspect.getmro(owner)):
        for name, annotation in inspect.get_annotations(base).items():
            hints[name] = resolved_hint(annotation, sys.modules.get(base.__module__))
    return hints


def _fits(value: Any, hint: Any) -> bool:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint in SCALARS:
        return _is_scalar(value, hint)
    if origin in UNIONS:
        return any(_fits(value, argument) for argument in arguments)
    if origin is typing.Literal:
        return any(type(value) is type(x) and value == x for x in arguments)
    if (origin or hint) in LISTS:
        return _is_list(value, origin, arguments)
    if (origin or hint) in DICTS:
        return isinstance(value, collections.abc.Mapping)
    if (origin or hint) is collections.abc.Callable:
        return callable(value) and not inspect.isclass(value)
    return hint is Any or not inspect.isclass(hint) or _is_instance(value, hint)


def _is_scalar(value: Any, hint: type) -> bool:
    if hint is bool:
        return isinstance(value, bool | np.bool_)
    if hint is int:
        is_integer = isinstance(value, numbers.Integral) and not isinstance(value, bool)
        return is_integer and abs(int(value)) < INTEGER_END
    return is_number(value) if hint is float else isinstance(value, hint)


def _is_list(value: Any, origin: Any, arguments: tuple[Any, ...]) -> bool:
    is_list = isinstance(value, collections.abc.Collection) and not isinstance(value, str | bytes | dict)
    if is_list and origin is tuple and Ellipsis not in arguments:
        return len(value) == len(arguments) and all(map(_fits, value, arguments))
    if not is_list or not arguments or arguments[0] is str:
        return is_list
    return all(_fits(x, arguments[0]) for x in value)


def _is_instance(value: Any, hint: type) -> bool:
    if not getattr(hint, "_is_protocol", False):
        return isinstance(value, hint)
    return not inspect.isclass(value) and all(hasattr(value, name) for name in _members(hint))


@functools.cache
def _members(protocol: type) -> list[str]:
    """The names of what a protocol demands."""
    bases = [base for base in inspect.getmro(protocol) if getattr(base, "_is_protocol", False)]
    names = {name for base in bases for name in (*vars(base), *inspect.get_annotations(base))}
    return sorted(name for name in names if name == "__call__" or not name.startswith("_"))


def _advice(value: Any, hint: Any) -> str:
    """Says why a value is wrong, or what could have been meant."""
    if isinstance(value, float) and not is_number(value) and "number" in words(hint):
        return "; it must be finite"
    if typing.get_origin(hint) is typing.Literal:
        return nearest(str(value), map(str, typing.get_args(hint)))
    takes_text = hint is str or str in typing.get_args(hint)
    is_text = isinstance(value, str) and value.startswith("@") and not takes_text
    return "; in gin @Name() makes one, parentheses included" if inspect.isclass(value) or is_text else ""
