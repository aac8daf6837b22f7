"""Starts meshtf-serve in a separate process, for a given run or for a small untrained model."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import gin
import httpx2

from meshtf.train import RunFolder
from meshtf.train.configuration import find_gin_file
from meshtf.train.decoding.programs import greatest_sizes, scoring_program
from meshtf.train.trainer import mesh_of

LENGTH = 128
_BINDINGS = (
    f"TextTask.length = {LENGTH}",
    "TextTask.source = @TextFiles()",
    'TextFiles.patterns = "nowhere/*.txt"',
    "Training.batch_size = 4",
    'Training.mesh_shape = "rows:1"',
    'Training.layout = "batch:rows"',
    "d_model = 64",
    "TransformerStack.num_layers = 2",
    "AttentionConfig.num_heads = 4",
    "AttentionConfig.d_kv = 16",
    "FeedForward.d_ff = 128",
)
_SECONDS_TO_START = 300.0


def write_run(path: Path) -> None:
    """Writes the run's configuration and a checkpoint."""
    folder = RunFolder(path)
    gin.parse_config_files_and_bindings([str(find_gin_file("lm_tiny.gin"))], list(_BINDINGS))
    folder.operative_config.write_text(gin.config_str())
    training = folder.read_training()
    folder.operative_config.write_text(gin.operative_config_str())
    program = scoring_program(training, mesh_of(training), greatest_sizes(training))
    program.initialize()
    folder.checkpoints().save(1, program.variables, {})


@contextlib.contextmanager
def started_server(*flags: str, run: str | None = None) -> Iterator[tuple[str, int]]:
    """Yields the server's address and its process id. Checks that the server ends normally.

    `run` is the folder of the run to serve. The default is a small untrained model.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        if run is None:
            write_run(Path(folder))
        served = folder if run is None else run
        command = [sys.executable, "-m", "meshtf.bin.serve", served, f"--port={port}", "--name=tiny", *flags]
        with subprocess.Popen(command) as process:
            address = f"http://127.0.0.1:{port}"
            try:
                _wait_until_ready(address, process)
                yield address, process.pid
            finally:  # otherwise an error here would wait for ever for the server's end
                process.terminate()
                status = process.wait(60)
            if status:
                raise RuntimeError(f"the server ended with status {status}")


def _wait_until_ready(address: str, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _SECONDS_TO_START
    while process.poll() is None and time.monotonic() < end:
        with contextlib.suppress(httpx2.TransportError):
            if httpx2.get(f"{address}/ready").status_code == 200:
                return
        time.sleep(0.2)
    process.kill()
    raise RuntimeError("the server does not start")
