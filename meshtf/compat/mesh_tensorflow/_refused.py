"""Names of the original that are not here, each with what to write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NoReturn

from meshtf.errors import unknown_name


def refusing(module: str, public: Iterable[str], refused: Mapping[str, str]) -> Callable[[str], NoReturn]:
    """The `__getattr__` of a module: AttributeError, with what to write where a name is known to be the original's."""
    unknown = unknown_name(module, public)

    def raise_for(name: str) -> NoReturn:
        if name in refused:
            raise AttributeError(f"{module}.{name} is not here; write: {refused[name]}")
        unknown(name)

    return raise_for
