"""Reads the fields of a request's JSON object. Each wrong value is an error with one sentence."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NoReturn, cast

from meshtf.errors import nearest
from meshtf.serving.http.api_error import ApiError
from meshtf_programs.strict_json import json_text

_SHOWN = 60
_LARGEST = 1e300  # an integer may be beyond every float
_DEEPEST = 100
_DEEP = "The body has lists or objects that are nested too deeply."


def json_object(body: bytes) -> dict[str, Any]:
    """Returns the JSON object of a request's body.

    Raises:
      ApiError: if the body is no JSON object.
    """
    try:
        found = json.loads(body.decode("utf-8"), parse_constant=_refuse_constant)
    except UnicodeDecodeError:
        raise ApiError("The body is not UTF-8; send JSON in UTF-8.") from None
    except RecursionError:
        raise ApiError(_DEEP) from None
    except ValueError as error:
        raise ApiError(f"The body is not JSON: {error}.") from None
    if not isinstance(found, dict):
        raise ApiError(f"The body must be a JSON object, and is {kind_of(found)}.")
    _check_depth(found)
    return cast("dict[str, Any]", found)


def _check_depth(value: Any) -> None:
    """Raises ApiError for a value that is too deep for recursive functions, such as the one that writes JSON."""
    level = [value]
    for _ in range(_DEEPEST):
        level = [one for each in level for one in _inner(each)]
        if not level:
            return
    raise ApiError(_DEEP)


def _inner(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return cast("dict[str, Any]", value).values()
    return cast("list[Any]", value) if isinstance(value, list) else ()


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def kind_of(value: object) -> str:
    """Returns the name that JSON has for the kind of a value."""
    kinds: dict[type, str] = {bool: "true or false", int: "a number", float: "a number", str: "a string"}
    return "null" if value is None else kinds.get(type(value), "a list" if isinstance(value, list) else "an object")


def shown(value: object) -> str:
    """Returns a value as JSON, or its kind if that is long."""
    text = json_text(value)
    return text if len(text) <= _SHOWN else kind_of(value)


def checked_text(text: str, where: str) -> str:
    """Returns a text that UTF-8 can hold.

    Raises:
      ApiError: if it has half of a surrogate pair.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ApiError(
            f"{where} has half of a surrogate pair as character {error.start}, which is no character of Unicode.",
            param=where,
        ) from None
    return text


class Fields:
    """The fields of an object. A field that is null counts as missing.

    Args:
      values: the object.
      known: the names of fields that it may have.
      unsupported: the names of fields that the schema has and this server lacks.
      where: the text before a field's name in messages.

    Raises:
      ApiError: if the object has any other field.
    """

    def __init__(
        self, values: Mapping[str, Any], known: Collection[str], unsupported: Collection[str] = (), where: str = ""
    ) -> None:
        self._values, self._where = values, where
        for name, value in values.items():
            if name in unsupported and value is not None:
                raise ApiError(f"This server does not support {where}{name}; leave it out.", param=where + name)
            if name not in known and name not in unsupported:
                shown_name = name.encode(errors="replace").decode()[:_SHOWN]
                hint = nearest(name, known)
                raise ApiError(f'There is no field "{where}{shown_name}"{hint or "."}', param=where + shown_name)

    def get(self, name: str) -> Any:
        """Returns a value as it is, or None."""
        return self._values.get(name)

    def refuse(self, name: str, wanted: str) -> NoReturn:
        """Raises ApiError for the value of a field. `wanted`: the values that it may have, in words."""
        raise ApiError(
            f"{self._where}{name} must be {wanted}, and is {shown(self.get(name))}.", param=self._where + name
        )

    def number(self, name: str, default: float, least: float, most: float, *, above: bool = False) -> float:
        """Returns a number from `least` to `most`. `above`: whether it must be greater than `least`."""
        value = self.get(name)
        if value is None:
            return default
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if (
            not is_number
            or not abs(value) < _LARGEST
            or not (least < value if above else least <= value)
            or value > most
        ):
            start = f"above {least:g}" if above else f"from {least:g}"
            self.refuse(name, f"a number {start} to {most:g}" if math.isfinite(most) else f"a number {start} on")
        return float(value)

    def integer(self, name: str, least: int, most: int) -> int | None:
        """Returns an integer from `least` to `most`, or None if the field is missing."""
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            self.refuse(name, f"an integer from {least} to {most}")
        return value

    def boolean(self, name: str) -> bool:
        """Returns true or false. A missing field is false."""
        value = self.get(name)
        if value is not None and not isinstance(value, bool):
            self.refuse(name, "true or false")
        return bool(value)

    def text(self, name: str, default: str = "") -> str:
        """Returns a text."""
        value = self.get(name)
        if value is None:
            return default
        if not isinstance(value, str):
            self.refuse(name, "a string")
        return checked_text(value, self._where + name)

    def texts(self, name: str, most: int) -> tuple[str, ...]:
        """Returns a text, or a list of at most `most` texts. None may be empty."""
        value = self.get(name)
        if value is None:
            return ()
        given = cast("Sequence[Any]", [value] if isinstance(value, str) else value)
        if not isinstance(given, list) or len(given) > most or not all(isinstance(x, str) and x for x in given):
            self.refuse(name, f"a string, or a list of at most {most} strings, and none empty")
        return tuple(checked_text(str(each), self._where + name) for each in given)
