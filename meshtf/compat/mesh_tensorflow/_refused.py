"""Names of the original that this package lacks, each with its replacement."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NoReturn

from meshtf.errors import unknown_name


def refusing(module: str, public: Iterable[str], refused: Mapping[str, str]) -> Callable[[str], NoReturn]:
    """Makes the `__getattr__` of a module.

    It raises an AttributeError that names the replacement if the original has the name.
    """
    unknown = unknown_name(module, public)

    def raise_for(name: str) -> NoReturn:
        if name in refused:
            raise AttributeError(f"{module}.{name} is not here; write: {refused[name]}")
        unknown(name)

    return raise_for
