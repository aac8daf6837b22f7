"""The watchdog's look at other threads, in a process of its own: what went wrong there stopped every thread."""

from __future__ import annotations

from tests.fresh_process import run_fresh

_LOOKS_WHILE_GARBAGE_WAITS = """
import gc, threading
from meshtf.mesh_impl.spmd._watchdog import someone_waits

def deep(depth, reached, end):
    if depth:
        return deep(depth - 1, reached, end)
    reached.set()
    end.wait()

def leave_garbage():
    cycle = [threading.local()]
    cycle[0].x = 1
    cycle.append(cycle)

gc.freeze()  # what importing TensorFlow has left need not be looked at sixty times
for objects_until_a_collection in [*range(20)] * 3:
    # A thread that was not looked at before: listing its frame makes an object, which is when a collection may start.
    reached, end = threading.Event(), threading.Event()
    thread = threading.Thread(target=deep, args=(20, reached, end), daemon=True)
    thread.start()
    reached.wait()
    gc.disable()
    gc.collect()
    leave_garbage()
    gc.set_threshold(gc.get_count()[0] + objects_until_a_collection)
    gc.enable()
    assert not someone_waits()
    assert gc.isenabled()
    end.set()
    thread.join()
print("looked")
"""


def test_garbage_that_waits_for_the_list_of_threads_does_not_stop_the_process() -> None:
    done = run_fresh(["-c", _LOOKS_WHILE_GARBAGE_WAITS])
    assert done.stdout == "looked\n", done.stderr[-2000:]
