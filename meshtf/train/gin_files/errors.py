"""Errors of configurations, and of the user's own code that they call."""

from __future__ import annotations

import os
import re
import sysconfig
import traceback
from pathlib import Path

from meshtf.errors import MeshtfError
from meshtf.train.gin_files.bindings import names_of_bindings_with, present_bindings, where_written
from meshtf_programs.packaged_configurations import shown
from meshtf_programs.user_paths import UserPathError

_ENDS_IN_CALL = re.compile(r"\n  In call to configurable '(?P<name>[^']+)' \(.*?\)(?: in scope '(?P<scope>[^']*)')?$")
_GIN_KNOWS_NO_VALUE = re.compile(r"\n  No values supplied by Gin or caller for arguments:.*", re.DOTALL)
_OTHER_CODE = ("meshtf", "gin", "absl", "tensorflow", "keras", "importlib", "runpy")


class ConfigurationError(MeshtfError, ValueError):
    """A configuration that cannot be read, or that names something unknown."""


def explained(error: Exception) -> str:
    """Returns the message of an error of a configurable that gin has called: names, values, and where they were
    written.
    """
    if (path_error := _unknown_user(error)) is not None:
        return str(path_error) + where_written("", *names_of_bindings_with(path_error.path))
    text, calls = without_calls(str(error))
    text = _GIN_KNOWS_NO_VALUE.sub("", text)
    if not calls:
        return f"{_kind(error)}{text}{_line_of_user(error)}"
    inner = calls[-1]  # gin appends the outer calls
    name = inner["name"].rpartition(".")[2]
    missing = re.search(r"missing \d+ required (?:positional|keyword-only) arguments?: (.*)", text)
    if isinstance(error, TypeError) and missing:
        parameters = ", ".join(f"{name}.{parameter}" for parameter in re.findall(r"'(\w+)'", missing[1]))
        return f"no gin file and no --gin_param gives {parameters}{_used_by(name)}"
    told = text if isinstance(error, MeshtfError | ValueError) else f"{name} cannot be made: {_kind(error)}{text}"
    bound = [b for b in present_bindings() if b.configurable == name]
    meant = [b.name for b in bound if re.search(rf"\b{b.parameter}\b", text)] or [b.name for b in bound][:_MOST]
    return f"{told}{_line_of_user(error)}{where_written(text, *meant)}"


def without_calls(text: str) -> tuple[str, list[re.Match[str]]]:
    """Returns a message without the lines in which gin names the configurables that it has called, and these lines."""
    calls = []
    while match := _ENDS_IN_CALL.search(text):
        calls.append(match)
        text = text[: match.start()]
    return text, calls


def _unknown_user(error: BaseException | None) -> UserPathError | None:
    """Returns the error of a path that begins with an unknown user's name. gin wraps it, as it does other errors."""
    while error is not None and not isinstance(error, UserPathError | MeshtfError):
        error = error.__cause__ or error.__context__
    return error if isinstance(error, UserPathError) else None


_MOST = 5


def _used_by(name: str) -> str:
    """Returns lines with the bindings that use a configurable."""
    users = {b.name: b for b in present_bindings() if any(r.configurable.name == name for r in b.references)}
    return "".join(f"\n  {binding}  is from {binding.origin}" for binding in users.values())


def _kind(error: Exception) -> str:
    """Returns the error's type, if its text alone says little."""
    return "" if isinstance(error, MeshtfError | ValueError) else f"{type(error).__name__}: "


def _line_of_user(error: Exception) -> str:
    """Returns a line with the user's line, if the message does not name one itself."""
    if "\n  at " in str(error):
        return ""
    frames = user_frames(error)
    return f"\n  at {frames[-1].filename}:{frames[-1].lineno} in {frames[-1].name}" if frames else ""


def user_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """Returns the lines of the user's own files through which an error went, the innermost last."""
    frames = []
    for frame, line in traceback.walk_tb(error.__traceback__):
        package = frame.f_globals.get("__name__", "").partition(".")[0]
        if package not in _OTHER_CODE and not _is_installed(frame.f_code.co_filename):
            frames.append(traceback.FrameSummary(shown(Path(frame.f_code.co_filename)), line, frame.f_code.co_name))
    return frames


def _is_installed(filename: str) -> bool:
    """Tells whether a file belongs to Python or to a package, and not to the user."""
    library = os.path.join(sysconfig.get_path("stdlib"), "")
    return filename.startswith(("<frozen", library)) or bool(
        {"site-packages", "dist-packages"} & {*Path(filename).parts}
    )
