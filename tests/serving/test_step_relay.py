"""The inputs of steps reach the other processes, whose end is noticed. Processes are threads over one store."""

from __future__ import annotations

import contextlib
import json
import queue
import socket
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from meshtf.cluster.cluster import Cluster
from meshtf.errors import ClusterError, MeshtfError, ProcessLostError
from meshtf.serving.step_relay import StepReceiver, StepSender, packed, unpacked
from tests.cluster.threads_as_processes import Texts

ADDRESSES = ("127.0.0.1:4000", "127.0.0.1:4001", "127.0.0.1:4002")
PATIENCE = 60.0
ARRAYS = {"ids": np.arange(6, dtype=np.int32).reshape(2, 3), "scale": np.array([0.1]), "is_on": np.array([True])}


class Follower(threading.Thread):
    """A process that keeps what it receives, and the error that ends it."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(daemon=True)
        self._cluster = cluster
        self.heard: queue.Queue[Any] = queue.Queue()
        self.start()

    def run(self) -> None:
        try:
            with contextlib.closing(StepReceiver(self._cluster, PATIENCE)) as receiver:
                for name, values in receiver:
                    self.heard.put((name, unpacked(values, ARRAYS)))
            self.heard.put("the end")
        except MeshtfError as error:
            self.heard.put(error)


def joined() -> Callable[[int], Cluster]:
    texts = Texts()
    return lambda index: Cluster(index, ADDRESSES, 2.0, texts, None)


def test_all_processes_get_the_inputs_in_order_and_the_end() -> None:
    process = joined()
    followers = [Follower(process(index)) for index in (2, 1)]
    sender, told = StepSender(process(0), PATIENCE), list[str]()
    sender.watch(told.append)
    for name in ("decode 3", "score"):
        sender.send(name, ARRAYS)
    sender.close()
    for follower in followers:
        for name in ("decode 3", "score"):
            heard, arrays = follower.heard.get(timeout=PATIENCE)
            assert heard == name
            assert list(arrays) == list(ARRAYS)
            for each, wanted in ARRAYS.items():
                np.testing.assert_array_equal(arrays[each], wanted, strict=True)
        assert follower.heard.get(timeout=PATIENCE) == "the end"
    assert told == [], "an end in order is no loss"
    with pytest.raises(ClusterError, match="process 0 sent 3 bytes of inputs, and the program here has 33; give all"):
        unpacked(b"abc", ARRAYS)


def test_a_process_that_ends_is_named() -> None:
    process, told = joined(), queue.Queue[str]()
    followers = [Follower(process(1)), Follower(process(2))]
    sender = StepSender(process(0), PATIENCE)
    sender.watch(told.put)
    sender.send("other inputs", {"ids": ARRAYS["ids"]})
    assert isinstance(followers[0].heard.get(timeout=PATIENCE), ClusterError)
    assert "is gone; start all processes again" in told.get(timeout=PATIENCE)


def test_a_process_that_hangs_is_named() -> None:
    """It has connected, and reads nothing. The message is larger than what a link holds."""
    process, ended = joined(), threading.Event()

    def hang() -> None:
        with contextlib.closing(StepReceiver(process(1), PATIENCE)):
            ended.wait(PATIENCE)

    thread = threading.Thread(target=hang)
    thread.start()
    follower = Follower(process(2))
    sender = StepSender(process(0), PATIENCE, send_seconds=0.2)
    named = r"^process 1 \(127.0.0.1:4001\) has read nothing for 0.2 seconds: it hangs; end it"
    with pytest.raises(ProcessLostError, match=named):
        sender.send("decode 3", {"ids": np.zeros(16 << 20, np.uint8)})
    sender.close()  # does not wait for it again
    assert follower.heard.get(timeout=PATIENCE) == "the end"
    ended.set()
    thread.join(PATIENCE)


def test_a_process_that_never_connects_is_named_and_strangers_are_refused() -> None:
    process = joined()
    follower = Follower(process(1))

    def intrude() -> None:
        host, port, _ = json.loads(process(2).get("serving/address", PATIENCE))
        with socket.create_connection((host, port), PATIENCE) as stranger:
            stranger.sendall(bytes(32) + (2).to_bytes(4, "big"))
            assert stranger.recv(1) == b""
        with socket.create_connection((host, port), PATIENCE) as stranger:
            stranger.sendall((36).to_bytes(4, "big"))
            assert stranger.recv(1) == b"", "the processes do not wait for the rest"

    thread = threading.Thread(target=intrude)
    thread.start()
    with pytest.raises(ClusterError, match=r"^process 2 \(127.0.0.1:4002\) did not connect"):
        StepSender(process(0), 3.0)
    thread.join(PATIENCE)
    assert isinstance(follower.heard.get(timeout=PATIENCE), ProcessLostError)
    assert packed("a", {}) == b"a\0"
