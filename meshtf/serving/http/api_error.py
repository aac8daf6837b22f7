"""Errors of requests, as objects of the OpenAI-style schema."""

from __future__ import annotations

import dataclasses
from typing import Any

INVALID = "invalid_request_error"
_KINDS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    503: "overloaded_error",
}


@dataclasses.dataclass
class ApiError(Exception):
    """An error that a request gets as its reply.

    Attributes:
      message: one sentence on what is wrong, and what to do.
      status: the HTTP status.
      param: the wrong field.
      code: a word for programs.
      retry_after: the seconds after which the client may retry.
    """

    message: str
    status: int = 400
    param: str | None = None
    code: str | None = None
    retry_after: int | None = None

    def __str__(self) -> str:
        return self.message

    def body(self) -> dict[str, Any]:
        """Returns the reply's JSON object."""
        kind = _KINDS.get(self.status, INVALID if self.status < 500 else "server_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def headers(self) -> dict[str, str]:
        """Returns the reply's headers for the error."""
        found = {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}
        return found | ({"WWW-Authenticate": "Bearer"} if self.status == 401 else {})
