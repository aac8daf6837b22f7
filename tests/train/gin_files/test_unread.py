"""Bindings that nothing reads, and those that only seem so."""

from __future__ import annotations

from pathlib import Path

import gin
import pytest

from meshtf.train.configuration import ConfigurationError, check_every_binding_is_read, read_configuration
from meshtf.train.gin_files.bindings import Parameter


@gin.configurable(module="unread")
def wheel(size: int = 1, colour: str = "red") -> int:
    return size


@gin.configurable(module="unread")
def hub(size: int = 1) -> int:
    return size


@gin.configurable(module="unread")
def bicycle(front: int = 0, back: int = 0) -> int:
    return front + back


def unread(*lines: str, colour: str | None = None, flags: tuple[Parameter, ...] = (), of_flags: bool = False) -> str:
    """What is said when a bicycle was made; empty where all is read."""
    Path("mine.gin").write_text("\n".join(lines))
    read_configuration([Path("mine.gin")], flags)
    bicycle()
    if colour is not None:
        wheel(colour=colour)
    try:
        check_every_binding_is_read(of_flags_alone=of_flags)
    except ConfigurationError as error:
        return str(error)
    return ""


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "lines",
    [
        ["bicycle.front = 1"],
        ["bicycle.front = @wheel()", "wheel.size = 2"],
        ["bicycle.front = @wheel()", "wheel.size = %size", "size = 3"],
        ["bicycle.front = @big/wheel()", "big/wheel.size = 2", "wheel.colour = 'blue'"],
        # displaced by what comes later, with all that hangs on it
        ["bicycle.front = @wheel()", "wheel.size = %size", "size = 3", "bicycle.front = @hub()"],
        ["bicycle.front = %part", "part = @wheel()", "wheel.size = 2", "bicycle.front = 3"],
        # or by what is bound for a closer scope
        ["bicycle.front = @big/wheel()", "wheel.size = @hub()", "hub.size = 1", "big/wheel.size = 3"],
        # allowed
        ["optional_bindings.names = ['wheel']", "wheel.size = 3"],
        ["optional_bindings.names = ['wheel.size', 'size']", "wheel.size = 3", "size = 4"],
        ["optional_bindings.names = ['size']", "size = 3", "optional_bindings.names = ['other']", "other = 4"],
    ],
)
def test_what_is_read_or_displaced_or_allowed_is_no_error(lines: list[str]) -> None:
    assert unread(*lines) == ""


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["wheel.size = 3"], ["nothing reads this binding", "wheel.size = 3  is from mine.gin:1: no @wheel() is made"]),
        (["bicycle.front = %size", "size = 1", "sise = 3"], ["sise = 3  is from mine.gin:3", 'did you mean "size"?']),
        (["big/bicycle.front = 3"], ["big/bicycle.front = 3", "it is made in no scope, and not in big"]),
        (["bicycle.front = @bg/wheel()", "big/wheel.size = 3"], ["it is made in bg, and not in big"]),
        (
            ["wheel.size = @hub()", "hub.size = %size", "size = 3"],
            ["these 3 bindings", "wheel.size = @hub()  is from mine.gin:1", "and 2 more"],
        ),
        (["optional_bindings.names = ['hub']", "wheel.size = 3"], ["nothing reads this binding"]),
    ],
)
def test_what_nothing_reads_is_named(lines: list[str], words: list[str]) -> None:
    error = unread(*lines)
    assert [word for word in [*words, "optional_bindings.names = ["] if word not in error] == [], error


def test_what_callers_always_give_has_no_effect() -> None:
    error = unread("wheel.colour = 'blue'", colour="green")
    assert "wheel.colour = 'blue'  is from mine.gin:1: the caller of wheel sets colour itself" in error


def test_of_a_run_only_flags_must_be_read() -> None:
    flag = Parameter("--hub", "hub.size = 3")
    assert unread("wheel.size = 3", of_flags=True) == ""
    assert "hub.size = 3  is from --hub" in unread("wheel.size = 3", flags=(flag,), of_flags=True)
