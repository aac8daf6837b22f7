"""Paths with `~`, as users give them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from meshtf_programs.user_paths import UserPathError, user_path

NOBODY = "~no_such_user_here"


def test_what_stands_for_a_home_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert user_path("~/runs") == Path("/home/me/runs")
    assert user_path(Path("~")) == Path("/home/me")
    assert user_path("file://~/runs") == user_path("FILE://~/runs") == Path("/home/me/runs")
    assert user_path("file:///runs/a") == Path("/runs/a")
    assert user_path("~root/x").is_absolute()
    for plain in ("runs/~me", "a~b", "./~", "/~"):
        assert user_path(plain) == Path(plain)


@pytest.mark.parametrize("path", [NOBODY, f"{NOBODY}/runs/*.txt", f"file://{NOBODY}/x"])
def test_a_user_whom_there_is_not(path: str) -> None:
    with pytest.raises(UserPathError) as raised:
        user_path(path)
    assert str(raised.value).startswith(f'{path}: this machine has no user "{NOBODY[1:]}"')
    assert raised.value.path == path


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container under a number that no user has."""
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    with pytest.raises(UserPathError, match=r"^~/runs: the folder of this user.* set HOME, or give the path in full"):
        user_path("~/runs")


def test_nothing_else_replaces_it() -> None:
    tree = Path(__file__).parents[2]
    sources = [p for name in ("meshtf", "meshtf_programs", "layers", "models") for p in (tree / name).rglob("*.py")]
    assert [p.name for p in sources if "expanduser" in p.read_text()] == ["user_paths.py"]
