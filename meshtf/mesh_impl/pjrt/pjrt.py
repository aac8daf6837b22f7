"""PJRT, the runtime for XLA programs on TPUs, GPUs and CPUs, through jaxlib.

jaxlib's entry points are private and change with its minor releases. Only this module and the process that it starts
(`_coordinator_process.py`) use them. They support the releases in `RELEASES`, and a test tells what another release has
broken. The module imports nothing that imports TensorFlow, so that a process which only compiles starts quickly.

A public alternative would be `jax.jit(jax.export.deserialize(module).call, donate_argnums=...)`. With jaxlib 0.10.2 on
the CPU client, for a step of 110 buffers, it donates them, and starting a step takes 0.107 ms, against 0.100 here. But
it compiles one replica in many partitions, and the collectives and `replica_id` of these programs are of replicas. They
would have to be emitted for partitions instead. Also, `hlo_to_stablehlo` is private, and the module would have to be
packed like JAX's own. So the private entry points stay.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import functools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, cast

import jax
import jax._src.distributed
import numpy as np
from jax._src.hardware_utils import num_available_tpu_chips_and_device_id
from jax._src.interpreters import mlir
from jax.core import ShapedArray
from jax.errors import JaxRuntimeError
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxlib import _jax, version, xla_client  # pyright: ignore[reportAttributeAccessIssue]  # it has no types
from jaxlib.mlir import ir

from meshtf.mesh_impl.pjrt.input_chunks import GPU_INPUTS, InputChunks, joining_module

RELEASES = ((0, 10), (0, 11), (0, 12))
"""The minor releases of jaxlib that this module supports. From 0.11 on they need Python 3.12.

0.11 changed `array_result_handler`, which takes one argument less.
"""

RELEASE = version.__version_info__[:2]
"""The minor release of the installed jaxlib."""

PjrtError = JaxRuntimeError
"""The runtime's error from compiling or starting a program, or from waiting for its results. Its text begins with a
status, such as `RESOURCE_EXHAUSTED`."""


class NotOpenedError(RuntimeError):
    """The runtime of an accelerator does not start."""


CoreArray: TypeAlias = jax.Array
"""An array for each core of this process, all of one shape and dtype. JAX treats it as one replicated array."""

TopologyOptions: TypeAlias = Mapping[str, "str | list[int]"]

_TPU = "tpu"
_PLATFORMS = "jax_platforms"
_MEMORY_FRACTION = "XLA_PYTHON_CLIENT_MEM_FRACTION"
_DEVICE_KINDS = {"cuda": "GPU", "rocm": "GPU"}
_INPUT_CHUNKS = {"cuda": GPU_INPUTS, "rocm": GPU_INPUTS}
_NEVER_SECONDS = 10_000_000
_JOIN_SECONDS = 120
_LEAVE_SECONDS = 30
_SHORTEST_PAUSE, _LONGEST_PAUSE = 1e-4, 5e-3
_COORDINATOR = Path(__file__).with_name("_coordinator_process.py")
_NOT_ON_A_TPU = {
    "TPU_SKIP_MDS_QUERY": "1",  # else libtpu queries a metadata server
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # else one process at a time may compile
    "TPU_ACCELERATOR_TYPE": "v5litepod-8",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
}

_SMALL = 1 << 18
"""The most elements of an array that is copied here. Otherwise a GPU's runtime may block the caller until the previous
step is done, before it has finished reading the array."""

_EXECUTABLE_BUILD_OPTIONS, _DEBUG_OPTIONS, _XLA_BACKEND_EXTRA_OPTIONS = 3, 3, 500
"""Field numbers in XLA's CompileOptionsProto, ExecutableBuildOptionsProto and DebugOptions."""

_ROUNDS_AS_WRITTEN = [("xla_allow_excess_precision", False)]
"""An option for GPUs, with which a program rounds to bfloat16 wherever it has a cast.

XLA would otherwise remove a cast from float32 to bfloat16 and back, and pass float32 from one kernel to the next, which
is twice the bytes. With the option a step of GPT-2 (16 x 1024) reads and writes 57.2 GB, and 62.9 GB without it,
as `make count-gpu` counts for an H200.
"""

