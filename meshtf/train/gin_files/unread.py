"""Finds bindings that nothing reads. Each is an error, as is a layout rule for a missing dimension."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Sequence

import gin
from gin import config as gin_config

from meshtf.errors import nearest
from meshtf.train.gin_files.bindings import MACRO, Binding, present_bindings
from meshtf.train.gin_files.errors import ConfigurationError

_MESSAGE = """\
nothing reads {what}:
{lines}
Correct or remove {them}, or allow {them} in gin, as optional_bindings.names = ["{name}"], or give
--allow_unread_bindings."""

_MOST_LINES = 6


@gin.configurable(module="meshtf.train")
def optional_bindings(names: Sequence[str]) -> None:
    """Names bindings that may go unread: a macro's name, a configurable's ("CosineSchedule"), or a binding's whole
    name.

    Bind it in gin. It is never called. For example, a file of sizes for many models sets a size that one of them
    lacks.
    """


_OPTIONAL = "optional_bindings"


def check_bindings_are_read(bindings: Sequence[Binding]) -> None:
    """Checks the bindings. Call it when all configured objects are made and the programs are built.

    A binding is read when gin has given its value to a call. It also counts as read if a later binding, or one with a
    closer scope, replaced it: for example the rates of an optimizer that another one replaces.

    Raises:
      ConfigurationError: if some are not read, and not optional.
    """
    optional = {name for b in present_bindings() if b.configurable == _OPTIONAL for name in b.value}
    read = _Read.of(present_bindings())
    unread = {
        b.name: b
        for b in bindings
        if b.configurable != _OPTIONAL and not optional & {b.name, b.configurable} and not read.has(b)
    }
    if unread:
        raise ConfigurationError(_message(list(unread.values()), read))


@dataclasses.dataclass(frozen=True)
class _Read:
    """The bindings that have been read.

    Attributes:
      calls: the parameters that gin gave in calls of each configurable, by the scope of the call.
      displaced: macros and configurables that calls would have used if other bindings had not replaced them.
    """

    calls: dict[tuple[str, str], frozenset[str]]
    displaced: Collection[str]

    @classmethod
    def of(cls, bindings: Sequence[Binding]) -> _Read:
        with gin_config._OPERATIVE_CONFIG_LOCK:
            calls = {key: frozenset(values) for key, values in gin_config._OPERATIVE_CONFIG.items()}
        read = cls(calls, ())
        displaced: set[str] = set()
        waiting = {t for b in bindings if read.has(b) and _may_not_be_called(b, bindings) for t in _targets(b)}
        while waiting:
            displaced.add(target := waiting.pop())
            waiting |= {t for b in bindings if _name_of(b) == target for t in _targets(b)} - displaced
        return cls(calls, displaced)

    def has(self, binding: Binding) -> bool:
        return _name_of(binding) in self.displaced or any(
            binding.parameter in parameters
            for (scope, selector), parameters in self.calls.items()
            if selector == binding.selector and f"{scope}/".startswith(f"{binding.scope}/" if binding.scope else "")
        )

    @property
    def names(self) -> list[str]:
        return sorted({selector.rpartition(".")[2] for _, selector in self.calls if selector != MACRO})


def _may_not_be_called(binding: Binding, bindings: Sequence[Binding]) -> bool:
    """Tells whether another binding replaces it in some calls, or it passes on a reference that is not called yet."""
    later = bindings[bindings.index(binding) + 1 :]
    return (
        any(other.key == binding.key for other in later)
        or any(not reference.evaluate for reference in binding.references)
        or any(
            (other.selector, other.parameter) == (binding.selector, binding.parameter)
            and other.scope.startswith(f"{binding.scope}/" if binding.scope else "")
            and other.scope != binding.scope
            for other in bindings
        )
    )


def _name_of(binding: Binding) -> str:
    return f"%{binding.scope}" if binding.is_macro else binding.selector


def _targets(binding: Binding) -> set[str]:
    """Returns the macros and configurables that its value refers to."""
    keys = (reference.config_key for reference in binding.references)
    return {f"%{scope}" if selector == MACRO else selector for scope, selector in keys}


def _message(unread: Sequence[Binding], read: _Read) -> str:
    wanted = {target for binding in unread for target in _targets(binding)}
    first = [b for b in unread if _name_of(b) not in wanted] or list(unread)  # the others follow from these
    lines = [f"  {binding}  is from {binding.origin}{_reason(binding, read)}" for binding in first[:_MOST_LINES]]
    if more := len(unread) - len(lines):
        lines.append(f"  and {more} more")
    what, them = ("this binding", "it") if len(unread) == 1 else (f"these {len(unread)} bindings", "them")
    name = first[0].name if first[0].is_macro else first[0].configurable
    return _MESSAGE.format(what=what, lines="\n".join(lines), them=them, name=name)


def _reason(binding: Binding, read: _Read) -> str:
    if binding.is_macro:
        macros = [reference.config_key[0] for b in present_bindings() for reference in _macros_in(b)]
        return f": no binding that is read has %{binding.scope}{nearest(binding.scope, macros)}"
    scopes = sorted({scope for scope, selector in read.calls if selector == binding.selector})
    if not scopes:
        return f": no @{binding.configurable}() is made{nearest(binding.configurable, read.names)}"
    if binding.scope and not any(f"{scope}/".startswith(f"{binding.scope}/") for scope in scopes):
        used = ", ".join(scope or "no scope" for scope in scopes)
        return f": it is made in {used}, and not in {binding.scope}{nearest(binding.scope, scopes)}"
    return f": the caller of {binding.configurable} sets {binding.parameter} itself"


def _macros_in(binding: Binding) -> Iterator[gin_config.ConfigurableReference]:
    return (reference for reference in binding.references if reference.config_key[1] == MACRO)
