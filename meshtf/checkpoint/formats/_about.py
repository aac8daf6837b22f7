"""The metadata that meshtf writes beside the tensors into files of other formats: the step, and the run's state."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from meshtf.checkpoint._manifest_content import is_count, shown
from meshtf_programs.strict_json import json_text


@dataclasses.dataclass(frozen=True)
class About:
    """The step after which tensors were saved, the run's own state, and the names of tensors that were bfloat16."""

    step: int = 0
    state: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    bfloat16: tuple[str, ...] = ()

    @classmethod
    def of_text(cls, text: str) -> About:
        """Reads the facts from JSON.

        Raises:
          ValueError: if it is no JSON, or if a value is impossible.
        """
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"its metadata are not JSON: {error}") from None
        if not isinstance(content, dict):
            raise ValueError(f"its metadata are {shown(content)}, not an object")
        step, state, bfloat16 = content.get("step", 0), content.get("state", {}), content.get("bfloat16", [])
        if not is_count(step):
            raise ValueError(f"its step is {shown(step)}, and must be a whole number, 0 or more")
        if not isinstance(state, dict):
            raise ValueError(f"its state is {shown(state)}, and must be an object")
        if not isinstance(bfloat16, list) or not all(isinstance(name, str) for name in bfloat16):
            raise ValueError(f"its list of bfloat16 tensors is {shown(bfloat16)}")
        return cls(step, state, tuple(bfloat16))

    def text(self) -> str:
        return json_text({"step": self.step, "state": dict(self.state), "bfloat16": list(self.bfloat16)})
