"""Settings of a model from the configuration beside its weights: numbers and choices, as a family names them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

from meshtf.checkpoint.conversion.axes import RuleFault
from meshtf.errors import CheckpointError

Value = int | float | bool | str | None
Shapes = Mapping[str, Sequence[int]]
"""The shapes of the tensors that are converted, by name."""

ACTIVATIONS: Mapping[str, Value] = {
    "relu": "relu",
    "gelu": "gelu_exact",
    "gelu_python": "gelu_exact",
    "gelu_new": "gelu",
    "gelu_fast": "gelu",
    "gelu_accurate": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "gelu_python_tanh": "gelu",
    "silu": "swish",
    "swish": "swish",
    "tanh": "tanh",
    "sigmoid": "sigmoid",
    "relu2": "squared_relu",
}
"""Transformers' names of activations, with the names here; `values = "activations"` in a file of rules."""

_LARGEST = 2.0**63
_LARGEST_POWER = 4
_UNKNOWN = """\
the configuration {where} lacks {keys}, from which {setting} comes{null}: it is of another family, or of a version \
of the library that calls it otherwise; or the model has none, and a value must be chosen and written there"""


_TOO_FEW = """\
the configuration {where} gives {setting} = {value}{source}, and there is such a model here for {least} or more{why}"""
_REGRESSION = """\
. In Transformers one class is a regression, which there is not here"""


@dataclasses.dataclass(frozen=True)
class Setting:
    """A rule that makes one setting from a configuration.

    Attributes:
      name: the name of the setting.
      sources: the sources of the value, of which the first that is there counts. A source is a key, a dotted path of
        keys, or a value that is no text. It may also be keys, numbers and quoted texts with operators between them
        (`+`, `-`, `*`, `/`, `**` or `==`), evaluated from left to right.
      values: the names here of the configuration's values. If they are given, no other value is known.
      shape_of: the names of tensors and the number of a dimension, if the setting is this size of the first that is
        there. Without these tensors the sources count.
      is_given: whether the setting only says that the configuration has a value.
      has_tensor: names of tensors, if the setting says whether one of them is there.
      below: the key of a number that a value must be below. If it is not, the next source counts.
      least: the smallest value that there is a model for.
      counts: whether the setting is the number of entries, where the value is a list or a table.
    """

    name: str
    sources: tuple[Value, ...] = ()
    values: Mapping[str, Value] = dataclasses.field(default_factory=dict)
    shape_of: tuple[tuple[str, ...], int] | None = None
    is_given: bool = False
    counts: bool = False
    has_tensor: tuple[str, ...] = ()
    below: str | None = None
    least: int | None = None

    @classmethod
    def parse(cls, name: str, content: Any) -> Setting:
        """Reads a source, a list of them, or a table of a file of rules. Raises RuleFault if it is none of them."""
        if isinstance(content, str | int | float | bool):
            return cls(name, (content,))
        if isinstance(content, list):
            return cls(name, tuple(content))
        fields = {
            "key",
            "default",
            "values",
            "shape_of",
            "dimension",
            "is_given",
            "counts",
            "has_tensor",
            "below",
            "least",
        }
        if not isinstance(content, dict) or (unknown := set(content) - fields):
            extra = f"; {', '.join(sorted(unknown))} is not" if isinstance(content, dict) else ""
            raise RuleFault(f"settings.{name} must be a key, a list, or a table of {', '.join(sorted(fields))}{extra}")
        keys = content.get("key", [])
        sources: tuple[Any, ...] = (
            *([keys] if isinstance(keys, str) else keys),
            *(_Constant(v) for v in _default(content)),
        )
        shape_of = (_names(content["shape_of"]), content.get("dimension", 0)) if "shape_of" in content else None
        is_given, counts = content.get("is_given", False), content.get("counts", False)
        values = ACTIVATIONS if content.get("values") == "activations" else content.get("values", {})
        return cls(
            name,
            sources,
            values,
            shape_of,
            is_given,
            counts,
            _names(content.get("has_tensor", ())),
            content.get("below"),
            content.get("least"),
        )

    @property
    def keys(self) -> set[str]:
        """The keys of the configuration from which the setting comes, dotted if they are of a table."""
        found = {key for source in self.sources for key in keys_of(source)}
        return found if self.below is None else {*found, self.below}

    def value(self, configuration: Mapping[str, Any], shapes: Shapes, where: str) -> Value:
        """The value of the setting.

        Raises:
          CheckpointError: the configuration has none of the sources, or a value that is not known here.
        """
        # Some settings are seen in the weights: by a tensor that is there, or by a size of its shape.
        if self.has_tensor:
            return any(name in shapes for name in self.has_tensor)
        if self.shape_of is not None:
            tensors, dimension = self.shape_of
            found_shapes = [shapes[tensor] for tensor in tensors if tensor in shapes]
            if found_shapes and len(found_shapes[0]) > dimension:
                return found_shapes[0][dimension]
            if not self.sources:
                raise CheckpointError(f"the weights lack {tensors[0]}, whose shape gives {self.name}")
        # The others are in the configuration, under the first of their keys that has a value.
        values = (evaluated(source, configuration) for source in self.sources)
        found = next((v for v in values if v is not None and self._is_below(v, configuration)), None)
        if self.is_given:
            return found is not None and found is not False
        if self.counts and isinstance(found, Sequence | Mapping):
            found = len(found)
        if self.least is not None and isinstance(found, int) and found < self.least:
            source = next((f", from {s}" for s in self.sources if isinstance(s, str) and " " in s), "")
            why = _REGRESSION * self.counts
            told = _TOO_FEW.format(
                where=where, setting=self.name, value=found, source=source, least=self.least, why=why
            )
            raise CheckpointError(told)
        if found is None and None not in [s.value for s in self.sources if isinstance(s, _Constant)]:
            keys = " and ".join(str(s) for s in self.sources)
            null = ", and has null in its place" if any(str(s) in configuration for s in self.sources) else ""
            raise CheckpointError(_UNKNOWN.format(where=where, keys=keys, setting=self.name, null=null))
        # A rule may list the values that it knows, each with what it stands for here.
        if not self.values:
            return found
        if str(found) not in self.values:
            key = next(source for source in self.sources if evaluated(source, configuration) is not None)
            raise CheckpointError(
                f"the configuration {where} has {key} = {found!r}, and these rules know "
                f"{', '.join(self.values)}: there is no such model here"
            )
        return self.values[str(found)]

    def _is_below(self, value: Value, configuration: Mapping[str, Any]) -> bool:
        bound = None if self.below is None else evaluated(self.below, configuration)
        return bound is None or not _are_numbers(value, bound) or 0 <= value < bound  # type: ignore[operator]


