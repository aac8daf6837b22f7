"""Worker processes that run batches, each replaced when a batch breaks it."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import json
import os
import queue
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from random_programs.emission import Batch

_SCRIPT = Path(__file__).resolve().parents[1] / "emission_worker.py"


class Worker:
    """One process, started when it is first needed."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def run(self, batch: Batch) -> dict[str, Any]:
        """What became of a batch. After an error the process is ended, and the next batch gets a new one."""
        process = self._process = self._process or _started()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(dataclasses.asdict(batch)) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        answer = json.loads(line) if line else {"error": f"the worker process ended ({process.poll()})"}
        if "error" in answer:
            self.end()
        return answer

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
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
    if "error" not in answer:
        return answer["differences"]
    if len(batch.cases) == 1:
        return [f"{answer['error']}\n{batch}"]
    # Which of the programs was it? Each again by itself, in a process that is whole.
    found = [message for one in batch.alone() for message in _messages(worker, one)]
    return found or [f"{answer['error']}\nnone of the programs fails by itself\n{batch}"]


def _started() -> subprocess.Popen[str]:
    folders = [str(_SCRIPT.parent), *sys.path]
    return subprocess.Popen(
        [sys.executable, str(_SCRIPT)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(folders), "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
