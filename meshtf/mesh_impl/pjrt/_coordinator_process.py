"""The coordinator: a process that stores the messages between the processes of one PJRT runtime.

Process 0 runs this file, with an address, the number of processes, and a number of seconds. If the coordinator ends,
jaxlib ends every process of the runtime at once, without telling which process is gone. So it runs that many seconds
longer than process 0. Meanwhile the others detect that process 0 died.
"""

from __future__ import annotations

import os
import sys
import time

from jaxlib import _jax  # pyright: ignore[reportAttributeAccessIssue]  # it has no types

_NEVER_SECONDS = 10_000_000


def main(address: str, num_processes: int, outlives_seconds: float) -> None:
    service = _jax.get_distributed_runtime_service(address, num_processes, heartbeat_timeout=_NEVER_SECONDS)
    print("listening", flush=True)
    has_ended_well = os.read(sys.stdin.fileno(), 1)  # nothing is read if process 0 dies
    if not has_ended_well:
        time.sleep(outlives_seconds)
    del service


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
    os._exit(0)
