"""The processes of a cluster: their number, their addresses, and the index of this process."""

from __future__ import annotations

import dataclasses
import ipaddress
import socket
from collections.abc import Sequence
from typing import Any

from meshtf.errors import ClusterError
from meshtf_programs.addresses import Address, AddressFault


@dataclasses.dataclass(frozen=True)
class ProcessAddresses:
    """The processes of a cluster, as one process receives them.

    Attributes:
      process_index: the index of this process, from 0.
      num_processes: how many there are.
      leader: the address of process 0, as "host:port".
      addresses: the addresses of all processes, or None. If None, each process sends its own to the leader as it joins.
      source: the source of these facts, for messages.
      token: a token that all share, if the source has one.

    Raises:
      ClusterError: if an index is out of range, or an address is invalid or occurs twice.
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
                f"{self.source}: process {self.process_index} does not exist: there are {self.num_processes}, "
                "counted from 0"
            )
        listed = self.addresses or (self.leader,)
        places = [parsed_address(address, self.source) for address in listed]
        twice = sorted({str(place) for place in places if places.count(place) > 1})
        if twice:
            raise ClusterError(f"{self.source}: {', '.join(twice)} appears twice; each process needs a port of its own")

    @classmethod
    def listed(cls, addresses: Sequence[str], process_index: int, source: str, token: str = "") -> ProcessAddresses:
        """Returns the processes for a list of all addresses."""
        if not addresses:
            raise ClusterError(f"{source}: there is no process")
        return cls(process_index, len(addresses), addresses[0], tuple(addresses), source, token)

    @property
    def own(self) -> str | None:
        """The address of this process, if it is known."""
        if self.process_index == 0:
            return self.leader
        return self.addresses[self.process_index] if self.addresses else None

    @property
    def num_on_this_host(self) -> int:
        """The number of processes on this host. It is 1 if the addresses are not known."""
        if self.addresses is None:
            return 1
        hosts = [parsed_address(address, self.source).host for address in self.addresses]
        return hosts.count(hosts[self.process_index])

    def name(self, process: int) -> str:
        """Returns the name of a process in messages: `process 2 (hostb:4002)`."""
        address = self.leader if process == 0 else self.addresses and self.addresses[process]
        return f"process {process}" + (f" ({address})" if address else "")


def parsed_address(address: str, source: str) -> Address:
    """Returns the host and the port of "host:port". Raises ClusterError if it is no such text."""
    try:
        return Address.from_text(address)
    except AddressFault as fault:
        raise ClusterError(f"{source}: {fault}") from None


def resolved(address: str, source: str) -> tuple[str, int]:
    """Returns the numeric host, with its zone, and the port of an address. Raises ClusterError if its host is
    unknown.
    """
    place = parsed_address(address, source)
    try:
        found = socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:  # a name is encoded for the DNS, which limits the length of its parts
        raise ClusterError(
            f"{source}: the host of {address} is unknown here ({getattr(error, 'strerror', None) or error}); give a "
            f"name that this machine resolves, or a numeric address"
        ) from None
    return numeric_host(min(found, key=lambda one: one[0])[4]), place.port


def numeric_host(place: tuple[Any, ...]) -> str:
    """Returns the numeric host of a socket's address.

    An IPv6 address with a zone has it as the fourth part, and only sometimes in its text.
    """
    host, zone = str(place[0]), place[3] if len(place) > 3 else 0
    return f"{host}%{zone}" if zone and "%" not in host else host


def is_loopback(numeric_host: str) -> bool:
    """Tells whether an address is a loopback address, which only processes on the same machine can reach."""
    return ipaddress.ip_address(numeric_host.partition("%")[0]).is_loopback
