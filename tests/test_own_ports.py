"""The ports that other tests give to processes."""

from __future__ import annotations

import socket

import pytest

from tests.own_ports import own_ports


def test_they_are_free_and_given_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first = own_ports(3)
    assert len({*first, *own_ports(3)}) == 6
    with socket.create_server(("127.0.0.1", first[0])):
        assert first[0] not in own_ports(900)
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw15")
    assert all(27_000 <= port < 28_000 for port in own_ports(5))
