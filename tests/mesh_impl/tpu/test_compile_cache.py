"""Answers of a compiler, kept in a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshtf.mesh_impl.tpu.compile_cache import CompileCache

pytestmark = pytest.mark.quick

ASKED = {"topology": "v5e:4x4", "library": {"libtpu": "1"}}
ANSWER = {"memory": {"code": 7}, "hlo": "HloModule"}


def test_an_answer_is_found_again_by_all_that_it_depends_on(tmp_path: Path) -> None:
    cache = CompileCache(tmp_path / "of" / "answers")
    assert cache.read(b"program", ASKED) is None
    cache.write(b"program", ASKED, ANSWER)
    assert cache.read(b"program", ASKED) == ANSWER
    assert CompileCache(cache.folder).read(b"program", dict(reversed(ASKED.items()))) == ANSWER
    assert cache.read(b"another", ASKED) is None
    assert cache.read(b"program", {**ASKED, "library": {"libtpu": "2"}}) is None


def test_a_damaged_answer_is_none(tmp_path: Path) -> None:
    cache = CompileCache(tmp_path)
    cache.write(b"program", ASKED, ANSWER)
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    for damaged in (b"", b"text", whole[:-9], whole[:10] + b"\xff" * 40):
        file.write_bytes(damaged)
        assert cache.read(b"program", ASKED) is None
    cache.write(b"program", ASKED, ANSWER)
    assert cache.read(b"program", ASKED) == ANSWER


def test_what_cannot_be_kept_is_left(tmp_path: Path) -> None:
    cache = CompileCache(tmp_path / "gone")
    cache.folder.rmdir()
    cache.write(b"program", ASKED, ANSWER)
    assert cache.read(b"program", ASKED) is None
