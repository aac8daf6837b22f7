"""TensorFlow's server and coordination service, of a cluster of one process."""

from __future__ import annotations

from tests.fresh_process import run_fresh
from tests.own_ports import own_ports

PROGRAM = """
import sys
import threading
import tensorflow as tf
from meshtf.tensorflow_private import cluster_server
from meshtf.tensorflow_private.eager_context import has_started

port = int(sys.argv[1])
assert not has_started()
limits = cluster_server.TimeLimits(register=60000, heartbeat=60000, shutdown=10000)
cluster_server.configure_service("worker", 1, "/job:worker/replica:0/task:0", limits)
cluster_server.announce_server("worker", [f"127.0.0.1:{port}"], 0, port)
cluster_server.start()
assert has_started()
assert tf.config.list_logical_devices("CPU")[0].name == "/job:worker/replica:0/task:0/device:CPU:0"

cluster_server.put_text("key", "text")
assert cluster_server.get_text("key", 1000) == "text"
try:
    cluster_server.put_text("key", "other")
except tf.errors.AlreadyExistsError:
    print("a key has one text")
cluster_server.delete_text("key")
try:
    cluster_server.get_text("key", 100)
except tf.errors.DeadlineExceededError:
    print("it is forgotten")

def reduced():
    return tf.raw_ops.CollectiveReduceV2(
        input=1.0, group_size=2, group_key=1, instance_key=1, ordering_token=[], merge_op="Add", final_op="Id",
        communication_hint="ring",
    )

threading.Timer(0.5, cluster_server.abort_collectives, (tf.errors.UNAVAILABLE, "nobody comes")).start()
try:
    reduced()
except tf.errors.UnavailableError as error:
    print(error.message)
"""


def test_it_starts_keeps_texts_and_ends_collectives_that_wait() -> None:
    done = run_fresh(["-c", PROGRAM, str(own_ports(1)[0])])
    assert done.status == 0, done.stderr
    said = done.stdout.splitlines()
    assert said[:2] == ["a key has one text", "it is forgotten"]
    assert "nobody comes" in said[2]
