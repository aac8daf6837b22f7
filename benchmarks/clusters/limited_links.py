"""Simulates hosts by network namespaces of this machine, each with a virtual link of limited rate to a switch.

Nothing leaves the machine, and its own network does not change. This requires root and iproute2.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Sequence

from benchmarks.clusters.joined_processes import Place

_INTERFACE = "wire"


class NoNamespacesError(Exception):
    """Network namespaces cannot be made on this machine. The message gives the reason."""


@contextlib.contextmanager
def limited_hosts(number: int, rate: str) -> Iterator[list[Place]]:
    """Makes hosts with a maximum sending rate, such as "100mbit". Only one set of each rate may exist at a time.

    Raises:
      NoNamespacesError: network namespaces cannot be made here.
    """
    names = [f"meshtf-{os.getpid()}-{rate}-{i}" for i in range(number)]
    switch = f"meshtf-{os.getpid()}-{rate}-switch"
    try:
        for name in (switch, *names):
            _run("ip", "netns", "add", name)
        _in(switch, "ip", "link", "add", "bridge", "type", "bridge")
        _in(switch, "ip", "link", "set", "bridge", "up")
        for i, name in enumerate(names):
            _connect(name, switch, i, rate)
        yield [Place(_address(i), f"/run/netns/{name}") for i, name in enumerate(names)]
    finally:
        for name in (switch, *names):
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


def _connect(name: str, switch: str, number: int, rate: str) -> None:
    port = f"port{number}"
    _run("ip", "link", "add", _INTERFACE, "netns", name, "type", "veth", "peer", "name", port, "netns", switch)
    _in(switch, "ip", "link", "set", port, "master", "bridge", "up")
    _in(name, "ip", "link", "set", "lo", "up")
    _in(name, "ip", "address", "add", f"{_address(number)}/24", "dev", _INTERFACE)
    _in(name, "ip", "link", "set", _INTERFACE, "up")
    limit = ("rate", rate, "burst", "64kb", "latency", "400ms")
    _in(name, "tc", "qdisc", "add", "dev", _INTERFACE, "root", "tbf", *limit)


def _address(number: int) -> str:
    return f"10.87.0.{number + 1}"


def _in(name: str, *command: str) -> None:
    _run("ip", "netns", "exec", name, *command)


def _run(*command: Sequence[str] | str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # type: ignore[arg-type]
    except FileNotFoundError as error:
        raise NoNamespacesError(f"{error.filename} is not installed (iproute2)") from None
    if done.returncode:
        raise NoNamespacesError(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
