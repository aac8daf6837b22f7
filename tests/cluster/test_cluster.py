"""What processes agree on through the key-value store, here as threads over one dictionary."""

from __future__ import annotations

import itertools
import json
import time

from meshtf.cluster.cluster import Cluster
from meshtf.cluster.fingerprint import first_difference, first_differing
from meshtf.errors import ClusterError
from tests.cluster.threads_as_processes import Texts, in_each


def test_each_gives_and_all_read() -> None:
    gathered = in_each(3, lambda cluster: cluster.gathered("names", f"of {cluster.process_index}"))
    assert gathered == [["of 0", "of 1", "of 2"]] * 3


def test_a_barrier_is_passed_when_all_have_come() -> None:
    came = itertools.count()
    passed: list[int] = []

    def late(cluster: Cluster) -> None:
        time.sleep(0.1 * cluster.process_index)
        next(came)
        cluster.barrier("b")
        passed.append(next(came))

    in_each(3, late)
    assert min(passed) == 3


def test_who_does_not_come_is_named() -> None:
    found = in_each(3, lambda cluster: cluster.barrier("b", timeout_seconds=0.2), present=2)
    for error in found:
        assert "process 2 (host2:4000) did not reach barrier/b within 0.2 seconds" in str(error)
    (missing,) = in_each(1, lambda cluster: cluster.get("key", timeout_seconds=0.1))
    assert 'no process has put "key"' in str(missing)


class Leaving(Texts):
    """A store that goes with process 0 at the moment at which another says that it has read."""

    def put(self, key: str, value: str) -> None:
        if "/read/" in key:
            raise ConnectionError("process 0 has left")
        super().put(key, value)


def test_what_was_read_counts_though_process_0_leaves_at_once() -> None:
    texts, addresses = Leaving(), ("host0:4000", "host1:4000")
    texts.put("meshtf/names/0", "of 0")
    assert Cluster(1, addresses, 2.0, texts, None).gathered("names", "of 1") == ["of 0", "of 1"]


def test_nobody_leaves_before_all_have_come_to_their_ends() -> None:
    came = itertools.count()
    left: list[int] = []

    def end(cluster: Cluster) -> None:
        time.sleep(0.1 * cluster.process_index)
        next(came)
        cluster.leave()
        left.append(next(came))

    in_each(3, end)
    assert min(left) == 3


def test_who_has_failed_waits_for_nobody_at_its_end() -> None:
    texts = Texts()
    failing = Cluster(0, ("host0:4000", "host1:4000"), 2.0, texts, None)
    texts.put("meshtf_heard/1", "")
    failing.tell_failure("ValueError: no such example")
    failing.leave()
    assert texts.get("meshtf/end/0", 0.0) is None


def test_two_that_fail_at_once_do_not_wait_for_one_another() -> None:
    texts, addresses = Texts(), ("host0:4000", "host1:4000")
    second = Cluster(1, addresses, 2.0, texts, None)
    texts.put("meshtf_failed", json.dumps([0, "of process 0"]))
    second.tell_failure("of process 1")
    assert texts.get("meshtf_heard/1", 0.0) == ""


class StandingStill(Texts):
    """A store of a machine that stands still for longer than anybody waits, before the first answer."""

    def get(self, key: str, timeout_seconds: float) -> str | None:
        if not any(key in text for text in self._texts):
            time.sleep(1.6)
            self._texts.setdefault(key, "came meanwhile")
            return None
        return super().get(key, timeout_seconds)


def test_time_in_which_the_machine_stands_still_is_not_counted() -> None:
    cluster = Cluster(0, ("host0:4000", "host1:4000"), 2.0, StandingStill(), None)
    assert cluster.get("word", timeout_seconds=1.5) == "came meanwhile"


def test_the_first_difference_is_told_in_every_process() -> None:
    def check(cluster: Cluster) -> None:
        graph = "x = Input()\ny = Multiply(x, 2.0)\n" + (
            "z = Add(y, x)" if cluster.process_index == 2 else "z = Add(x)"
        )
        cluster.check_alike('program "train"', {"seed": "0", "graph": "same"})
        cluster.check_alike('program "train"', {"seed": "0", "graph": graph, "plan": str(cluster.process_index)})

    for error in in_each(4, check):
        assert isinstance(error, ClusterError)
        # Processes 1 to 3 differ in their plans; what is told is the first of them, in the first text.
        assert 'program "train" differs between process 0 and process 1, in its plan' in str(error)
        assert "process 0: 0\n  process 1: 1" in str(error)


def test_first_differences() -> None:
    alike, other = {"seed": "a", "graph": "b"}, {"seed": "a", "graph": "c"}
    assert first_differing([alike, alike]) is None
    assert first_differing([alike, alike, other]) == (2, "graph")
    assert first_differing([alike, {"seed": "a"}]) == (1, "graph")
    assert first_difference("a\nb\nc", "a\nx\nc") == ("b", "x")
    assert first_difference("a", "a\nb") == ("(nothing)", "b")
