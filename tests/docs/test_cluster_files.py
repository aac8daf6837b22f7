"""The files with which schedulers start training over several hosts: their syntax, and that they fit the programs."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from meshtf.bin import train
from meshtf.cluster.environments import addresses_from

FILES = Path(__file__).parents[2] / "docs" / "cluster_files"


def test_the_slurm_file_is_a_shell_script_with_options_of_sbatch() -> None:
    path = FILES / "train.slurm"
    subprocess.run(["bash", "-n", str(path)], check=True)
    lines = path.read_text().splitlines()
    assert lines[0] == "#!/bin/bash"
    assert all("=" in line or line.endswith("--requeue") for line in lines if line.startswith("#SBATCH"))
    assert "srun --kill-on-bad-exit=1 meshtf-train --cluster" in path.read_text()


def test_the_jobset_starts_as_many_processes_as_it_says() -> None:
    jobset = json.loads((FILES / "jobset.json").read_text())
    assert (jobset["apiVersion"], jobset["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    (workers,) = jobset["spec"]["replicatedJobs"]
    job = workers["template"]["spec"]
    (container,) = job["template"]["spec"]["containers"]
    environment: dict[str, Any] = {each["name"]: each.get("value", "3") for each in container["env"]}
    found = addresses_from(environment)
    assert job["completions"] == job["parallelism"] == found.num_processes
    name = jobset["metadata"]["name"]
    assert found.leader == f"{name}-{workers['name']}-0-0.{name}:4040"
    volumes = {volume["name"] for volume in job["template"]["spec"]["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes
    assert train.command_line().parse(container["command"]).cluster


@pytest.mark.parametrize("name", ["train.slurm", "jobset.json"])
def test_the_page_names_the_file(name: str) -> None:
    assert f"(cluster_files/{name})" in (FILES.parent / "clusters.md").read_text()
