"""Messages between processes before TensorFlow's server runs. They are lines of JSON, signed with a shared token.

Each side sends the other a random challenge, and signs its messages with the token and the other's challenge. So a
message that was recorded from another connection has a wrong signature.
"""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import json
import secrets
import socket
from typing import Any

from meshtf_programs.strict_json import json_text

_LONGEST_LINE = 1 << 20
_GREETING = "meshtf waits for processes"


@dataclasses.dataclass
class Line:
    """One connection, on which each side has challenged the other to sign with the token.

    A line with a wrong signature raises BadMessageError, and the end of the connection raises EOFError.
    """

    connection: socket.socket
    token: str
    own_challenge: str = dataclasses.field(default_factory=lambda: secrets.token_hex(16))
    their_challenge: str = ""
    _received: bytes = b""

    def greet(self) -> None:
        """Sends the first line, from the side that listens."""
        self._write({"greeting": _GREETING, "challenge": self.own_challenge})

    def take_greeting(self) -> None:
        """Waits for the first line, on the side that connects."""
        greeting = self._parsed(self._next_line())
        if greeting.get("greeting") != _GREETING:
            raise BadMessageError
        self.their_challenge = str(greeting.get("challenge"))

    def send(self, message: dict[str, Any]) -> None:
        """Sends a signed message, with a challenge for the answers."""
        body = json_text(message)
        signature = self._signature(self.their_challenge, body)
        self._write({"body": body, "signature": signature, "challenge": self.own_challenge})

    def receive(self) -> dict[str, Any]:
        """Returns the next message. It waits at most for the connection's own timeout."""
        return self._opened(self._next_line())

    def receive_available(self) -> list[dict[str, Any]]:
        """Returns the complete messages that have arrived, without waiting."""
        self._fill()
        messages = []
        while b"\n" in self._received:
            messages.append(self._opened(self._next_line()))
        return messages

    def _opened(self, line: bytes) -> dict[str, Any]:
        outer = self._parsed(line)
        body, signature = str(outer.get("body")), str(outer.get("signature"))
        if not hmac.compare_digest(signature, self._signature(self.own_challenge, body)):
            raise BadMessageError
        self.their_challenge = str(outer.get("challenge"))
        return self._parsed(body.encode())

    def _signature(self, challenge: str, body: str) -> str:
        return hmac.new(self.token.encode(), f"{challenge} {body}".encode(), hashlib.sha256).hexdigest()

    def _parsed(self, line: bytes) -> dict[str, Any]:
        try:
            message = json.loads(line)
        except ValueError:
            raise BadMessageError from None
        if not isinstance(message, dict):
            raise BadMessageError
        return message

    def _next_line(self) -> bytes:
        while b"\n" not in self._received:
            self._fill()
        line, _, self._received = self._received.partition(b"\n")
        return line

    def _fill(self) -> None:
        chunk = self.connection.recv(1 << 16)
        if not chunk:
            raise EOFError
        self._received += chunk
        if b"\n" not in self._received and (len(self._received) > _LONGEST_LINE or not self._received.startswith(b"{")):
            raise BadMessageError

    def _write(self, message: dict[str, Any]) -> None:
        self.connection.sendall(json_text(message).encode() + b"\n")


class BadMessageError(Exception):
    """A message that is not signed with the token, or does not come from meshtf."""
