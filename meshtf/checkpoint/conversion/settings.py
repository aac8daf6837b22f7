"""Settings of a model: numbers and choices, read from the configuration beside its weights, under a family's names."""

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
"""meshtf's names of activations, by Transformers' names. `values = "activations"` in a file of rules means these."""

_LARGEST = 2.0**63
_LARGEST_POWER = 4
_UNKNOWN = """\
the configuration {where} lacks {keys}, from which {setting} comes{null}: it belongs to another family, or to a \
version of the library that uses another name. If the model has no such value, choose one and write it there"""


_TOO_FEW = """\
the configuration {where} gives {setting} = {value}{source}, and meshtf has such a model for {least} or more{why}"""
_REGRESSION = """\
. In Transformers one class means a regression, which meshtf does not have"""


@dataclasses.dataclass(frozen=True)
class Setting:
    """A rule that makes one setting from a configuration.

    Attributes:
      name: the name of the setting.
      sources: the sources of the value. The first one that has a value counts. A source is a key, a dotted path of
        keys, or a value that is no text. It may also be keys, numbers and quoted texts with operators between them
        (`+`, `-`, `*`, `/`, `**` or `==`), evaluated from left to right.
      values: meshtf's name for each value of the configuration. If it is given, any other value is an error.
      shape_of: the names of tensors, and the number of a dimension. The setting is the size of this dimension in the
        first tensor that exists. If none exists, the sources count.
      is_given: whether the setting only says if the configuration has a value.
      has_tensor: names of tensors. The setting only says whether one of them exists.
      below: the key of an upper bound. A value that is not below it is skipped, and the next source counts.
      least: the smallest value that meshtf's model supports.
      counts: whether the setting is the number of entries, if the value is a list or a table.
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
        """Reads a setting in a file of rules: a source, a list of sources, or a table. Raises RuleFault otherwise."""
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
        """The keys of the configuration that the setting reads. Keys in tables are dotted."""
        found = {key for source in self.sources for key in keys_of(source)}
        return found if self.below is None else {*found, self.below}

    def value(self, configuration: Mapping[str, Any], shapes: Shapes, where: str) -> Value:
        """The value of the setting.

        Raises:
          CheckpointError: if the configuration has none of the sources, or if it has an unknown value.
        """
        # Some settings come from the weights: from the existence of a tensor, or from a size of its shape.
        if self.has_tensor:
            return any(name in shapes for name in self.has_tensor)
        if self.shape_of is not None:
            tensors, dimension = self.shape_of
            found_shapes = [shapes[tensor] for tensor in tensors if tensor in shapes]
            if found_shapes and len(found_shapes[0]) > dimension:
                return found_shapes[0][dimension]
            if not self.sources:
                raise CheckpointError(f"the weights lack {tensors[0]}, whose shape gives {self.name}")
        # The others come from the configuration, from the first source that has a value.
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
        # A rule may list the known values, each with its name in meshtf.
        if not self.values:
            return found
        if str(found) not in self.values:
            key = next(source for source in self.sources if evaluated(source, configuration) is not None)
            raise CheckpointError(
                f"the configuration {where} has {key} = {found!r}, and these rules know "
                f"{', '.join(self.values)}: meshtf has no such model"
            )
        return self.values[str(found)]

    def _is_below(self, value: Value, configuration: Mapping[str, Any]) -> bool:
        bound = None if self.below is None else evaluated(self.below, configuration)
        return bound is None or not _are_numbers(value, bound) or 0 <= value < bound  # type: ignore[operator]


@dataclasses.dataclass(frozen=True)
class _Constant:
    """A constant value, such as a default. It is a class because a plain text among the sources would be a key."""

    value: Value


def _default(content: Mapping[str, Any]) -> list[Value]:
    return [content["default"]] if "default" in content else []


def _names(value: str | Sequence[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def keys_of(source: Any) -> list[str]:
    """The keys of a source. A key of a list's entry becomes the key of the list."""
    if not isinstance(source, str):
        return []
    words = source.split()[::2]
    keys = [word for word in words if not word.startswith("'") and not word.replace(".", "", 1).lstrip("-").isdigit()]
    return [key.rstrip("0123456789").rstrip(".") if re.search(r"\.\d+$", key) else key for key in keys]


def evaluated(source: Any, configuration: Mapping[str, Any]) -> Value:
    """The value of a source, or None if the configuration lacks one of its keys."""
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
    """Whether all conditions hold. Their forms are `tied`, `!tied` for the opposite, and `tied|shared` for either."""
    return all(
        any(bool(settings[name]) is not is_negated for name, is_negated in alternatives(condition))
        for condition in conditions
    )


def alternatives(condition: str) -> list[tuple[str, bool]]:
    """The settings of a condition, and whether each is negated."""
    return [(text.strip().removeprefix("!"), text.strip().startswith("!")) for text in condition.split("|")]
