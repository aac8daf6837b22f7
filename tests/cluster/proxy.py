"""Something between two processes that can stop passing on what they say."""

from __future__ import annotations

import contextlib
import socket
import threading
import time


class Proxy:
    """Stands before a port, and passes on what comes, until it is told not to."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self._forwards = True
        self._open: list[socket.socket] = [self._server]
        threading.Thread(target=self._accept, daemon=True).start()

    def stop_forwarding(self) -> None:
        self._forwards = False

    def close(self) -> None:
        for one in self._open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                theirs, _ = self._server.accept()
                try:
                    ours = socket.create_connection(("127.0.0.1", self._target))
                except OSError:
                    theirs.close()
                    continue
                self._open += [theirs, ours]
                for pair in ((theirs, ours), (ours, theirs)):
                    threading.Thread(target=self._pass_on, args=pair, daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                while not self._forwards:
                    time.sleep(0.1)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
