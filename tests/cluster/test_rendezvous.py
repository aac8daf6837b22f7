"""Processes find one another, here as threads: it is sockets alone. Who is missing, wrong or twice there is named."""

from __future__ import annotations

import concurrent.futures
import contextlib
import logging
import socket
import time
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

import meshtf.cluster._rendezvous as module
from meshtf.cluster._rendezvous import Joined, JoinOptions, rendezvous
from meshtf.cluster.initialize_cluster import initialize_cluster
from meshtf.cluster.process_addresses import ProcessAddresses
from meshtf.errors import ClusterError
from meshtf.mesh_impl.pjrt.of_this_process import _held_port
from meshtf_programs.addresses import Address
from tests.own_ports import own_ports

Result = Joined | ClusterError


def options(token: str = "", timeout_seconds: float = 20.0, devices: str = "2 CPU") -> JoinOptions:
    return JoinOptions(token, timeout_seconds, {"devices": devices})


def listed(index: int, ports: Sequence[int]) -> ProcessAddresses:
    return ProcessAddresses.listed([f"127.0.0.1:{port}" for port in ports], index, "test")


def joined(*given: tuple[ProcessAddresses, JoinOptions], delay: float = 0.0) -> list[Result]:
    """What each got, started `delay` seconds after the one before."""

    def join(processes: ProcessAddresses, how: JoinOptions) -> Result:
        try:
            return rendezvous(processes, how)
        except ClusterError as error:
            return error

    with concurrent.futures.ThreadPoolExecutor(len(given)) as pool:
        futures = []
        for processes, how in given:
            futures.append(pool.submit(join, processes, how))
            time.sleep(delay)
        return [future.result() for future in futures]


def test_all_get_all_addresses_in_whatever_order_they_come() -> None:
    ports = own_ports(4)
    found = joined(*((listed(i, ports), options("secret")) for i in (2, 1, 3, 0)), delay=0.05)
    assert all(isinstance(x, Joined) for x in found), found
    assert {x.addresses for x in found if isinstance(x, Joined)} == {tuple(f"127.0.0.1:{p}" for p in ports)}
    assert len({x.nonce for x in found if isinstance(x, Joined)}) == 1
    assert [x.port for x in found if isinstance(x, Joined)] == [ports[i] for i in (2, 1, 3, 0)]


def test_where_the_leader_alone_is_told_each_tells_its_own() -> None:
    leader = f"127.0.0.1:{own_ports(1)[0]}"
    found = joined(*((ProcessAddresses(i, 3, leader, None, "test"), options()) for i in range(3)))
    assert all(isinstance(x, Joined) for x in found), found
    addresses = {x.addresses for x in found if isinstance(x, Joined)}.pop()
    assert addresses[0] == leader
    assert len(set(addresses)) == 3
    assert [f"127.0.0.1:{x.port}" for x in found if isinstance(x, Joined)] == list(addresses)


def test_who_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(module, "_SECONDS_BETWEEN_LINES", 0.3)
    ports = own_ports(3)
    with caplog.at_level(logging.WARNING, "meshtf.cluster"):
        found = joined(*((listed(i, ports), options(timeout_seconds=5.0)) for i in (0, 1)))
    for result in found:
        assert isinstance(result, ClusterError)
        assert f"process 2 (127.0.0.1:{ports[2]}) did not come within 5 seconds" in str(result)
    lines = [record.getMessage() for record in caplog.records]
    assert any(line.startswith(f"waiting for process 2 (127.0.0.1:{ports[2]}), for ") for line in lines)
    assert any(line.startswith(f"process 0 (127.0.0.1:{ports[0]}) waits for process 2") for line in lines)


def test_a_missing_leader_is_named() -> None:
    ports = own_ports(2)
    (found,) = joined((listed(1, ports), options(timeout_seconds=0.6)))
    assert f"process 0 (127.0.0.1:{ports[0]}) did not come within 0.6 seconds" in str(found)


@contextlib.contextmanager
def listening(answer: bytes = b"") -> Iterator[int]:
    """A port on which somebody else listens, and answers."""
    with socket.create_server(("127.0.0.1", 0)) as server, concurrent.futures.ThreadPoolExecutor(1) as pool:
        server.settimeout(0.1)
        open_, held = [True], []

        def serve() -> None:
            while open_:
                with contextlib.suppress(TimeoutError):
                    held.append(server.accept()[0])
                    held[-1].sendall(answer)

        pool.submit(serve)
        yield server.getsockname()[1]
        open_.clear()
    for connection in held:
        connection.close()


def test_processes_of_ipv6() -> None:
    """Listed, and told the leader alone, whose addresses the others then make up themselves."""
    if not _has_ipv6():
        pytest.skip("this machine has no IPv6")
    ports = own_ports(2)
    addresses = tuple(f"[::1]:{port}" for port in ports)
    for told in (addresses, None):
        given = [ProcessAddresses(index, 2, addresses[0], told, "test") for index in (0, 1)]
        found = joined(*((one, options()) for one in given))
        places = [[Address.from_text(a).host for a in one.addresses] for one in found if isinstance(one, Joined)]
        assert places == [["::1", "::1"]] * 2, found


