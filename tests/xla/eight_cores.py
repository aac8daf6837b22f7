"""Executes HLO on eight replicas of XLA's CPU runtime, in jaxlib's client: no TPU, no TensorFlow.

jaxlib's entry points are private, so the test extra pins its release.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxlib import _jax, xla_client
from tensorflow.compiler.xla.service import hlo_pb2

CORES = 8


class CompiledHlo:
    """A serialized HloModuleProto, compiled for eight replicas when it first runs.

    Attributes:
      module: the HLO as it was given.
      aliases: by result, the parameter whose memory it takes: a variable that is assigned.
    """

    def __init__(self, hlo: bytes) -> None:
        self.module = hlo_pb2.HloModuleProto.FromString(hlo)
        entries = self.module.input_output_alias.entries
        self.aliases = {entry.output_shape_index[0]: entry.parameter_number for entry in entries}
        self._hlo = hlo

    @functools.cached_property
    def _program(self) -> _jax.LoadedExecutable:
        module = _jax.mlir.xla_computation_to_mlir_module(xla_client.XlaComputation(self._hlo))
        options = xla_client.CompileOptions()
        options.num_replicas, options.num_partitions = CORES, 1
        # What is tested is the program; making its machine code fast takes longer than running it.
        options.executable_build_options.debug_options.xla_backend_optimization_level = 0
        options.device_assignment = xla_client.DeviceAssignment.create(np.arange(CORES).reshape(CORES, 1))
        devices = _jax.DeviceList(tuple(_client().local_devices()))
        return _client().compile_and_load(module, devices, options)

    def run(self, parameters: Sequence[Sequence[np.ndarray]]) -> list[list[np.ndarray]]:
        """Runs it once. Parameters and results are lists by core."""
        results = self._program.execute_sharded([_on_devices(p) for p in parameters])
        arrays = results.disassemble_into_single_device_arrays()
        return [[np.array(piece) for piece in pieces] for pieces in arrays]


@functools.cache
def _client() -> xla_client.Client:
    return xla_client.make_cpu_client(num_devices=CORES)


def _on_devices(pieces: Sequence[np.ndarray]) -> jax.Array:
    """One array of a leading dimension more, of which each device has its own part."""
    devices = _client().local_devices()
    sharding = NamedSharding(Mesh(np.array(devices), ("replica",)), PartitionSpec("replica"))
    arrays = [np.ascontiguousarray(p).reshape(1, *np.shape(p)) for p in pieces]
    aval = jax.core.ShapedArray((CORES, *arrays[0].shape[1:]), arrays[0].dtype)
    return _jax.batched_device_put(aval, sharding, arrays, devices, True, enable_x64=True)
