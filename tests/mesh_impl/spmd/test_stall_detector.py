from __future__ import annotations

from meshtf.mesh_impl.spmd._stall_detector import StallDetector

TIMEOUTS = {"/device:CPU:0": 10.0, "/device:CPU:1": 10.0}


def counters(first: int, second: int, backward: int = 0) -> dict[tuple[str, int], int]:
    return {("/device:CPU:0", 0): first, ("/device:CPU:1", 0): second, ("/device:CPU:0", 1): backward}


def test_idle_or_computing_devices_may_take_for_ever() -> None:
    detector = StallDetector()
    assert detector.observe(counters(4, 2), TIMEOUTS, 0) is None
    assert detector.observe(counters(4, 2), TIMEOUTS, 1e6) is None


def test_a_device_that_waits_too_long() -> None:
    detector = StallDetector()
    assert detector.observe(counters(5, 4), TIMEOUTS, 0) is None
    assert detector.observe(counters(5, 4), TIMEOUTS, 9.9) is None
    stall = detector.observe(counters(5, 4), TIMEOUTS, 10)
    assert str(stall) == "no progress for 10 seconds; waiting: CPU:0; in no collective: CPU:1"


def test_progress_starts_the_wait_anew() -> None:
    detector = StallDetector()
    for now in range(0, 100, 8):
        assert detector.observe(counters(now + 1, 2), TIMEOUTS, now) is None


def test_all_devices_wait_and_one_only_backward() -> None:
    detector = StallDetector()
    detector.observe(counters(2, 3, 7), TIMEOUTS, 0)
    stall = detector.observe(counters(2, 3, 7), {"/device:CPU:0": 20.0, "/device:CPU:1": 11.0}, 12)
    assert stall is not None
    assert stall.waiting == ("/device:CPU:0", "/device:CPU:1")
    assert stall.absent == ()
    assert stall.seconds == 11