@dataclasses.dataclass(frozen=True)
class _Constant:
    """A value that no configuration has to have; a text among the sources would be a key."""

    value: Value


def _default(content: Mapping[str, Any]) -> list[Value]:
    return [content["default"]] if "default" in content else []


def _names(value: str | Sequence[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def keys_of(source: Any) -> list[str]:
    """The keys of a source; an entry of a list stands for the list."""
    if not isinstance(source, str):
        return []
    words = source.split()[::2]
    keys = [word for word in words if not word.startswith("'") and not word.replace(".", "", 1).lstrip("-").isdigit()]
    return [key.rstrip("0123456789").rstrip(".") if re.search(r"\.\d+$", key) else key for key in keys]


def evaluated(source: Any, configuration: Mapping[str, Any]) -> Value:
    """The value of a source; None if the configuration lacks a key of it."""
    if isinstance(source, _Constant):
        return source.value
    if not isinstance(source, str):
        return source
    first, *rest = source.split()
    if len(rest) % 2:
        raise RuleFault(f"{source!r} ends in an operator")
    found = _operand(first, configuration)
    for operator, text in zip(rest[::2], rest[1::2], strict=True):
        operand = _operand(text, configuration)
        found = _result(found, operator, operand)
    return found


def _result(a: Any, operator: str, b: Any) -> Value:
    if operator not in ("+", "-", "*", "/", "**", "=="):
        raise RuleFault(f"{operator!r} cannot stand between settings; +, -, *, /, ** and == can")
    if operator == "==":
        return None if a is None or b is None else a == b
    if not _are_numbers(a, b):
        return None
    if operator in ("+", "-"):
        return a + b if operator == "+" else a - b
    if operator == "**":
        return float(a) ** b if a > 0 and abs(b) <= _LARGEST_POWER else None
    return a * b if operator == "*" else _quotient(a, b)


def _quotient(a: float, b: float) -> float | None:
    if b == 0:
        return None
    return a // b if isinstance(a, int) and isinstance(b, int) and a % b == 0 else a / b


def _are_numbers(*values: Any) -> bool:
    return all(isinstance(v, int | float) and not isinstance(v, bool) and abs(v) < _LARGEST for v in values)


def _operand(text: str, configuration: Mapping[str, Any]) -> Any:
    if text.startswith("'") and text.endswith("'"):
        return text[1:-1]
    try:
        return float(text) if "." in text or "e" in text else int(text)
    except ValueError:
        pass
    if text in configuration:
        return configuration[text]
    found: Any = configuration
    for key in text.split("."):
        if isinstance(found, Sequence) and not isinstance(found, str) and key.isdigit() and int(key) < len(found):
            found = found[int(key)]
        elif isinstance(found, Mapping) and key in found:
            found = found[key]
        else:
            return None
    return found


def holds(conditions: Sequence[str], settings: Mapping[str, Value]) -> bool:
    """Whether all of these conditions hold: `tied`, `!tied` for the opposite, `tied|shared` where one will do."""
    return all(
        any(bool(settings[name]) is not is_negated for name, is_negated in alternatives(condition))
        for condition in conditions
    )


def alternatives(condition: str) -> list[tuple[str, bool]]:
    """The settings of a condition, and whether each is negated."""
    return [(text.strip().removeprefix("!"), text.strip().startswith("!")) for text in condition.split("|")]
