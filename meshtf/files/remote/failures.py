"""Failures of remote storage: reports them without secrets, and retries requests if that may help."""

from __future__ import annotations

import errno
import re
import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")

ATTEMPTS = 5
"""The attempts of each request, in addition to retries by the storage library."""

FIRST_PAUSE = 0.25
"""Seconds before the second attempt. Each further pause is twice as long."""

_FINAL = (
    *(FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError, PermissionError),
    *(ImportError, NotImplementedError, TypeError, ValueError),
)
"""Errors that another attempt would not change."""

_USER = re.compile(r"(?<=://)[^/@\s]+@")
_QUERY = re.compile(r"(\w+://[^\s?'\"]+)\?[^\s'\",]*")


class StorageError(OSError):
    """Storage cannot be reached, or refuses a request. The message has the address, the request and the answer."""


def without_secrets(text: str) -> str:
    """Returns the text without users, passwords and queries in its addresses."""
    return _QUERY.sub(r"\1", _USER.sub("", text))


def persistent(what: str, request: Callable[[], Value], pause: float = FIRST_PAUSE) -> Value:
    """Returns the result of a request, with retries after errors that may be temporary.

    Args:
      what: the request, for messages: a verb and an address.
      request: makes the request. It must be safe to call twice.
      pause: seconds before the second attempt.

    Raises:
      FileNotFoundError: if there is no such file.
      StorageError: if every attempt has failed, or if another attempt would not help.
    """
    for left in reversed(range(ATTEMPTS)):
        try:
            return request()
        except FileNotFoundError:
            raise FileNotFoundError(errno.ENOENT, "it is not there", without_secrets(what)) from None
        except Exception as error:  # each storage library has its own
            if isinstance(error, _FINAL) or not left:
                raise StorageError(_number(error), _said(what, error)) from None
        time.sleep(pause)
        pause *= 2
    raise AssertionError("unreachable")


def _number(error: Exception) -> int:
    if isinstance(error, PermissionError):
        return errno.EACCES
    return error.errno if isinstance(error, OSError) and error.errno else errno.EIO


def _said(what: str, error: Exception) -> str:
    said = str(getattr(error, "strerror", None) or error) or type(error).__name__
    return without_secrets(f"{what} failed: {type(error).__name__}: {said}")