def test_a_name_that_has_only_an_address_of_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a cluster of IPv6 alone. The cores of several processes meet at a second port of its host."""
    if not _has_ipv6():
        pytest.skip("this machine has no IPv6")
    found = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda _, *rest, **kind: found("::1", *rest, **kind))
    cluster: Any = SimpleNamespace(addresses=["pod:4000"], process_index=0)
    with _held_port(cluster) as port:
        assert port


def _has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def test_a_port_in_use() -> None:
    with listening() as port:
        (found,) = joined((listed(0, [port, own_ports(1)[0]]), options()))
    assert f"process 0 (127.0.0.1:{port}): port {port} is in use on this machine" in str(found)


def test_another_server_in_the_leaders_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """As TensorFlow's server of another job greets, or of this one, which has started."""
    monkeypatch.setattr(module, "_STRANGER_SECONDS", 0.3)
    with listening(b"\x00\x00\x18\x04\x00") as port:
        (found,) = joined((listed(1, [port, own_ports(1)[0]]), options()))
    assert "another job on that port" in str(found)


def test_addresses_that_nobody_knows_or_that_are_elsewhere() -> None:
    port = own_ports(1)[0]
    names = ("no-such-host.invalid", "two..dots", "long" * 20)
    unknown = [ProcessAddresses.listed([f"127.0.0.1:{port}", f"{name}:4000"], 0, "TF_CONFIG") for name in names]
    elsewhere = ProcessAddresses.listed([f"192.0.2.1:{port}", f"192.0.2.2:{port}"], 0, "TF_CONFIG")
    for name, one in zip(names, unknown, strict=True):
        assert f"TF_CONFIG: the host of {name}:4000 is unknown here" in str(joined((one, options()))[0])
    assert "192.0.2.1 is not an address of this machine" in str(joined((elsewhere, options()))[0])


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"process_index": "0"}, "process_index must be a whole number, and is '0'"),
        ({"num_processes": 2.0}, "num_processes must be a whole number, and is 2.0"),
        ({"listen_port": 70_000}, "listen_port must be from 1 to 65535, and is 70000"),
        ({"token": b"secret"}, "token must be a text, and is of type bytes"),
        ({"join_timeout_seconds": "30"}, "join_timeout_seconds must be a positive number, and is '30'"),
        (
            {"heartbeat_timeout_seconds": float("inf")},
            "_seconds must be a positive number, and is inf",
        ),
        ({"addresses": {"127.0.0.1:4000"}}, "addresses must be a list, .* not {'127.0.0.1:4000'}"),
        ({"addresses": "127.0.0.1:4000"}, "addresses must be a list, .* not '127.0.0.1:4000'"),
    ],
)
def test_arguments_of_another_kind(wrong: dict[str, Any], words: str) -> None:
    """As texts of environment variables are, which a user hands on."""
    with pytest.raises(ClusterError, match=words):
        initialize_cluster(**{"addresses": ["127.0.0.1:4000"], "process_index": 0, **wrong})


def test_another_token() -> None:
    ports = own_ports(2)
    leader, other = joined(
        (listed(0, ports), options("one", timeout_seconds=5.0)), (listed(1, ports), options("two", timeout_seconds=5.0))
    )
    assert f"process 1 (127.0.0.1:{ports[1]}) did not come" in str(leader)
    assert f"process 0 (127.0.0.1:{ports[0]}) has a different token" in str(other)


def test_what_contradicts_ends_all_at_once() -> None:
    """Two tell of other addresses, or have other devices: each of them is told, and who waits beside them."""
    ports, strange = own_ports(3), own_ports(1)[0]
    found = joined(
        (listed(0, ports), options()),
        (listed(1, ports), options()),
        (listed(2, [ports[0], strange, ports[2]]), options()),
        delay=0.4,
    )
    for result in found:
        assert isinstance(result, ClusterError)
        assert "differ in addresses" in str(result)
        assert str(strange) in str(result)
    ports = own_ports(2)
    found = joined((listed(0, ports), options()), (listed(1, ports), options(devices="4 CPU")))
    for result in found:
        assert "differ in devices: 4 CPU and 2 CPU" in str(result)


def test_two_of_one_index() -> None:
    """As two jobs on one port; those who came first go on."""
    leader = f"127.0.0.1:{own_ports(1)[0]}"
    first, own, twin, last = joined(
        *((ProcessAddresses(i, 3, leader, None, "test"), options()) for i in (0, 1, 1, 2)), delay=0.5
    )
    assert "process 1 is there already; are two jobs started on one port" in str(twin)
    assert all(isinstance(x, Joined) for x in (first, own, last))
