"""The facts that meshtf-launch passes to each process that it starts, in one environment variable."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from meshtf_programs.strict_json import json_text

MESHTF_LAUNCH = "MESHTF_LAUNCH"
"""The variable. `mtf.initialize_cluster()` reads it before all others, and meshtf's programs join if it is set."""


@dataclasses.dataclass(frozen=True)
class Launched:
    """The processes of a job, and which of them this one is.

    Attributes:
      process_index: the index of this process, from 0.
      addresses: the addresses of all, as "host:port", by index.
      token: a token that all share.
      cores_per_process: the number of cores that the user gave. None: as many as the mesh needs.
    """

    process_index: int
    addresses: tuple[str, ...]
    token: str
    cores_per_process: int | None = None

    @classmethod
    def from_text(cls, text: str) -> Launched:
        """Reads a text that `to_text` made. Raises ValueError for any other text."""
        try:
            values: dict[str, Any] = json.loads(text)
            found = cls(**{**values, "addresses": tuple(values["addresses"])})
        except (TypeError, KeyError, ValueError) as error:
            raise ValueError(f"it is not as meshtf-launch writes it: {error}") from None
        if type(found.process_index) is not int or not 0 <= found.process_index < len(found.addresses):
            raise ValueError(f"process {found.process_index} of {len(found.addresses)} processes")
        return found

    def to_text(self) -> str:
        return json_text(dataclasses.asdict(self))
