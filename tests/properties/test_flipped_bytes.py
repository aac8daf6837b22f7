"""Every kind of file with 100 flipped bits: each ends in a right result, or in an error that names the file."""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection

import pytest

from tests.fresh_process import forking_context
from tests.properties.flipped_bytes import KINDS, faults_of

AGAIN = "run it again with: python -m tests.properties.flipped_bytes {seed} '{name}'"


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_file(name: str, seed: int) -> None:
    """In a process of its own, which TensorFlow may end."""
    ours, theirs = multiprocessing.Pipe(duplex=False)
    process = forking_context().Process(target=_send, args=(theirs, name, seed))
    process.start()
    theirs.close()
    try:
        faults = ours.recv() if ours.poll(500) else ["it hangs"]
    except EOFError:
        faults = ["the process has ended"]
    process.kill()
    process.join()
    assert not faults, "\n".join([*faults, AGAIN.format(seed=seed, name=name)])


def _send(connection: Connection, name: str, seed: int) -> None:
    connection.send(faults_of(name, seed))
