"""Who the processes are, from every launcher's variables, and what is said of wrong ones."""

from __future__ import annotations

import json

import pytest

from meshtf.cluster.environments import addresses_from
from meshtf.cluster.process_addresses import ProcessAddresses
from meshtf.errors import ClusterError

TWO = ["a:4000", "b:4000"]


def tf_config(**changes: object) -> dict[str, str]:
    return {"TF_CONFIG": json.dumps({"cluster": {"worker": TWO}, "task": {"type": "worker", "index": 1}, **changes})}


TORCHRUN = {"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "a", "MASTER_PORT": "4000"}
OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}
SLURM = {
    "SLURM_PROCID": "3",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_NODELIST": "n[2,10],m1",
    "SLURM_JOB_ID": "77",
}


def test_tf_config() -> None:
    found = addresses_from(tf_config())
    assert (found.process_index, found.num_processes, found.leader, found.addresses) == (1, 2, "a:4000", tuple(TWO))
    assert found.own == "b:4000"
    assert found.name(1) == "process 1 (b:4000)"
    with_chief = addresses_from(tf_config(cluster={"worker": TWO, "chief": ["c:1"]}))
    assert (with_chief.addresses, with_chief.process_index) == (("c:1", *TWO), 2)


def test_launchers_that_tell_the_leader_alone() -> None:
    assert addresses_from(TORCHRUN) == ProcessAddresses(
        1, 4, "a:4000", None, "RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT"
    )
    here = addresses_from(OPEN_MPI)
    assert (here.process_index, here.num_processes, here.leader.split(":")[0]) == (2, 4, "127.0.0.1")
    slurm = addresses_from(SLURM)
    assert (slurm.process_index, slurm.num_processes, slurm.leader.split(":")[0]) == (3, 4, "n2")
    assert slurm == addresses_from(SLURM | {"SLURM_PROCID": "3"})
    another_job = addresses_from(SLURM | {"SLURM_JOB_ID": "78"})
    assert another_job.leader.split(":")[1] != slurm.leader.split(":")[1]
    assert addresses_from(SLURM, leader="head:5").leader == "head:5"
    assert slurm.own is None


@pytest.mark.parametrize(
    ("host", "leader"),
    [
        ("::1", "[::1]:4000"),
        ("[::1]", "[::1]:4000"),
        ("2001:DB8::1", "[2001:db8::1]:4000"),
        ("fe80::1%eth0", "[fe80::1%eth0]:4000"),
        ("10.0.0.1", "10.0.0.1:4000"),
        ("n1.cluster.local", "n1.cluster.local:4000"),
    ],
)
def test_torchruns_host_of_each_kind(host: str, leader: str) -> None:
    assert addresses_from(TORCHRUN | {"MASTER_ADDR": host}).leader == leader


@pytest.mark.parametrize(
    ("hosts", "first"),
    [
        ("rack[0-1]n[2-3]", "rack0n2"),
        ("n[1-2]-ib", "n1-ib"),
        ("node-[001-010].cluster.local", "node-001.cluster.local"),
    ],
)
def test_slurms_first_host(hosts: str, first: str) -> None:
    assert addresses_from(SLURM | {"SLURM_STEP_NODELIST": hosts}).leader.split(":")[0] == first


def test_two_texts_of_one_address() -> None:
    """The same place twice is refused however it is written; processes of one host are counted."""
    with pytest.raises(ClusterError, match=r"\[::1\]:4000 appears twice"):
        ProcessAddresses.listed(["[::1]:4000", "[0:0::1]:4000"], 0, "test")
    assert ProcessAddresses.listed(["[::1]:4000", "[0:0::1]:4001", "a:1"], 0, "test").num_on_this_host == 2


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({}, ["initialize_cluster(addresses=", "torchrun"]),
        ({"TF_CONFIG": "{"}, ["TF_CONFIG: it is not JSON", '"task"']),
        ({"TF_CONFIG": "[]"}, ['no "cluster" and "task"']),
        ({"TF_CONFIG": '{"cluster": {}}'}, ['no "cluster" and "task"']),
        (tf_config(task={"type": "wroker", "index": 0}), ["'wroker'", 'did you mean "worker"']),
        (
            tf_config(task={"type": "worker", "index": 2}),
            ["index 2 in job 'worker', which has 2 tasks, counted from 0"],
        ),
        (tf_config(task={"type": "worker", "index": "1"}), ["index '1'"]),
        (tf_config(cluster={"worker": TWO, "ps": ["c:1"]}), ["job 'ps' does not compute here"]),
        (tf_config(cluster={"worker": "a:4000"}), ["must be a list of addresses", "'a:4000'"]),
        (tf_config(cluster={"worker": ["a:4000", "a:4000"]}), ["a:4000 appears twice"]),
        (tf_config(cluster={"worker": ["a:4000", "b"]}), ["'b' is no address", '"10.0.0.1:4000"']),
        (tf_config(cluster={"worker": ["a:4000", "b:99999"]}), ["'b:99999' is no address"]),
        ({k: v for k, v in TORCHRUN.items() if k != "MASTER_PORT"}, ["RANK is set and MASTER_PORT is not"]),
        (TORCHRUN | {"RANK": "one"}, ["RANK must be a number, and is 'one'"]),
        (TORCHRUN | {"RANK": "4"}, ["process 4 does not exist: there are 4, counted from 0"]),
        (OPEN_MPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, ["4 processes, 2 of them on this host", "leader="]),
        (
            SLURM | {"SLURM_STEP_NODELIST": "[]"},
            ["'[]'", "not a list of hosts", "a number is missing", "    []\n     ^"],
        ),
        (SLURM | {"SLURM_STEP_NODELIST": "a:[1-2]"}, ["'a:[1-2]'", "not a list of hosts", "'a:1' is no IPv6 address"]),
        (TORCHRUN | {"MASTER_ADDR": "a:4000"}, ["MASTER_ADDR is 'a:4000'", "nor a host without a port"]),
        (TORCHRUN | {"MASTER_PORT": "four"}, ["MASTER_PORT must be a number, and is 'four'"]),
        (TORCHRUN | {"MASTER_PORT": "70000"}, ["MASTER_PORT 70000", "between 1 and 65535"]),
        (tf_config(cluster={"worker": ["::1:4000", "b:1"]}), ["TF_CONFIG: '::1:4000'", "in brackets before its port"]),
    ],
)
def test_wrong_variables(environment: dict[str, str], words: list[str]) -> None:
    with pytest.raises(ClusterError) as raised:
        addresses_from(environment)
    for word in words:
        assert word in str(raised.value)


def test_a_leader_that_contradicts_tf_config() -> None:
    with pytest.raises(ClusterError, match="its first process is a:4000, and leader= says c:1"):
        addresses_from(tf_config(), leader="c:1")
