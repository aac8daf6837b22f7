"""Finds the processes in environment variables: meshtf-launch's, TF_CONFIG, torchrun's, Open MPI's and Slurm's."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from meshtf.cluster.host_list import HostList, HostListFault
from meshtf.cluster.process_addresses import ProcessAddresses
from meshtf.errors import ClusterError, counted, nearest
from meshtf_programs.addresses import Address, AddressFault, bare_host
from meshtf_programs.launching.launched import MESHTF_LAUNCH, Launched

_Environment = Mapping[str, str]

_JOBS = ("chief", "worker")
"""The jobs of a TF_CONFIG whose tasks compute; tasks are numbered in this order of jobs."""

_FIRST_PORT, _PORTS = 20_000, 40_000

_NOTHING_FOUND = """\
no environment variable lists the processes. Give initialize_cluster(addresses=["a:4000", "b:4000"], process_index=0), \
or leader=, num_processes= and process_index=; or start them with Slurm, mpirun, torchrun or TF_CONFIG."""

_TF_CONFIG_EXAMPLE = (
    '{"cluster": {"worker": ["a:4000", "b:4000"]}, "task": {"type": "worker", "index": 0}}, index 1 in the second'
)


def addresses_from(environment: _Environment, leader: str | None = None) -> ProcessAddresses:
    """Returns the processes from the first of these that is set: MESHTF_LAUNCH (by meshtf-launch), TF_CONFIG, and the
    variables of torchrun, Open MPI and Slurm.

    Args:
      environment: the variables, such as os.environ.
      leader: the address of process 0. It replaces the address in the variables.

    Raises:
      ClusterError: if none of them is set, or if one is wrong or contradicts itself.
    """
    for variable, read in _READERS.items():
        if variable in environment:
            return read(environment, leader)
    raise ClusterError(_NOTHING_FOUND)


def _from_launcher(environment: _Environment, leader: str | None) -> ProcessAddresses:
    try:
        launched = Launched.from_text(environment[MESHTF_LAUNCH])
    except ValueError as error:
        raise ClusterError(f"{MESHTF_LAUNCH}: {error}. meshtf-launch sets it; unset it elsewhere") from None
    if leader not in (None, launched.addresses[0]):
        raise ClusterError(f"{MESHTF_LAUNCH}: its first process is {launched.addresses[0]}, and leader= says {leader}")
    return ProcessAddresses.listed(launched.addresses, launched.process_index, "meshtf-launch", launched.token)


def _from_tf_config(environment: _Environment, leader: str | None) -> ProcessAddresses:
    config = _parsed(environment["TF_CONFIG"])
    cluster, task = config["cluster"], config["task"]
    addresses: list[str] = []
    starts: dict[str, int] = {}
    for job in sorted(cluster, key=_job_order):
        starts[job] = len(addresses)
        addresses += cluster[job]
    job, index = task.get("type"), task.get("index")
    if job not in starts:
        raise _wrong_tf_config(f"the task is of job {job!r}, which its cluster lacks{nearest(str(job), starts)}")
    if not isinstance(index, int) or not 0 <= index < len(cluster[job]):
        raise _wrong_tf_config(
            f"the task has index {index!r} in job {job!r}, which has {counted(len(cluster[job]), 'task')}, "
            "counted from 0"
        )
    if leader is not None and leader != addresses[0]:
        raise _wrong_tf_config(f"its first process is {addresses[0]}, and leader= says {leader}")
    return ProcessAddresses.listed(addresses, starts[job] + index, "TF_CONFIG")


def _parsed(text: str) -> dict[str, Any]:
    """Returns TF_CONFIG, with a cluster of lists of addresses and a task."""
    try:
        config = json.loads(text)
    except ValueError as error:
        raise _wrong_tf_config(f"it is not JSON: {error}") from None
    if not isinstance(config, dict) or not all(isinstance(config.get(key), dict) for key in ("cluster", "task")):
        raise _wrong_tf_config('it has no "cluster" and "task"')
    for job, addresses in config["cluster"].items():
        if job not in _JOBS:
            raise _wrong_tf_config(f"job {job!r} does not compute here; the jobs that do are {' and '.join(_JOBS)}")
        if not isinstance(addresses, list) or not all(isinstance(a, str) for a in addresses):
            raise _wrong_tf_config(f"the processes of job {job!r} must be a list of addresses, not {addresses!r}")
    return config


def _wrong_tf_config(what: str) -> ClusterError:
    return ClusterError(f"TF_CONFIG: {what}. It must be like {_TF_CONFIG_EXAMPLE}")


def _job_order(job: str) -> int:
    return _JOBS.index(job)


def _from_torchrun(environment: _Environment, leader: str | None) -> ProcessAddresses:
    index, number = _integers(environment, ("RANK", "WORLD_SIZE"))
    told = leader or _master(environment)
    return ProcessAddresses(index, number, told, None, "RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT")


def _master(environment: _Environment) -> str:
    """Returns the leader's address. MASTER_ADDR has only a host, and no brackets around an IPv6 address."""
    host, port = (_given(environment, name, "RANK") for name in ("MASTER_ADDR", "MASTER_PORT"))
    if not port.isdecimal():
        raise ClusterError(f"MASTER_PORT must be a number, and is {port!r}")
    try:
        return str(Address(host, int(port)))
    except AddressFault as fault:
        raise ClusterError(f"MASTER_ADDR is {host!r} and MASTER_PORT {port}: {fault}") from None


