"""A form that takes the compiler years: one string must match twenty patterns."""

from __future__ import annotations

import json

from meshtf.train.decoding.forms.constraints import Constraint

_PATTERNS = [f".*{chr(97 + n)}.*{chr(98 + n)}.*" for n in range(20)]
ENDLESS = Constraint("json_schema", json.dumps({"allOf": [{"type": "string", "pattern": p} for p in _PATTERNS]}))
