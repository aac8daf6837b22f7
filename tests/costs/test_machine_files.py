"""Machines as files: those that come with the package, one's own, and what is wrong with a file."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from meshtf.costs import TorusLinks, load_machine, machine_names, machine_text
from meshtf.errors import MachineError
from meshtf.mesh_impl.tpu.topology import GENERATIONS
from meshtf_programs.command_lines.plan import command_line

pytestmark = pytest.mark.quick


def test_every_machine_that_comes_with_the_package_loads_and_names_its_source() -> None:
    assert {"v2", "v3", "v4", "v5e", "v5p", "a100", "h100", "h200"} <= set(machine_names())
    for name in machine_names():
        machine = load_machine(name)
        assert machine.name == name
        assert machine.source
        if name in GENERATIONS:
            links = machine.links
            assert isinstance(links, TorusLinks)
            assert links.cores_per_chip == GENERATIONS[name].cores_per_chip
            assert links.axes == len(GENERATIONS[name].chips[-1])


def test_the_flag_names_every_machine() -> None:
    named = command_line().flags["machine"].help.partition(": ")[2].partition(", or ")[0].split(", ")
    assert sorted(named) == machine_names()


@pytest.mark.parametrize("name", ["v3", "a100"])
def test_what_is_written_is_read_again(name: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    changes = {"name": 'a "b"\\\té\r\x07', "memory_bandwidth": np.float64(1e12)}
    for machine in (load_machine(name), dataclasses.replace(load_machine(name), **changes)):
        path.write_bytes(machine_text(machine).encode())
        assert load_machine(str(path)) == machine


def test_an_unknown_machine_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(MachineError) as refused:
        load_machine("v5pp")
    assert str(refused.value).startswith('there is no machine "v5pp". Did you mean "v5p"?')
    assert "The known machines are a100, h100, h200, v2, v3, v4, v5e, v5p" in str(refused.value)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            "memory_bandwidth = 450000000000.0|memory_bandwidth = -1",
            "memory_bandwidth is a positive number, and not -1",
        ),
        (
            "memory_bandwidth|memory_bandwith",
            '"memory_bandwith" is not a field of a machine; did you mean "memory_bandwidth"',
        ),
        ("name = |#", "name is missing"),
        ("[torus]|[tours]", r"links must be a table \[torus\] or tables \[\[levels\]\], exactly one of the two"),
        ("axes = |axis = ", r'\[torus\] "axis" is not a field of a machine; did you mean "axes"'),
        ("name = |name ", "is not TOML: "),
        ('name = "v3"|name = 3', "Machine.name is a text, not empty, and not 3"),
        ("source = |source = '' #", "Machine.source is a text, not empty, and not ''"),
        ("overlaps = false|overlaps = 'no'", "Machine.overlaps is true or false, and not 'no'"),
        ("fuses = true|fuses = 1", "Machine.fuses is true or false, and not 1"),
        ("memory_bytes = |memory_bytes = true #", "Machine.memory_bytes is a positive number, and not True"),
        ("product_tile = [8,|product_tile = [true,", r"product_tile is three positive integers, and not \(True"),
        ("bfloat16 = |bfloat16 = '1' #", "Machine.peak_flops of bfloat16 is a positive number, and not '1'"),
        ("axes = 2|axes = 2.0", "TorusLinks.axes is 2 or 3, and not 2.0"),
        ("cores_per_chip = 2|cores_per_chip = true", "TorusLinks.cores_per_chip is 1 or 2, and not True"),
        ("ring_from = 4|ring_from = 4.5", "TorusLinks.ring_from is a positive number of chips, and not 4.5"),
    ],
)
def test_what_is_wrong_in_a_file_is_told_with_its_path(changed: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(machine_text(load_machine("v3")).replace(*changed.split("|"), 1))
    with pytest.raises(MachineError, match=f"mine.toml.*{message}"):
        load_machine(str(path))


@pytest.mark.parametrize("links", ["torus = 3", "levels = 3", "levels = [1]"])
def test_links_that_are_no_tables_are_told(links: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(links)
    with pytest.raises(MachineError, match=r"mine.toml: links must be a table \[torus\] or tables \[\[levels\]\], not"):
        load_machine(str(path))


def test_a_file_that_is_not_there_or_no_text_is_told(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match=r"the machine's file .*none.toml cannot be read: .*No such file"):
        load_machine(str(tmp_path / "none.toml"))
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(MachineError, match="cannot be read"):
        load_machine(str(tmp_path / "bytes.toml"))
