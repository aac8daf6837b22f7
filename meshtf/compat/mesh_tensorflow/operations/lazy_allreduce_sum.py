"""A sum over cores that is asked for by a class's name, as the original's operations do in `lower`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from meshtf.compat.mesh_tensorflow.operations.laid_out_tensor import LaidOutTensor
from meshtf.compat.mesh_tensorflow.operations.slices_mesh_impl import SlicesMeshImpl


class LazyAllreduceSum:
    """Calling it returns the sum of slices, `mesh_impl.allreduce(slices, mesh_axes, "SUM")`.

    Args:
      mesh_impl: the mesh that `lower` works on.
      laid_out_input: the terms.
      mesh_axes: the axes to sum over, by number or name.
      add_counter_fn: ignored. The report has every collective.
    """

    def __new__(  # type: ignore[misc]  # not an instance: no sum waits for its first use
        cls,
        mesh_impl: SlicesMeshImpl,
        laid_out_input: LaidOutTensor,
        mesh_axes: Sequence[int | str],
        add_counter_fn: Callable[[], object] | None = None,
    ) -> LaidOutTensor:
        return mesh_impl.allreduce(laid_out_input, mesh_axes, "SUM")
