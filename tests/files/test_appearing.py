from __future__ import annotations

import threading
from pathlib import Path

import pytest

from meshtf.files import appearing
from meshtf.files.appearing import appears


def test_what_comes_late_is_seen(tmp_path: Path) -> None:
    late = threading.Timer(0.1, (tmp_path / "late").touch)
    late.start()
    assert appears(tmp_path / "late")
    late.join()


def test_what_does_not_come_is_not_waited_for_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appearing, "SECONDS_TO_SEE", 0.1)
    assert not appears(tmp_path / "nothing")
    assert not appears(tmp_path / "nowhere" / "nothing")