_NO_CHECKSUMS = b"-disable-loop-idiom-hashrecognize"

MEMORY = {
    "arguments": "argument_size_in_bytes",
    "results": "output_size_in_bytes",
    "aliased": "alias_size_in_bytes",
    "temporaries": "temp_size_in_bytes",
    "code": "generated_code_size_in_bytes",
    "peak": "peak_memory_in_bytes",
}
"""The compiler's numbers of bytes: our names, and jaxlib's."""

COST = {"flops": "flops", "bytes_accessed": "bytes accessed", "seconds": "optimal_seconds"}
"""The compiler's estimates: our names, and XLA's."""


class Client:
    """A runtime and its devices; a process has one for each kind of device."""

    def __init__(self, client: Any, member: _Member | None = None) -> None:  # jaxlib gives its class no type
        self._client, self._member = client, member

    @property
    def platform(self) -> str:
        """The name of the platform, such as "tpu", "cuda" or "cpu"."""
        return self._client.platform

    @functools.cached_property
    def devices(self) -> tuple[Device, ...]:
        """The devices of all processes, in the order of their numbers."""
        return tuple(Device(d) for d in sorted(self._client.devices(), key=lambda d: d.id))

    def leave(self) -> None:
        """Disconnects from the other processes. All processes must call it within some seconds of each other."""
        if self._member is not None:
            self._member.leave()

    def on(self, devices: Sequence[Device], check: Callable[[], None] | None = None) -> Cores:
        """Returns these devices as cores: replica number c of a program runs on device number c.

        `check` is called repeatedly while the host waits for results. Its errors end the wait.
        """
        chunks = _INPUT_CHUNKS.get(self.platform)
        return Cores(self._client, tuple(device.handle for device in devices), check, chunks)


@dataclasses.dataclass(frozen=True)
class Device:
    """One core. `handle` is jaxlib's object for it."""

    handle: Any

    @property
    def number(self) -> int:
        return self.handle.id

    @property
    def process(self) -> int:
        return self.handle.process_index

    @property
    def place(self) -> tuple[int, ...]:
        """The core's place on a TPU: its chip's coordinates, then its number on the chip."""
        return (*self.handle.coords, self.handle.core_on_chip)


@dataclasses.dataclass(frozen=True)
class Processes:
    """The processes that share one runtime, which has the devices of all of them.

    Attributes:
      index: the number of this process; process 0 leads.
      count: the number of processes.
      coordinator: the address at which process 0 listens for the others, in the form "host:port".
      host: the host name by which the others reach this process.
      loss_seconds: the time until all processes have detected that a process is gone.
    """

    index: int
    count: int
    coordinator: str
    host: str
    loss_seconds: float


def cpu_client(num_devices: int, processes: Processes | None = None) -> Client:
    """Makes a new runtime on this machine's processors. With other processes, cores exchange data through Gloo.

    Raises RuntimeError if the other processes do not join, or process 0 cannot listen.
    """
    if processes is None:
        return Client(xla_client.make_cpu_client(num_devices=num_devices, asynchronous=True))
    member = _Member.joined(processes)
    client = xla_client.make_cpu_client(
        asynchronous=True,
        distributed_client=member.client,
        node_id=processes.index,
        num_nodes=processes.count,
        collectives=_jax.make_gloo_tcp_collectives(member.client, hostname=processes.host),
        num_devices=num_devices,
        get_global_topology_timeout_minutes=_JOIN_SECONDS // 60,
    )
    _keep_for_ever(client)
    return Client(client, member)


def tpu_client(processes: Processes | None = None) -> Client | None:
    """JAX's own runtime of this machine's TPU; None if there is no TPU.

    With other processes, it is for the TPU of all of them. (This has never run.) Raises NotOpenedError if the runtime
    does not start.
    """
    member = _joined(processes)
    # If libtpu is installed but there is no TPU, it would wait for one.
    return _plugin_client("tpu", member) if num_available_tpu_chips_and_device_id()[0] > 0 else None


