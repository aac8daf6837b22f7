"""What leaves a process by its link, as the kernel counts it, is what the plan says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.cluster_collectives import STEPS, Case, cost_on_link
from benchmarks.joined_processes import Processes, processes
from benchmarks.limited_links import NoNamespacesError, limited_hosts

PROCESSES, CORES, ELEMENTS = 2, 2, 1 << 20
HEADERS = 0.08
"""Of what is sent: 66 bytes in a packet of 1,514 are headers, acknowledgements go the same way, and messages have some
bytes of their own."""

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
    counted = max(by_link for _, by_link in on_links.run(cost_on_link, case))
    assert planned <= counted <= planned * (1 + HEADERS)
