"""Programs in several processes, told of one another as meshtf-launch tells them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from meshtf_programs.launching.launched import MESHTF_LAUNCH, Launched
from tests.fresh_process import Finished, FreshProcess
from tests.own_ports import own_ports


def started(number: int, arguments: Sequence[str], folder: Path, cores: int | None = None) -> list[FreshProcess]:
    addresses = tuple(f"127.0.0.1:{port}" for port in own_ports(number))
    told = [Launched(i, addresses, "token", cores).to_text() for i in range(number)]
    return [FreshProcess(arguments, folder, environment={MESHTF_LAUNCH: text}) for text in told]


def run_together(number: int, arguments: Sequence[str], folder: Path, cores: int | None = None) -> list[Finished]:
    return [process.finish() for process in started(number, arguments, folder, cores)]