def gpu_client(processes: Processes | None = None, memory_fraction: float | None = None) -> Client:
    """JAX's own runtime of this machine's GPUs, with this share of each GPU's memory.

    With other processes, it is for the GPUs of all of them. (This has never run.) Raises NotOpenedError if there is no
    GPU or no CUDA plugin, or if the runtime does not start.
    """
    if memory_fraction is not None:
        os.environ[_MEMORY_FRACTION] = str(memory_fraction)  # JAX's plugin reads it when it is opened
    return _plugin_client("cuda", _joined(processes))


def _joined(processes: Processes | None) -> _Member | None:
    """Joins other processes, and configures JAX's plugins for them."""
    if processes is None:
        return None
    member, state = _Member.joined(processes), jax._src.distributed.global_state
    state.client, state.process_id, state.num_processes = member.client, processes.index, processes.count
    return member


def _plugin_client(platform: str, member: _Member | None) -> Client:
    chosen = getattr(jax.config, _PLATFORMS)  # type checkers do not know this attribute
    if not chosen:  # JAX would open every kind of accelerator that it has a plugin for
        jax.config.update(_PLATFORMS, f"{platform},cpu")
    try:
        return Client(jax.devices(platform)[0].client, member)
    except RuntimeError as error:
        raise NotOpenedError(str(error)) from None
    finally:
        jax.config.update(_PLATFORMS, chosen)


@dataclasses.dataclass(frozen=True)
class _Member:
    """The membership of this process in a runtime of several processes.

    coordinator: a child process of process 0, which stores the messages between all processes; None in others.
    """

    client: Any
    coordinator: subprocess.Popen[bytes] | None

    @classmethod
    def joined(cls, processes: Processes) -> _Member:
        """Joins the other processes, and waits until all have joined."""
        coordinator = None if processes.index else _coordinator(processes)
        client = _jax.get_distributed_runtime_client(
            processes.coordinator,
            processes.index,
            init_timeout=_JOIN_SECONDS,
            shutdown_timeout=_LEAVE_SECONDS,
            heartbeat_timeout=_NEVER_SECONDS,
            shutdown_on_destruction=False,
        )
        client.connect()
        _keep_for_ever(client)
        return cls(client, coordinator)

    def leave(self) -> None:
        with contextlib.suppress(PjrtError):
            self.client.shutdown()
        if self.coordinator is not None and self.coordinator.stdin is not None:
            with contextlib.suppress(OSError):
                self.coordinator.stdin.write(b"!")
                self.coordinator.stdin.flush()
            self.coordinator.wait()


