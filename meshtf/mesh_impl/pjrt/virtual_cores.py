"""Virtual GPUs and TPUs: cores on this machine's processors that run the same programs as real ones."""

from __future__ import annotations

import numpy as np

from meshtf.call_sites import says_where
from meshtf.errors import DeviceError, UsageError
from meshtf.mesh_impl.pjrt.kinds import GPU, TPU, Kind
from meshtf.mesh_impl.pjrt.of_this_process import make_virtual

_MOST = 4096


@says_where
def virtual_tpu(n: int) -> None:
    """Gives this process a TPU of `n` virtual cores, which run on this machine's processors.

    XLA then compiles programs on an `mtf.TpuMeshImpl` for CPUs, and PJRT runs them, as on a TPU. Call it before the
    first mesh. Nothing is changed if there are as many cores already. In a cluster (`mtf.initialize_cluster`) each
    process calls it, and meshes span the cores of all processes.

    Raises:
      DeviceError: the process has another TPU already, or `n` is less than 1 or more than 4,096.
      UsageError: `n` is not an integer.

    Examples:
      >>> mtf.virtual_tpu(8)
      >>> mtf.TpuMeshImpl("rows:2;cols:2", "batch:rows").size
      4
    """
    _make(TPU, n, f"a virtual TPU has from 1 to {_MOST:,} cores")


@says_where
def virtual_gpus(n: int) -> None:
    """Gives this process `n` virtual GPUs, which run on this machine's processors.

    XLA then compiles programs on an `mtf.GpuMeshImpl` for CPUs, and PJRT runs them, as on GPUs. Call it before the
    first mesh. Nothing is changed if there are as many already. In a cluster (`mtf.initialize_cluster`) each process
    calls it, and meshes span the virtual GPUs of all processes.

    Raises:
      DeviceError: the process has GPUs already, or `n` is less than 1 or more than 4,096.
      UsageError: `n` is not an integer.

    Examples:
      >>> mtf.virtual_gpus(4)
      >>> mtf.GpuMeshImpl("rows:2;cols:2", "batch:rows").size
      4
    """
    _make(GPU, n, f"a process has from 1 to {_MOST:,} virtual GPUs")


def _make(kind: Kind, n: int, bounds: str) -> None:
    if not isinstance(n, int | np.integer) or isinstance(n, bool):
        raise UsageError(f"{kind.virtual}({n!r}): the number of cores is a whole number, as in {kind.virtual}(8)")
    if not 1 <= n <= _MOST:
        raise DeviceError(f"{kind.virtual}({n}): {bounds}")
    make_virtual(kind, int(n))
