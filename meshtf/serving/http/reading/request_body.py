"""Reads the body of a request, within its bounds."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import ClientDisconnect, Request

from meshtf.serving.http.api_error import ApiError
from meshtf.serving.http.reading.fields import json_object
from meshtf.serving.http.server_options import ServerOptions


async def request_object(request: Request, options: ServerOptions) -> dict[str, Any]:
    """Returns the JSON object of a request.

    Raises:
      ApiError: if the body is no JSON object, is too large, or does not arrive in time.
    """
    # Browsers let pages of other sites send some other types, or none, without a preflight. They name the origin.
    default = "" if "origin" in request.headers else "application/json"
    kind = request.headers.get("content-type", default).partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError(f"The body's type is {kind[:60]!r}; send it with Content-Type: application/json.", 415)
    try:
        async with asyncio.timeout(options.head_seconds):
            return json_object(await _body(request, options.max_body_bytes))
    except TimeoutError:
        raise ApiError(f"The body did not arrive within {options.head_seconds:g} s.", 408) from None
    except ClientDisconnect:
        raise ApiError("The client left before the body had arrived.", 400) from None


async def _body(request: Request, most: int) -> bytes:
    declared = request.headers.get("content-length", "")
    size = int(declared) if declared.isascii() and declared.isdigit() and len(declared) < 19 else 0
    chunks: list[bytes] = []
    total = 0
    if size <= most:
        async for chunk in request.stream():
            chunks.append(chunk)
            total += len(chunk)
            if total > most:
                break
    if max(size, total) > most:
        raise ApiError(f"The body is larger than {most:,} bytes, the most that this server reads.", 413)
    return b"".join(chunks)
