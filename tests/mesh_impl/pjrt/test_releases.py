"""Releases of jaxlib, each laid over this environment: a training step on two virtual GPUs.

Wheels come from the folder that MESHTF_JAXLIB_WHEELS names, or else from pip's index.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from meshtf.mesh_impl.pjrt import pjrt

pytestmark = pytest.mark.long

LEAST_PYTHON = {"0.10.1": (3, 11), "0.10.2": (3, 11), "0.11.2": (3, 12), "0.12.0.1": (3, 12)}
"""The releases that are tried, with the Python that each needs: two for Python 3.11, and newer minor ones."""

_PROGRAM = """
import tensorflow as tf
import meshtf as mtf
from jaxlib import version
from meshtf.mesh_impl.pjrt import pjrt
from meshtf.mesh_impl.pjrt.input_chunks import InputChunks
pjrt._INPUT_CHUNKS["cpu"] = InputChunks(count=2, min_bytes=1, multiple=4)
batch, hidden = mtf.Dimension("batch", 8), mtf.Dimension("hidden", 16)
def step(x):
    loss = mtf.reduce_mean(mtf.square(mtf.layers.dense(x, [hidden], name="dense") - 1.0))
    mtf.optimize.MomentumOptimizer(0.1, 0.9).minimize(loss)
    return loss
mtf.virtual_gpus(2)
run = mtf.function(step, mtf.GpuMeshImpl("all:2", "batch:all"), inputs={"x": mtf.TensorSpec([batch, ("features", 4)])})
losses = [float(run(x=tf.ones([8, 4]))) for _ in range(4)]
assert losses[-1] < losses[0], losses
assert run._execution.program._cores._joining, "no input went in chunks"
print("trained with jaxlib", version.__version__)
"""


def test_the_newest_releases_are_those_of_the_module() -> None:
    assert {tuple(map(int, release.split(".")[:2])) for release in LEAST_PYTHON} == set(pjrt.RELEASES)


@pytest.mark.parametrize("release", LEAST_PYTHON)
def test_a_step_is_trained_with_a_release(release: str, tmp_path: Path) -> None:
    least = LEAST_PYTHON[release]
    if sys.version_info < least:
        pytest.skip(f"jaxlib {release} needs Python {least[0]}.{least[1]}, and this is {sys.version.split()[0]}")
    _lay_over(release, tmp_path)
    # A process that starts from nothing: one that is forked has this environment's jaxlib.
    own = os.environ | {"PYTHONPATH": str(tmp_path)}
    ended = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=False, env=own)
    assert ended.returncode == 0, ended.stderr
    assert f"trained with jaxlib {release}" in ended.stdout


def _lay_over(release: str, folder: Path) -> None:
    """Puts jax and jaxlib of a release into a folder, or skips the test."""
    wheels = os.environ.get("MESHTF_JAXLIB_WHEELS")
    where = [] if wheels is None else ["--no-index", f"--find-links={wheels}"]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), *where]
    ended = subprocess.run(
        [*command, f"jax=={release}", f"jaxlib=={release}"], capture_output=True, text=True, check=False
    )
    if ended.returncode:
        pytest.skip(f"neither MESHTF_JAXLIB_WHEELS nor the index has jax and jaxlib {release}: {ended.stderr[-300:]}")