def _from_open_mpi(environment: _Environment, leader: str | None) -> ProcessAddresses:
    names = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE")
    index, number, here = _integers(environment, names)
    if leader is None and here != number:
        raise ClusterError(
            f"Open MPI: {number} processes, {here} of them on this host; its variables do not say where process 0 "
            f'is: give initialize_cluster(leader="host:port"), the same in every process'
        )
    job = environment.get("PMIX_NAMESPACE", environment.get("OMPI_MCA_ess_base_jobid", ""))
    told = leader or str(Address("127.0.0.1", _port_of(job)))
    return ProcessAddresses(index, number, told, None, "Open MPI")


def _from_slurm(environment: _Environment, leader: str | None) -> ProcessAddresses:
    # TensorFlow's SlurmClusterResolver sorts hosts by name, n10 before n2. But Slurm numbers tasks in its own order.
    index, number = _integers(environment, ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"))
    job = f"{_given(environment, 'SLURM_JOB_ID', 'SLURM_PROCID')}.{environment.get('SLURM_STEP_ID', '0')}"
    hosts = _given(environment, "SLURM_STEP_NODELIST", "SLURM_PROCID")
    told = leader or str(Address(_first_host(hosts), _port_of(job)))
    return ProcessAddresses(index, number, told, None, "Slurm")


def _first_host(hosts: str) -> str:
    """Returns the first host of Slurm's list, such as `n3` of `n[3-4,7],m1`."""
    try:
        return bare_host(HostList.from_text(hosts).first)
    except (HostListFault, AddressFault) as fault:
        raise ClusterError(f"SLURM_STEP_NODELIST is {hosts!r}, which is not a list of hosts: {fault}") from None


def _port_of(job: str) -> int:
    """Returns a port that two jobs on one host are unlikely to share. If they do, the second one gets an error."""
    return _FIRST_PORT + sum(byte * 251**place for place, byte in enumerate(job.encode())) % _PORTS


def _integers(environment: _Environment, names: Sequence[str]) -> list[int]:
    texts = [_given(environment, name, names[0]) for name in names]
    for name, text in zip(names, texts, strict=True):
        if not text.isdecimal():
            raise ClusterError(f"{name} must be a number, and is {text!r}")
    return [int(text) for text in texts]


def _given(environment: _Environment, name: str, beside: str) -> str:
    if not environment.get(name):
        raise ClusterError(f"{beside} is set and {name} is not; both are needed to know which processes there are")
    return environment[name]


_READERS: dict[str, Callable[[_Environment, str | None], ProcessAddresses]] = {
    MESHTF_LAUNCH: _from_launcher,
    "TF_CONFIG": _from_tf_config,
    "RANK": _from_torchrun,
    "OMPI_COMM_WORLD_RANK": _from_open_mpi,
    "SLURM_PROCID": _from_slurm,
}
