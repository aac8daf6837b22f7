"""Checkpoints on an S3 server: whole and read by ranges, though answers fail, stop half way, or never come."""

from __future__ import annotations

from pathlib import Path

from tests.fresh_process import run_fresh


def test_faults_of_the_server_and_of_the_way_to_it(tmp_path: Path) -> None:
    ended = run_fresh(["-m", "tests.files.remote.s3_worker", str(tmp_path)], tmp_path)
    assert ended.status == 0, ended.stderr
    assert ended.stdout.endswith("all of it\n")
