"""Replies of JSON."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from meshtf_programs.strict_json import json_text


class JsonResponse(Response):
    """A reply of JSON, by JSON's standard."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return json_text(content, ensure_ascii=False, separators=(",", ":")).encode()
