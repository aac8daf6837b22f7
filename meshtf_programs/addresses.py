"""Reads, compares and writes addresses of processes, "host:port", for names, IPv4 and IPv6."""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import re

LARGEST_PORT = 65535

_EXAMPLES = '"10.0.0.1:4000", or "[2001:db8::1]:4000" of IPv6'
_PARTS = re.compile(r"(?P<host>.*):(?P<port>[0-9]{1,5})")
_NAME = re.compile(r"[^\s:/@,%\[\]]+")


class AddressFault(ValueError):  # noqa: N818  # what is wrong with a text, in words, for others to raise
    """A text is no address. The message says why."""


@dataclasses.dataclass(frozen=True)
class Address:
    """A host and a port. Two texts of one IPv6 address give equal objects.

    Attributes:
      host: a name or a numeric address, without brackets. An IPv6 address is in its shortest form, with its zone, if
        any.
      port: from 1 to 65535.

    Raises:
      AddressFault: if the host is invalid, or the port is out of range.
    """

    host: str
    port: int

    def __post_init__(self) -> None:
        if not 0 < self.port <= LARGEST_PORT:
            raise AddressFault(f"port {self.port} is not between 1 and {LARGEST_PORT}")
        object.__setattr__(self, "host", bare_host(self.host))

    @classmethod
    def from_text(cls, text: str) -> Address:
        """Reads "name:port", "10.0.0.1:port" or "[IPv6]:port".

        Raises:
          AddressFault: if it is no such text.
        """
        match = _PARTS.fullmatch(text) if isinstance(text, str) else None
        if _is_ipv6(text) or (match is not None and _is_ipv6(match["host"])):
            raise AddressFault(
                f"{text!r} is no address: write an IPv6 address in brackets before its port, as {_EXAMPLES}"
            )
        try:
            if match is not None:
                return cls(match["host"], int(match["port"]))
            why = "one is a host and a port"
        except AddressFault as fault:
            why = str(fault)
        raise AddressFault(f"{text!r} is no address: {why}, as {_EXAMPLES}")

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def bare_host(text: str) -> str:
    """Returns the host without brackets, an IPv6 address in its shortest form. `[2001:DB8:0::1]` becomes
    `2001:db8::1`. Names and IPv4 addresses do not change.

    Raises:
      AddressFault: if the text is no host.
    """
    inside = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    with contextlib.suppress(ValueError):
        return str(ipaddress.IPv6Address(inside))
    if inside != text or ":" in text:
        raise AddressFault(f"{inside!r} is no IPv6 address, nor a host without a port")
    if not _NAME.fullmatch(text):
        raise AddressFault(f"{text!r} is not a host name")
    return text


def _is_ipv6(text: object) -> bool:
    """Tells whether a text is an IPv6 address without brackets."""
    try:
        return isinstance(text, str) and bool(ipaddress.IPv6Address(text))
    except ValueError:
        return False
