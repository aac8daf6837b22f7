"""jaxlib's entry points, which are private: what a new release of it breaks, a name here tells."""

from __future__ import annotations

import ast
import importlib.metadata
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import jax
import jax._src.distributed
import numpy as np
import pytest
import tensorflow as tf
from jax._src import hardware_utils
from jax._src.array import ArrayImpl
from jax._src.interpreters import mlir
from jaxlib import _jax, xla_client
from jaxlib.mlir import ir

import meshtf as mtf
from meshtf.mesh_impl.pjrt import pjrt
from meshtf.mesh_impl.pjrt.kinds import TPU
from meshtf.mesh_impl.pjrt.of_this_process import accelerator

PRIVATE = [
    (_jax, ["DeviceList", "JaxRuntimeError", "SingleDeviceSharding", "array_result_handler", "batched_device_put"]),
    (_jax.HostBufferSemantics, ["IMMUTABLE_ONLY_DURING_CALL", "ZERO_COPY"]),
    (_jax.LoadedExecutable, ["execute_sharded"]),
    (_jax.ExecuteResults, ["consume_with_handlers"]),
    (_jax.Client, ["compile_and_load", "devices", "platform", "process_index"]),
    (xla_client, ["CompileOptions", "DeviceAssignment", "make_cpu_client"]),
    (xla_client.CompileOptions, ["ParseFromString", "SerializeAsString", "env_option_overrides"]),
    (jax.Array, ["addressable_shards"]),
    (ArrayImpl, ["_copy_single_device_array_to_host_async"]),
    (xla_client, ["initialize_pjrt_plugin", "load_pjrt_plugin_dynamically", "make_tfrt_tpu_c_api_device_topology"]),
    (xla_client.DeviceTopology, ["_make_compile_only_devices"]),
    (_jax.mlir, ["hlo_to_stablehlo"]),
    (_jax.CompileOnlyPyClient, ["compile"]),
    (_jax.Executable, ["cost_analysis", "get_compiled_memory_stats", "hlo_modules"]),
    (_jax.CompiledMemoryStats, list(pjrt.MEMORY.values())),
    (mlir, ["dtype_to_ir_type", "make_ir_context"]),
    (ir.Module, ["parse"]),
    (ir.WalkResult, ["ADVANCE"]),
    (_jax, ["get_distributed_runtime_client", "get_distributed_runtime_service", "make_gloo_tcp_collectives"]),
    (jax._src.distributed, ["global_state"]),
    (hardware_utils, ["num_available_tpu_chips_and_device_id"]),
]


@pytest.mark.parametrize(("owner", "names"), PRIVATE, ids=lambda x: getattr(x, "__name__", ""))
def test_what_is_private_is_there(owner: object, names: list[str]) -> None:
    release = importlib.metadata.version("jaxlib")
    known = tuple(map(int, release.split(".")[:2])) in pjrt.RELEASES
    assert known, f"pjrt.py is written for jaxlib {pjrt.RELEASES}; this is {release}"
    missing = [name for name in names if not hasattr(owner, name)]
    assert not missing, f"jaxlib {release} has no {', '.join(missing)} in {owner}"


@pytest.mark.parametrize("file", ["pjrt.py", "_coordinator_process.py"])
def test_each_private_name_that_is_used_is_listed(file: str) -> None:
    """`make lint` keeps jaxlib's names in these two files."""
    owners = [owner for owner, _ in PRIVATE]
    used = list(_used(Path(pjrt.__file__).with_name(file)))
    assert used
    missing = [
        f"{module.__name__}.{name}"
        for module, name in used
        if not any(owner is module and name in names for owner, names in PRIVATE)
        and not any(owner is getattr(module, name) for owner in owners)
    ]
    assert not missing, f"list {missing} in PRIVATE"


def test_there_is_no_accelerator_here() -> None:
    assert pjrt.tpu_client() is None
    with pytest.raises(pjrt.NotOpenedError, match="cuda"):
        pjrt.gpu_client()


@pytest.fixture(scope="module")
def cores() -> pjrt.Cores:
    return accelerator(TPU, 8).on(mtf.convert_to_shape("all:8"), None)


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16, tf.int64, tf.bool, tf.complex64], ids=lambda d: d.name)
def test_arrays_to_cores_and_back(cores: pjrt.Cores, dtype: tf.DType) -> None:
    """Of every rank, alike or not, and one replaced."""
    for shape in ((), (3,), (2, 0), (2, 5)):
        pieces = [np.full(shape, n % 2 if dtype == tf.bool else n, dtype.as_numpy_dtype) for n in range(8)]
        for given in (pieces, [pieces[3]] * 8, [pieces[n % 4] for n in range(8)]):
            array = cores.put(given)
            for core, piece in enumerate(given):
                np.testing.assert_array_equal(cores.piece(array, core), piece)
                assert cores.piece(array, core).dtype == dtype.as_numpy_dtype
        replaced = cores.replaced(cores.put(pieces), 2, pieces[5])
        found = [cores.piece(replaced, core) for core in range(8)]
        for own, piece in zip(found, [*pieces[:2], pieces[5], *pieces[3:]], strict=True):
            np.testing.assert_array_equal(own, piece)


def test_gpus_round_as_the_program_says() -> None:
    """CUDA's compiler takes no text for a truth value."""
    overrides = {
        platform: pjrt._options([SimpleNamespace(id=0, platform=platform)]).env_option_overrides
        for platform in ("gpu", "cpu", "tpu")
    }
    assert overrides == {"gpu": [("xla_allow_excess_precision", False)], "cpu": [], "tpu": []}


def _used(path: Path) -> Iterator[tuple[ModuleType, str]]:
    """The names of private modules that a file uses: those that it imports, and the attributes of imported modules."""
    modules: dict[str, ModuleType] = {}
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("jaxlib", "jax._src")):
            owner = importlib.import_module(node.module or "")
            for alias in node.names:
                if isinstance(getattr(owner, alias.name), ModuleType):
                    modules[alias.name] = getattr(owner, alias.name)
                else:
                    yield owner, alias.name
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name.startswith("jax._src")]
            modules |= {name: importlib.import_module(name) for name in names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in modules and not node.attr.startswith("__"):
            yield modules[ast.unparse(node.value)], node.attr
