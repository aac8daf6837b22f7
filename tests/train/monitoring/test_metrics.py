from __future__ import annotations

import datetime
import json
import logging
import math
import os
from pathlib import Path

import numpy as np
import pytest

from meshtf.train.monitoring.loss_curve import FEW, smoothed
from meshtf.train.monitoring.metrics import LONGEST_ROW, MetricsLog, curve_of, read_metrics
from meshtf.train.monitoring.summary import place_of


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
    (line,) = read_metrics(tmp_path / "metrics.jsonl")
    assert (line["step"], line["loss"]) == (1, 0.30000000000000004)


def test_a_line_has_its_time_and_keeps_it_when_the_run_goes_on(tmp_path: Path) -> None:
    """UTC, by ISO 8601, between the clock's readings before and after, which it has to the millisecond."""
    path = tmp_path / "metrics.jsonl"
    before = datetime.datetime.now(datetime.UTC) - datetime.timedelta(milliseconds=1)
    MetricsLog(path).write(1, {"loss": 1.0})
    after = datetime.datetime.now(datetime.UTC)
    (line,) = read_metrics(path)
    assert list(line) == ["step", "time", "loss"]
    assert before <= datetime.datetime.fromisoformat(line["time"]) <= after
    assert line["time"].endswith("Z")
    assert MetricsLog(path, last_step=1).lines == [line] == read_metrics(path)


def test_numbers_that_are_not_finite_are_texts_of_strict_json_and_come_back(tmp_path: Path) -> None:
    """Also from files of earlier versions, which had Python's own NaN and Infinity."""
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "loss": NaN, "up": Infinity, "down": -Infinity}\n')
    values = {"loss": math.nan, "up": np.float64("inf"), "down": -math.inf}
    MetricsLog(path, last_step=1).write(2, values, {"load": np.array([0.5, math.inf])})
    for line in path.read_text().splitlines():
        values = json.loads(line, parse_constant=pytest.fail)
        assert (values["loss"], values["up"], values["down"]) == ("NaN", "Infinity", "-Infinity")
    old, new = read_metrics(path)
    for line in (old, new):
        assert math.isnan(line["loss"])
        assert (line["up"], line["down"]) == (math.inf, -math.inf)
    assert new["load"] == [0.5, math.inf]
    steps, losses = curve_of([old, new], "loss")
    assert steps == [1, 2]
    assert all(map(math.isnan, losses))


def test_tables_and_curves_of_numbers_that_are_not_finite() -> None:
    """A NaN is neither least nor greatest, wherever it stands, and is in no mean of its neighbours."""
    for values in ([math.nan, 2.0, 1.0], [2.0, math.nan, 1.0], [2.0, 1.0, math.nan]):
        assert (values[place_of(min, values)], values[place_of(max, values)]) == (1.0, 2.0)
    assert place_of(max, [1.0, math.inf, 2.0]) == 1
    assert place_of(min, [math.nan]) == 0
    constant = [3.0] * 3 * FEW
    drawn = smoothed([*constant, math.nan, math.inf, *constant])
    assert math.isnan(drawn[len(constant)])
    assert drawn[len(constant) + 1] == math.inf
    numbers = [value for value in drawn if math.isfinite(value)]
    assert len(numbers) == 2 * len(constant)
    np.testing.assert_allclose(numbers, 3.0, rtol=1e-12)  # weighted means of 3


def test_a_folder_that_is_gone_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        MetricsLog(tmp_path / "gone" / "metrics.jsonl")


def test_short_vectors_are_written_number_by_number_and_long_ones_left_out(tmp_path: Path) -> None:
    vectors = {"load": np.float32([[0.1, 0.9], [0.25, 0.75]]), "long": np.zeros([2, LONGEST_ROW + 1])}
    MetricsLog(tmp_path / "metrics.jsonl").write(3, {"loss": 1.0}, vectors)
    (line,) = read_metrics(tmp_path / "metrics.jsonl")
    assert list(line) == ["step", "time", "loss", "load"]
    assert line["load"] == [[0.1, 0.9], [0.25, 0.75]]


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
    assert f"line 2 of {path} is ignored, and will be dropped when the run continues" in caplog.text
    assert len(path.read_bytes().splitlines()) == 2


def test_a_file_of_metrics_that_is_none(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "large").touch()
    os.truncate(tmp_path / "large", 2**40)
    for name, words in (
        ("pipe", "a named pipe, not a regular file"),
        ("zero", "a device, not a regular file"),
        ("large", "1,099,511,627,776 bytes, and the limit"),
    ):
        with pytest.raises(OSError, match=words):
            read_metrics(tmp_path / name)