def _keep_for_ever(client: Any) -> None:
    """Prevents the deletion of an object that communicates with another process.

    If that process is gone, deleting the object would block for ever, or end this process without a message.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(client))


def _coordinator(processes: Processes) -> subprocess.Popen[bytes]:
    """Starts the coordinator in a new session, so that signals from a terminal to process 0 do not reach it."""
    numbers = [str(processes.count), str(processes.loss_seconds)]
    started = subprocess.Popen(
        [sys.executable, "-P", str(_COORDINATOR), processes.coordinator, *numbers],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # otherwise it would stay open after this process ends
        start_new_session=True,
    )
    assert started.stdout is not None
    if not started.stdout.readline():
        raise RuntimeError(f"nothing can listen at {processes.coordinator}")
    return started


class Cores:
    """Devices by core number. Puts arrays on them, and compiles programs for them.

    `chunks` is the division of large inputs; None: none.
    """

    def __init__(
        self,
        client: Any,
        devices: tuple[Any, ...],
        check: Callable[[], None] | None,
        chunks: InputChunks | None,
    ) -> None:
        self._client, self._devices, self._check, self._chunks = client, devices, check, chunks
        self.last_checked: Callable[[], Any] = lambda: None
        """Returns the last started program that has checks, or None."""
        self._joining: dict[tuple[tuple[int, ...], np.dtype], Executable] = {}
        self._local = [d for d in devices if d.process_index == client.process_index()]
        mesh = Mesh(np.array(devices), ("core",))
        self._alike, self._in_parts = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("core"))
        self.numbers = tuple(core for core, d in enumerate(devices) if d.process_index == client.process_index())
        """The cores of this process."""
        kind = _DEVICE_KINDS.get(client.platform, client.platform.upper())
        self.names = tuple(f"/job:pjrt/replica:0/task:{d.process_index}/device:{kind}:{d.id}" for d in devices)
        """The devices' names by core number, in the form of TensorFlow's device names."""

    @property
    def compute_capability(self) -> tuple[int, ...]:
        """The lowest compute capability among CUDA's devices, such as (9, 0); () for devices of another kind."""
        found = [getattr(d, "compute_capability", None) for d in self._devices]
        return min((tuple(map(int, c.split("."))) for c in found if c), default=()) if all(found) else ()

    def feed(self, pieces: Sequence[np.ndarray], *, may_change: bool = False) -> CoreArray:
        """Sends each core of this process its part of an input, like `put`. Large parts are sent in parallel chunks.

        With `may_change`, the arrays are copied before this returns. Otherwise they must never change afterwards.
        """
        if may_change and pieces[0].size <= _SMALL:
            copies = {id(p): p.copy() for p in pieces}
            return self.put([copies[id(p)] for p in pieces])
        put = functools.partial(self.put, may_change=may_change)
        if self._chunks is None or len(cut := self._chunks.cut(pieces)) == 1:
            return put(pieces)
        chunks = self._chunks.at_once(put, cut)
        return self._joins([chunk[0].size for chunk in cut], pieces[0]).start(chunks)[0]

    def put(self, pieces: Sequence[np.ndarray], *, may_change: bool = False) -> CoreArray:
        """Sends each core of this process an array, in row-major order.

        With `may_change`, the runtime copies the arrays immediately. Otherwise they must never change afterwards.
        """
        first = pieces[0]
        if all(p is first for p in pieces):
            return self._put(first.shape, pieces, self._local, self._alike, may_change)
        # jaxlib cannot send an array that may change to several cores, and different arrays to the others, in one call.
        is_shared = may_change and len(set(map(id, pieces))) < len(pieces)
        if is_shared or not first.ndim:
            alone = [self._put_on(p, position, may_change) for position, p in enumerate(pieces)]
            return self._joined(first.shape, alone)
        # JAX would send only the first array if it took them for copies. So they are declared as parts of a larger one.
        together = (len(self._devices) * first.shape[0], *first.shape[1:])
        return self._put(together, pieces, self._local, self._in_parts, may_change)

    def send(self, array: CoreArray, position: int = 0) -> None:
        """Starts copying one core's piece of a result to the host as soon as it is computed, before the host waits."""
        _pieces(array)[position]._copy_single_device_array_to_host_async()

    def first(self, array: CoreArray) -> np.ndarray:
        """Waits for a result, and returns the piece on the first core of this process."""
        return self.piece(array, 0)

    def piece(self, array: CoreArray, position: int) -> np.ndarray:
        """Waits for an array, and returns the piece on one core. A piece in the host's memory is not copied."""
        self._wait_for(array)
        return np.asarray(_pieces(array)[position])

    def _wait_for(self, array: CoreArray) -> None:
        pause = _SHORTEST_PAUSE
        done = cast("Any", array).is_ready  # jaxlib's arrays have it, jax.Array does not declare it
        while self._check is not None and not done():
            self._check()
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def replaced(self, array: CoreArray, position: int, piece: np.ndarray) -> CoreArray:
        """Returns the array with a different piece on one of this process's cores."""
        pieces = list(_pieces(array))
        pieces[position] = self._put_on(piece, position)
        return self._joined(piece.shape, pieces)

    def _put_on(self, piece: np.ndarray, position: int, may_change: bool = False) -> Any:
        device = self._local[position]
        return self._put(piece.shape, [piece], [device], _jax.SingleDeviceSharding(device), may_change)

    def _put(
        self,
        shape: Sequence[int],
        pieces: Sequence[Any],
        devices: Sequence[Any],
        sharding: Any,
        may_change: bool = False,
    ) -> Any:
        semantics = _jax.HostBufferSemantics
        return _jax.batched_device_put(
            _shaped(tuple(shape), pieces[0].dtype),
            sharding,
            pieces,
            devices,
            committed=True,
            host_buffer_semantics=semantics.IMMUTABLE_ONLY_DURING_CALL if may_change else semantics.ZERO_COPY,
            enable_x64=True,
        )

    def _joined(self, shape: tuple[int, ...], pieces: Sequence[Any]) -> CoreArray:
        return jax.make_array_from_single_device_arrays(shape, self._alike, pieces)

    def compile(self, hlo: bytes, results: Sequence[tuple[tuple[int, ...], Any]]) -> Executable:
        """Compiles a serialized HloModuleProto, with one replica for each core.

        `results` are the shapes and dtypes of its results.
        """
        with mlir.make_ir_context():
            return self._loaded(_module(hlo), results)

    def _joins(self, sizes: Sequence[int], whole: np.ndarray) -> Executable:
        """The program that concatenates chunks of these sizes to an array of the shape and dtype of `whole`."""
        key = whole.shape, whole.dtype
        if key not in self._joining:
            with mlir.make_ir_context():
                module = joining_module(sizes, whole.shape, str(mlir.dtype_to_ir_type(whole.dtype)))
                self._joining[key] = self._loaded(ir.Module.parse(module), [key])
        return self._joining[key]

    def _loaded(self, module: ir.Module, results: Sequence[tuple[tuple[int, ...], Any]]) -> Executable:
        """Compiles a module. Call it inside the module's MLIR context."""
        devices, options = _jax.DeviceList(self._devices), _options(self._devices)
        program = self._client.compile_and_load(module, devices, options)
        return Executable(program, [self._result_handler(ShapedArray(*x)) for x in results])

    def _result_handler(self, result: ShapedArray) -> Any:
        """The function that converts a result to an array. Up to jaxlib 0.10 its checks can be skipped."""
        skips_checks = (True,) if RELEASE < (0, 11) else ()
        return _jax.array_result_handler(result, self._alike, True, *skips_checks)

    @property
    def peak_bytes(self) -> int | None:
        """The most bytes that a core of this process has held at once. None if the runtime does not count them."""
        return max(self._counted("peak_bytes_in_use"), default=None)

    @property
    def used_bytes(self) -> int | None:
        """The most bytes that a core of this process holds now. None if the runtime does not count them."""
        return max(self._counted("bytes_in_use"), default=None)

    @property
    def memory_bytes(self) -> int | None:
        """The bytes that each core of this process may hold. None if the runtime does not count them."""
        return min(self._counted("bytes_limit"), default=None)

    def _counted(self, what: str) -> list[int]:
        counts = [device.memory_stats() for device in self._local]
        return [count[what] for count in counts if count and what in count]


