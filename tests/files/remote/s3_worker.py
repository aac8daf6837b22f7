"""A process with an S3 server of its own on the loopback (moto's), and meshtf's remote storage on it, with faults."""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

SECRET = "word-that-nobody-tells"


class Faults:
    """A WSGI application that spoils the next answers of another: each fault is for one request of one method."""

    def __init__(self, app: Callable[..., Iterable[bytes]]) -> None:
        self._app, self._lock = app, threading.Lock()
        self.waiting: list[tuple[str, str]] = []
        self.met: list[tuple[str, str]] = []

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        kind = self._next(environ["REQUEST_METHOD"])
        if kind in ("500", "503", "403"):
            start_response(f"{kind} Fault", [("Content-Type", "application/xml")])
            return [f"<Error><Code>{_CODES[kind]}</Code><Message>as asked</Message></Error>".encode()]
        if kind == "dropped":
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            raise ConnectionAbortedError("as asked")
        answer = self._app(environ, start_response)
        return [b"".join(answer)[:10]] if kind == "cut" else answer  # its header promises more

    def _next(self, method: str) -> str | None:
        with self._lock:
            for fault in self.waiting:
                if fault[0] == method:
                    self.waiting.remove(fault)
                    self.met.append(fault)
                    return fault[1]
        return None


_CODES = {"500": "InternalError", "503": "SlowDown", "403": "AccessDenied"}


class Silent(WSGIRequestHandler):
    def log(self, *_: Any) -> None:
        """Says nothing."""


def main(scenario: Callable[[Faults, Path], None], folder: Path) -> None:
    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    faults = Faults(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, faults, threaded=True, request_handler=Silent)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    os.environ |= {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}",
    }
    import s3fs

    s3fs.S3FileSystem().mkdir("bucket")
    scenario(faults, folder)
    sys.stdout.flush()
    os._exit(0)


def checkpoints(faults: Faults, folder: Path) -> None:
    from meshtf.checkpoint import CheckpointFolder
    from meshtf.errors import CheckpointError, SaveError
    from tests.files.remote.tensors import check, save

    kept = CheckpointFolder("s3://bucket/my run/checkpoints", keep=2)
    save(kept, 1)
    for method, kind in (("PUT", "500"), ("PUT", "dropped"), ("GET", "503"), ("GET", "dropped"), ("DELETE", "500")):
        faults.waiting.append((method, kind))
    save(kept, 2)
    save(kept, 3)
    check(CheckpointFolder("s3://bucket/my run/checkpoints"), 2)
    assert not faults.waiting, faults.waiting
    faults.waiting += [("GET", "cut"), ("HEAD", "dropped")]
    newest = CheckpointFolder("s3://bucket/my run/checkpoints").newest_readable()
    assert newest is not None
    assert newest.step == 3
    assert kept.steps() == [2, 3]
    assert ("GET", "cut") in faults.met

    faults.waiting = [("PUT", "403")] * 50
    with pytest.raises(SaveError, match=r"s3://bucket/my run/checkpoints/step_00000004: .*PermissionError") as caught:
        save(kept, 4)
    assert SECRET not in str(caught.value)
    faults.waiting = []
    check(kept, 3)
    (folder / "x").write_bytes(b"1" * (6 << 20))
    assert kept.remote is not None
    kept.remote.folder.upload(folder / "x", "x")
    kept.remote.folder.download("x", folder / "y")
    assert (folder / "y").read_bytes() == (folder / "x").read_bytes()
    with pytest.raises((CheckpointError, OSError), match="s3://no-such-bucket/x"):
        CheckpointFolder("s3://no-such-bucket/x").open(1)
    print("all of it")


if __name__ == "__main__":
    main(checkpoints, Path(sys.argv[1]))
