"""What a process sends to another host, as the kernel counts it, is what the plan says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.clusters.cluster_collectives import STEPS, Case, costs_on_links
from benchmarks.clusters.joined_processes import Processes, processes
from benchmarks.clusters.limited_links import NoNamespacesError, limited_hosts

PROCESSES, CORES, ELEMENTS = 2, 2, 1 << 20
MESSAGES = 0.005
"""Of what is sent: HTTP/2 writes 9 bytes before every 16,384, which is 0.06 %; and each tensor that crosses takes a
request and an answer of some hundred bytes, a few KB in a call that sends 2.1 MB or more. All is 0.08 to 0.11 %."""

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def on_links() -> Iterator[Processes]:
    try:
        with limited_hosts(PROCESSES, "1000mbit") as hosts, processes(hosts, CORES) as running:
            yield running
    except NoNamespacesError as error:
        pytest.skip(f"no network namespaces here: {error}")


@pytest.mark.parametrize("is_flat", [False, True])
@pytest.mark.parametrize("kind", STEPS)
def test_bytes_on_the_link(on_links: Processes, kind: str, is_flat: bool) -> None:
    case = Case(kind, ELEMENTS, PROCESSES * CORES, is_flat)
    planned = case.bytes_between(PROCESSES)
    for _, counted in costs_on_links(on_links, case):
        assert planned <= counted <= planned * (1 + MESSAGES)