@dataclasses.dataclass(frozen=True)
class Executable:
    """A compiled program. `handlers` are functions that convert its results to arrays."""

    program: Any
    handlers: Sequence[Any]

    def start(self, arguments: Sequence[CoreArray]) -> list[CoreArray]:
        """Starts the program on every core of this process. Returns the results, which are available once it has run.

        Arguments whose memory is reused for results become invalid.
        """
        executed = self.program.execute_sharded(arguments)
        return cast("list[CoreArray]", executed.consume_with_handlers(self.handlers, strict=False))


@functools.lru_cache(maxsize=256)
def _shaped(shape: tuple[int, ...], dtype: np.dtype) -> ShapedArray:
    """A shape and dtype for JAX. They are cached, since making them takes as long as sending a small array."""
    return ShapedArray(shape, dtype)


def _pieces(array: CoreArray) -> Sequence[Any]:
    return cast("Any", array)._arrays


def _module(hlo: bytes) -> ir.Module:
    """The program as StableHLO. Call it inside an MLIR context."""
    module = ir.Module.parse(_jax.mlir.hlo_to_stablehlo(hlo))
    if b"custom-call" in hlo:
        module.operation.walk(_without_tilings)
    return module


def _without_tilings(operation: Any) -> ir.WalkResult:
    """Removes the attribute `result_tilings` from a custom call.

    It is empty, and newer than the StableHLO that the CUDA plugin reads: with jaxlib 0.11.2 it refuses calls with it.
    """
    if operation.name == "stablehlo.custom_call" and "result_tilings" in operation.attributes:
        del operation.attributes["result_tilings"]
    return ir.WalkResult.ADVANCE


