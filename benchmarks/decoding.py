"""Measures decoding with a cache: 16 prompts of 16 bytes, each continued by 64, with a model of `lm_tiny`'s shape.

Run it with python -m benchmarks.decoding. It needs JAX. The loss is the mean log-likelihood of the added tokens.
Weights are random, and JAX has different ones. Besides greedy decoding it measures beam search, whose loss is over all
sequences that it returns.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable

import gin
import numpy as np

import meshtf as mtf
import meshtf.models  # lm_tiny.gin needs it; imports must not count in a first call
from benchmarks.measuring.machine import machine
from benchmarks.measuring.side_by_side import Step, as_table, side_by_side
from benchmarks.transformer_step import DATA_AND_MODEL
from meshtf.mesh_impl.mesh_impl import MeshImpl
from meshtf.train import Training
from meshtf.train.configuration import find_gin_file
from meshtf.train.decoding.options import BEAM, Decoding
from meshtf.train.decoding.programs import Sizes, generation_program

BATCH, PROMPT, NEW = 16, 16, 64


def prompts() -> dict[str, np.ndarray]:
    ids = np.zeros([BATCH, PROMPT + NEW], np.int32)
    ids[:, :PROMPT] = np.random.default_rng(0).integers(97, 123, [BATCH, PROMPT])
    return {
        "targets": ids,
        "lengths": np.full([BATCH], PROMPT, np.int32),
        "ends": np.full([BATCH], PROMPT + NEW, np.int32),
    }


def program(mesh_shape: str, layout: str, *, compile_loops: bool, beam_size: int | None = None) -> mtf.Function:
    """The program for greedy decoding or a beam search, on virtual CPUs."""
    return program_on(mtf.SpmdMeshImpl(mesh_shape, layout, compile_loops=compile_loops), beam_size)


def program_on(mesh_impl: MeshImpl, beam_size: int | None = None) -> mtf.Function:
    """The program for greedy decoding or a beam search, on any mesh."""
    decoding = Decoding() if beam_size is None else Decoding(BEAM, beam_size=beam_size)
    gin.clear_config()
    gin.parse_config_files_and_bindings([str(find_gin_file("lm_tiny.gin"))], [])
    made = generation_program(Training(), mesh_impl, Sizes(BATCH, PROMPT + NEW, prompts=PROMPT), decoding)
    gin.clear_config()
    return made


def on_virtual_cpus(mesh_shape: str, layout: str, *, compile_loops: bool = True, beam_size: int | None = None) -> Step:
    mesh = mtf.convert_to_shape(mesh_shape)
    mtf.virtual_cpus(mesh.size)
    decode = program(mesh_shape, layout, compile_loops=compile_loops, beam_size=beam_size)
    given = prompts()
    return lambda: decode(**given)["log_likelihoods"].numpy().mean()


def in_jax(rows: int, cols: int) -> Step:
    from benchmarks.workloads.in_jax.decoding import jax_by_hand  # the other programs run without JAX

    return jax_by_hand(rows, cols)


PROGRAMS: dict[str, Callable[[], Step]] = {
    "JAX by hand, 1 core": functools.partial(in_jax, 1, 1),
    "meshtf, 1 core": functools.partial(on_virtual_cpus, "all:1", ""),
    "meshtf, 1 core, op by op": functools.partial(on_virtual_cpus, "all:1", "", compile_loops=False),
    "JAX by hand, 4x2 cores": functools.partial(in_jax, 4, 2),
    "meshtf, 4x2 cores": functools.partial(on_virtual_cpus, "rows:4;cols:2", DATA_AND_MODEL),
    **{
        f"meshtf, {name}, {size} beams": functools.partial(on_virtual_cpus, mesh_shape, layout, beam_size=size)
        for name, mesh_shape, layout in (("1 core", "all:1", ""), ("4x2 cores", "rows:4;cols:2", DATA_AND_MODEL))
        for size in (2, 4, 8)
    },
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=3, help="batches of each program in a round")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    print(machine())
    print(as_table(side_by_side("benchmarks.decoding", list(PROGRAMS), arguments.steps, arguments.rounds)))


if __name__ == "__main__":
    main()
