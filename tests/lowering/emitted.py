"""The emitted program of a function, for tests that look into it: what is traced, how often, and which nodes it has."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

import meshtf as mtf
from meshtf.lowering.emit.cores import SeparateCores
from meshtf.lowering.emit.function_calls import grappler_off
from meshtf.lowering.emit.program import SpmdProgram
from meshtf.lowering.processors.cores_in_one_memory import CoresInOneMemory
from meshtf.mesh_impl.mesh_impl import ProgramAtOnce

CALLS = ("PartitionedCall", "StatefulPartitionedCall")
LOOPS = ("While", "StatelessWhile")


def program_of(step: mtf.Function) -> SpmdProgram:
    program = step.lowering.execution(step._fetches).program
    assert isinstance(program, ProgramAtOnce)
    assert isinstance(program.run, SpmdProgram)
    return program.run


def cores_in_memory(step: mtf.Function) -> CoresInOneMemory:
    """The virtual CPUs of a step, all segments of which are traced."""
    graph_of(step)
    cores = program_of(step).cores
    assert isinstance(cores, CoresInOneMemory)
    return cores


def graph_of(step: mtf.Function) -> Any:
    """The graph of the function that starts all cores, traced if it has not been."""
    with grappler_off():
        return program_of(step)._function(asserted=False).graph


def core_functions(step: mtf.Function) -> list[tf.types.experimental.ConcreteFunction]:
    """The functions that cores call, each of them once."""
    return functions_of(program_of(step))


def functions_of(program: Any) -> list[tf.types.experimental.ConcreteFunction]:
    """The functions that cores call in a program, each of them once."""
    program = emitted_program(program)
    with grappler_off():
        program._function(asserted=False)
    cores = program.cores
    if isinstance(cores, SeparateCores):
        return [cores.function.function]
    assert isinstance(cores, CoresInOneMemory)
    return list(dict.fromkeys(f.function for f in cores._functions.values()))


def emitted_program(program: Any) -> Any:
    """The emission's program, which a mesh hands on as one that runs to its end."""
    return program.run if isinstance(program, ProgramAtOnce) else program


def times_traced(program: Any) -> set[int]:
    """How often the program of a core, or each segment of it, has been traced."""
    traces = emitted_program(program).cores.traces
    return {traces} if isinstance(traces, int) else set(traces.values())


def nodes_in(graph: Any) -> list[Any]:
    """Those of a graph and of all functions in it."""
    definition = graph.as_graph_def()
    return [*definition.node, *(node for f in definition.library.function for node in f.node_def)]


def compiled_calls(graph: Any) -> list[Any]:
    """The nodes of a graph, and of all functions in it, that are compiled by XLA."""
    return [node for node in nodes_in(graph) if "_XlaMustCompile" in node.attr]
