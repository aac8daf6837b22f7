"""Which processes there are, where each is reached, and which of them this one is."""

from __future__ import annotations

import dataclasses
import ipaddress
import re
import socket
from collections.abc import Sequence

from meshtf.errors import ClusterError

_ADDRESS = re.compile(r"(?P<host>\[[0-9a-fA-F:]+\]|[^\s:/\[\]]+):(?P<port>\d+)")
_LARGEST_PORT = 65535


@dataclasses.dataclass(frozen=True)
class ProcessAddresses:
    """The processes of a cluster, as each of them is told.

    Attributes:
      process_index: which this process is, from 0.
      num_processes: how many there are.
      leader: address, as "host:port", of process 0.
      addresses: of all processes, where they are told; else None, and each tells the leader its own as it joins.
      source: what said so, for messages.
      token: that all share, where the same source gives one.

    Raises:
      ClusterError: an index beyond the processes, an address that is none, or stands twice.
    """

    process_index: int
    num_processes: int
    leader: str
    addresses: tuple[str, ...] | None
    source: str
    token: str = dataclasses.field(default="", repr=False)

    def __post_init__(self) -> None:
        if not 0 <= self.process_index < self.num_processes:
            raise ClusterError(
                f"{self.source}: process {self.process_index} does not exist where there are {self.num_processes}, "
                f"which count from 0"
            )
        listed = self.addresses or (self.leader,)
        for address in listed:
            host_and_port(address, self.source)
        twice = sorted({a for a in listed if listed.count(a) > 1})
        if twice:
            raise ClusterError(f"{self.source}: {', '.join(twice)} stands twice; each process needs a port of its own")

    @classmethod
    def listed(cls, addresses: Sequence[str], process_index: int, source: str, token: str = "") -> ProcessAddresses:
        """Of processes that all are told where each is."""
        if not addresses:
            raise ClusterError(f"{source}: there is no process")
        return cls(process_index, len(addresses), addresses[0], tuple(addresses), source, token)

    @property
    def own(self) -> str | None:
        """This process's address, where it is told."""
        if self.process_index == 0:
            return self.leader
        return self.addresses[self.process_index] if self.addresses else None

    @property
    def num_on_this_host(self) -> int:
        """How many of them are where this one is, as far as addresses tell: 1 where they do not."""
        if self.addresses is None:
            return 1
        hosts = [host_and_port(address, self.source)[0] for address in self.addresses]
        return hosts.count(hosts[self.process_index])

    def name(self, process: int) -> str:
        """A process as messages name it: `process 2 (hostb:4002)`."""
        address = self.leader if process == 0 else self.addresses and self.addresses[process]
        return f"process {process}" + (f" ({address})" if address else "")


def host_and_port(address: str, source: str) -> tuple[str, int]:
    """The two parts of "host:port". ClusterError where it is no such text."""
    match = _ADDRESS.fullmatch(address) if isinstance(address, str) else None
    if match is None or not 0 < int(match["port"]) <= _LARGEST_PORT:
        raise ClusterError(f'{source}: {address!r} is no address; one is a host and a port, as "10.0.0.1:4000"')
    return match["host"].strip("[]"), int(match["port"])


def resolved(address: str, source: str) -> tuple[str, int]:
    """The numeric host and the port of an address. ClusterError where its host is unknown."""
    host, port = host_and_port(address, source)
    try:
        family_first = sorted(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM), key=lambda i: i[0])
    except OSError as error:
        raise ClusterError(
            f"{source}: the host of {address} is unknown here ({error.strerror or error}); give a name that this "
            f"machine resolves, or a numeric address"
        ) from None
    return str(family_first[0][4][0]), port


def is_loopback(numeric_host: str) -> bool:
    """Whether only processes of the same machine reach it."""
    return ipaddress.ip_address(numeric_host.partition("%")[0]).is_loopback
