"""An undocumented name of TensorFlow: where it is, who relies on it, and on what of it."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from collections.abc import Callable
from typing import Any


@dataclasses.dataclass(frozen=True)
class PrivateName:
    """A name, and what is expected of it.

    Attributes:
      module: that has it.
      name: in the module, with dots inside of a class.
      room_module: of meshtf/tensorflow_private, the one that uses it.
      used_for: what.
      parameters: those that are given by name.
      behaves: does with the name what is relied on; None where the tests of the room's module do.
      owner: what has the last part of the name, if no class has it.
    """

    module: str
    name: str
    room_module: str
    used_for: str
    parameters: tuple[str, ...] = ()
    behaves: Callable[[Any], None] | None = None
    owner: Callable[[], Any] | None = None

    @property
    def path(self) -> str:
        return f"{self.module}.{self.name}"

    def fault(self) -> str | None:
        """What is not as expected, and who is concerned; None where all is."""
        try:
            self._check()
        except Exception as error:
            return (
                f"{self.path} is not as meshtf/tensorflow_private/{self.room_module}.py needs it, to {self.used_for}.\n"
                f"{type(error).__name__}: {error}\n"
                "Look for its new spelling in this release of TensorFlow; all that needs it goes through that module."
            )
        return None

    def _check(self) -> None:
        found: Any = self.owner() if self.owner else importlib.import_module(self.module)
        for part in self.name.split(".")[-1 if self.owner else 0 :]:
            if not hasattr(found, part):
                raise AttributeError(f"{part} is gone")
            found = getattr(found, part)
        if self.parameters:
            there = inspect.signature(found.__init__ if inspect.isclass(found) else found).parameters
            if missing := [name for name in self.parameters if name not in there]:
                raise TypeError(f"the parameters {missing} are gone; it has {[*there]}")
        if self.behaves is not None:
            self.behaves(found)


def runtime_state() -> Any:
    """TensorFlow's state in this process."""
    return importlib.import_module("tensorflow.python.eager.context").context()
