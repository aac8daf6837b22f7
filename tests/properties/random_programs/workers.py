"""Worker processes that run batches, each replaced when a batch breaks it."""

from __future__ import annotations

import concurrent.futures
import queue
import traceback
from collections.abc import Sequence
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from typing import TypeAlias

import meshtf as mtf
from tests.fresh_process import forking_context
from tests.properties.random_programs.emission import Batch, run_batch

Answer: TypeAlias = list[str] | str
"""The programs that gave something else than expected, or what ended the whole batch."""


class Worker:
    """One process, started when it is first needed."""

    def __init__(self) -> None:
        self._process: ForkServerProcess | None = None
        self._connection: Connection | None = None

    def run(self, batch: Batch) -> Answer:
        """What became of a batch. After an error the process is ended, and the next batch gets a new one."""
        if self._process is None:
            self._connection, theirs = forking_context().Pipe()
            self._process = forking_context().Process(target=_answer, args=[theirs])
            self._process.start()
            theirs.close()
        assert self._connection is not None
        try:
            self._connection.send(batch)
            answer: Answer = self._connection.recv()
        except (EOFError, OSError):
            answer = f"the worker process ended ({self._process.exitcode})"
        if isinstance(answer, str):
            self.end()
        return answer

    def end(self) -> None:
        if self._process is not None and self._connection is not None:
            self._process.kill()
            self._process.join()
            self._process.close()
            self._connection.close()
        self._process = None


def run_batches(batches: Sequence[Batch], workers: int) -> list[str]:
    """Runs batches side by side. A message for each program that failed, or that could not be run."""
    idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
    everyone = [Worker() for _ in range(workers)]
    for worker in everyone:
        idle.put(worker)

    def run(batch: Batch) -> list[str]:
        worker = idle.get()
        try:
            return _messages(worker, batch)
        finally:
            idle.put(worker)

    try:
        with concurrent.futures.ThreadPoolExecutor(workers) as pool:
            return [message for found in pool.map(run, batches) for message in found]
    finally:
        for worker in everyone:
            worker.end()


def _messages(worker: Worker, batch: Batch) -> list[str]:
    answer = worker.run(batch)
    if not isinstance(answer, str):
        return answer
    if len(batch.seeds) == 1:
        return [f"{answer}\n{batch}"]
    # Which of the programs was it? Each again by itself, in a process that is whole.
    found = [message for one in batch.alone() for message in _messages(worker, one)]
    return found or [f"{answer}\nnone of the programs fails by itself\n{batch}"]


def _answer(connection: Connection) -> None:
    """Runs in the process: a batch in, an answer out."""
    mtf.virtual_cpus(8)
    while True:
        batch = connection.recv()
        try:
            connection.send(run_batch(batch))
        except Exception:
            # Drawing may fail, and planning, and a collective, after which this process is of no more use.
            connection.send(traceback.format_exc())
