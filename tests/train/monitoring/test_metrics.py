from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import numpy as np
import pytest

from meshtf.train.monitoring.metrics import LONGEST_ROW, MetricsLog, read_metrics


def test_lines_after_the_restored_step_are_taken_away(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    log = MetricsLog(path)
    for step in (1, 2, 3):
        log.write(step, {"loss": 1 / step})
    resumed = MetricsLog(path, last_step=2)
    resumed.write(3, {"loss": 7.0})
    assert [json.loads(line)["loss"] for line in path.read_text().splitlines()] == [1, 0.5, 7]
    assert resumed.lines == read_metrics(path)


def test_a_new_run_begins_a_new_file(tmp_path: Path) -> None:
    MetricsLog(tmp_path / "metrics.jsonl").write(1, {"loss": 1.0})
    assert MetricsLog(tmp_path / "metrics.jsonl").lines == []


def test_a_line_cut_short_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "loss": 2.5}\n{"step": 2, "los')
    assert MetricsLog(path, last_step=9).lines == [{"step": 1, "loss": 2.5}]


def test_an_evaluation_is_found_by_its_step(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    log.write(4, {"loss": 1.0})
    log.write(5, {"held_out_loss": 1.0})
    assert (log.has_evaluation(4), log.has_evaluation(5)) == (False, True)


def test_losses_are_kept_to_the_bit(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "metrics.jsonl")
    log.write(1, {"loss": 0.1 + 0.2})
    assert read_metrics(tmp_path / "metrics.jsonl") == [{"step": 1, "loss": 0.30000000000000004}]


def test_a_folder_that_is_gone_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        MetricsLog(tmp_path / "gone" / "metrics.jsonl")


def test_short_vectors_are_written_number_by_number_and_long_ones_left_out(tmp_path: Path) -> None:
    vectors = {"load": np.float32([[0.1, 0.9], [0.25, 0.75]]), "long": np.zeros([2, LONGEST_ROW + 1])}
    MetricsLog(tmp_path / "metrics.jsonl").write(3, {"loss": 1.0}, vectors)
    assert read_metrics(tmp_path / "metrics.jsonl") == [{"step": 3, "loss": 1.0, "load": [[0.1, 0.9], [0.25, 0.75]]}]


BROKEN = {
    "no text": b'{"step": 2, "loss": \xff}',
    "half a line": b'{"step": 2, "los',
    "NUL": b"\0\0\0",
    "deep": b'{"step": ' + b"[" * 100_000,
    "a list": b"[2, 1.0]",
    "no step": b'{"loss": 1.0}',
    "a step as text": b'{"step": "2", "loss": 1.0}',
    "a step that is true": b'{"step": true, "loss": 1.0}',
    "a negative step": b'{"step": -2, "loss": 1.0}',
    "a step beyond 64 bits": b'{"step": 18446744073709551616}',
    "a number of a million digits": b'{"step": ' + b"9" * 1_000_000 + b"}",
    "a loss as text": b'{"step": 2, "loss": "low"}',
    "a held-out loss as list": b'{"step": 2, "held_out_loss": [1]}',
    "an empty line": b"",
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_line_is_named_and_passed_over(tmp_path: Path, broken: str, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1, "loss": NaN}\n' + BROKEN[broken] + b'\n{"step": 3, "loss": 0.5}\n')
    with caplog.at_level(logging.WARNING):
        lines = MetricsLog(path, last_step=9).lines
    assert [line["step"] for line in lines] == [1, 3]
    assert f"line 2 of {path} is passed over, and left out when the run goes on" in caplog.text
    assert len(path.read_bytes().splitlines()) == 2


def test_a_file_of_metrics_that_is_none(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "large").touch()
    os.truncate(tmp_path / "large", 2**40)
    for name, words in (("pipe", "a named pipe"), ("zero", "a device"), ("large", "1,099,511,627,776 bytes")):
        with pytest.raises(OSError, match=f"{words}, and"):
            read_metrics(tmp_path / name)