def _options(devices: Sequence[Any]) -> Any:
    """The options to compile a program with one replica for each device: replica number c runs on device number c."""
    options = xla_client.CompileOptions()
    options.num_replicas, options.num_partitions = len(devices), 1
    numbers = np.array([[device.id] for device in devices])
    options.device_assignment = xla_client.DeviceAssignment.create(numbers)
    if devices[0].platform == "gpu":
        options.env_option_overrides = _ROUNDS_AS_WRITTEN
    return _without_search_for_checksums(options) if devices[0].platform == "cpu" else options


def _without_search_for_checksums(options: Any) -> Any:
    """Adds an option for LLVM, which compiles for CPUs, that turns off its search for checksums.

    LLVM looks for checksums in loops of 8, 16, 24 and so on iterations. It starts from a value that the loop selects,
    and follows every path back through the arithmetic. Each of Threefry's 20 rounds multiplies the number of paths. XLA
    fuses random numbers into their comparison, so a program with the argmax of random numbers never finished compiling.

    jaxlib has no name for these options. They are a map in a protobuf message. Concatenating the bytes of two such
    messages merges them. So the user's options in XLA_FLAGS stay.
    """
    debug_options = _field(_XLA_BACKEND_EXTRA_OPTIONS, _field(1, _NO_CHECKSUMS) + _field(2, b""))
    added = _field(_EXECUTABLE_BUILD_OPTIONS, _field(_DEBUG_OPTIONS, debug_options))
    return xla_client.CompileOptions.ParseFromString(options.SerializeAsString() + added)


def _field(number: int, content: bytes) -> bytes:
    """A field of bytes, or of a message, in protobuf's encoding."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    low = []
    while value > 0x7F:
        low.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*low, value])


@dataclasses.dataclass(frozen=True)
class AheadCompiled:
    """The result of compiling a program for absent devices.

    memory: bytes of one core, by the names in `MEMORY`. cost: known estimates, by the names in `COST`. hlo: the
    optimized and scheduled program, as text.
    """

    memory: Mapping[str, int]
    cost: Mapping[str, float]
    hlo: str


def load_tpu_compiler(library: str) -> None:
    """Loads libtpu in a process that has no TPU, and changes this process's environment for it."""
    os.environ.update(_NOT_ON_A_TPU)
    xla_client.load_pjrt_plugin_dynamically(_TPU, library)
    xla_client.initialize_pjrt_plugin(_TPU)


def topology_devices(topology: str, options: TopologyOptions) -> dict[tuple[int, ...], Any]:
    """The cores of an absent topology such as `v5e:4x4`.

    The keys are the three coordinates of the chip, then the number of the core on it.
    """
    description = xla_client.make_tfrt_tpu_c_api_device_topology(topology, **options)
    return {(*device.coords, device.core_on_chip): device for device in description._make_compile_only_devices()}


def compile_ahead(hlo: bytes, devices: Sequence[Any]) -> AheadCompiled:
    """Compiles a serialized HloModuleProto for absent devices: replica number c is for device number c."""
    with mlir.make_ir_context():
        program = devices[0].client.compile(_module(hlo), _jax.DeviceList(tuple(devices)), _options(devices))
    return _described(program)


def _described(program: Any) -> AheadCompiled:
    memory, cost = program.get_compiled_memory_stats(), program.cost_analysis()
    return AheadCompiled(
        {ours: int(getattr(memory, theirs)) for ours, theirs in MEMORY.items()},
        {ours: float(cost[theirs]) for ours, theirs in COST.items() if cost.get(theirs, -1) >= 0},
        "\n".join(module.to_string() for module in program.hlo_modules()),
    )
