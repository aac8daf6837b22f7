"""The bindings of a source by scope, and the rules that translate them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from meshtf.checkpoint.conversion.operative_config import Binding

SIDES = ("encoder", "decoder")
NOT_LITERAL = object()


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The result of translating a binding.

    Attributes:
      lines: lines of meshtf's gin by the bound name. There are none where meshtf does the same by default.
      lost: the part that the lines lack, in words. Empty if they lack nothing.
    """

    lines: Mapping[str, str] = dataclasses.field(default_factory=dict)
    lost: str = ""


CARRIED = Outcome()


def lost(why: str) -> Outcome:
    return Outcome(lost=why)


class Source:
    """Finds bindings as gin does.

    In the scope `encoder`, a binding with this scope wins over one without it. The last binding of a name wins.
    """

    def __init__(self, bindings: Sequence[Binding]) -> None:
        self.bindings = tuple(bindings)
        self._by_name = {binding.name: binding for binding in bindings}

    def find(self, parameter: str, side: str = "") -> Binding | None:
        return self._by_name.get(f"{side}/{parameter}") or self._by_name.get(parameter)

    def value(self, parameter: str, side: str = "", default: Any = None) -> Any:
        found = self.find(parameter, side)
        return default if found is None else literal(found)

    def is_replaced(self, binding: Binding) -> bool:
        """Whether a later line binds the same name."""
        return self._by_name[binding.name] is not binding

    def agrees(self, parameter: str) -> bool:
        """Whether encoder and decoder have the same value."""
        found = [self.find(parameter, side) for side in SIDES]
        return len({None if each is None else each.resolved for each in found}) == 1


Rule = Callable[[Binding, Source], Outcome]
"""A function that translates a binding. Raises ValueError, or the like, if Mesh TensorFlow would refuse the value."""


def literal(binding: Binding) -> Any:
    """The value of a binding, or NOT_LITERAL."""
    return binding.value if binding.value is not None or binding.resolved == "None" else NOT_LITERAL


def reference(text: str) -> str:
    """The name to which a reference points, without its modules: `constant` for
    `@learning_rate_schedules.constant`.
    """
    return text.strip().lstrip("@").removesuffix("()").rpartition("/")[2].rpartition(".")[2]


def is_adafactor(source: Source) -> bool:
    """Whether the optimizer is Mesh TensorFlow's usual one."""
    given = source.find("run.optimizer")
    return given is None or reference(given.resolved) == "AdafactorOptimizer"


def number(binding: Binding) -> str:
    if not isinstance(binding.value, int | float) or isinstance(binding.value, bool):
        raise ValueError(f"{binding.resolved} is no number")
    return repr(binding.value)


def truth(binding: Binding) -> str:
    if not isinstance(binding.value, bool):
        raise ValueError(f"{binding.resolved} is neither True nor False")
    return repr(binding.value)


def by_side(*targets: str, macro: str = "", read: Callable[[Binding], str] = number) -> Rule:
    """Makes a rule for a parameter that encoder and decoder may set separately, in both libraries.

    `macro` is the macro that the targets have by default.
    """

    def rule(binding: Binding, source: Source) -> Outcome:
        if binding.scope not in ("", *SIDES):
            return lost(f"nothing is made in a scope {binding.scope}, of Mesh TensorFlow's encoder or decoder")
        is_as_anyway = bool(macro) and binding.text == f"%{macro}"
        if is_as_anyway and (not binding.scope or source.find(binding.plain_name) is None):
            return CARRIED
        prefix = f"{binding.scope}/" if binding.scope else ""
        value = binding.text if is_as_anyway else read(binding)
        return Outcome({f"{prefix}{target}": value for target in targets})

    return rule


def of_both(*targets: str, macro: str = "", read: Callable[[Binding], str] = number) -> Rule:
    """Makes a rule for a parameter that encoder and decoder share in meshtf."""

    def rule(binding: Binding, source: Source) -> Outcome:
        if not source.agrees(binding.plain_name):
            return lost(f"encoder and decoder differ, and have one {targets[0]} here")
        if macro and binding.text == f"%{macro}":
            return CARRIED
        return Outcome(dict.fromkeys(targets, read(binding)))

    return rule


def of_decoder(*targets: str, read: Callable[[Binding], str] = number) -> Rule:
    """Makes a rule for a parameter that has no effect in an encoder, which has neither logits nor a loss."""

    def rule(binding: Binding, source: Source) -> Outcome:
        found = source.find(binding.plain_name, "decoder")
        if found is None or binding.scope == "encoder":
            return CARRIED
        return Outcome(dict.fromkeys(targets, read(found)))

    return rule


def without_scope(*targets: str, macro: str = "", read: Callable[[Binding], str] = number) -> Rule:
    """Makes a rule for a parameter that Mesh TensorFlow reads outside any scope."""

    def rule(binding: Binding, source: Source) -> Outcome:
        if binding.scope:
            return lost(
                "Mesh TensorFlow reads it where there is no scope, so that this line does nothing there, either"
            )
        if macro and binding.text == f"%{macro}":
            return CARRIED
        return Outcome(dict.fromkeys(targets, read(binding)))

    return rule


def same(*values: Any, otherwise: str) -> Rule:
    """Makes a rule for a parameter that has one of these values in meshtf as well. Other values are lost."""

    def rule(binding: Binding, source: Source) -> Outcome:
        found = literal(binding)
        is_same = any(found == value and type(found) is type(value) for value in values)
        return CARRIED if is_same else lost(otherwise)

    return rule


def without_effect(binding: Binding, source: Source) -> Outcome:
    """Translates a parameter that changes no result, such as the name of a variable or how it is stored."""
    return CARRIED
