"""A mesh of GPUs, whose cores run one program compiled by XLA."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack, final

from meshtf.backends._pjrt_mesh_impl import PjrtMeshImpl
from meshtf.call_sites import says_where
from meshtf.dimension import ShapeLike
from meshtf.layout import LayoutLike
from meshtf.lowering.report.memory.what_fits import BY_OPERATION, MemoryCount
from meshtf.mesh_impl.mesh_options import MeshOptionKeywords, MeshOptions
from meshtf.mesh_impl.pjrt.kinds import GPU
from meshtf.mesh_impl.pjrt.of_this_process import accelerator

if TYPE_CHECKING:
    from meshtf.mesh_impl.pjrt.pjrt import Cores

_PRODUCTS = {"default": "TF32", "high": "TF32", "highest": "float32"}

_LEAST_CAPABILITY = (8, 0)  # the least for cuDNN's fused attention and for TF32


@final
class GpuMeshImpl(PjrtMeshImpl):
    """A mesh of GPUs, for `mtf.function` and `mtf.Lowering`.

    XLA compiles each program as a whole, including its collectives, which use NCCL on several GPUs. PJRT runs it. This
    needs NVIDIA's driver and one of the extras `meshtf[cuda12]` and `meshtf[cuda13]`. TensorFlow itself needs no CUDA,
    since it only traces. Variables are buffers on the GPUs, which steps update in place. Without GPUs the same programs
    run on virtual GPUs (`mtf.virtual_gpus`).

    The first mesh of a process opens all its GPUs, and reserves the share `memory_fraction` of their memory.

    Attributes:
      shape: the mesh's named shape.
      layout_rules: which dimension is split over which mesh axes.
      options: all other options of the mesh.

    Examples:
      >>> mtf.virtual_gpus(4)
      >>> cores = mtf.GpuMeshImpl("data:2;model:2", "batch:data;d_ff:model", product_precision="highest")
      >>> cores.shape, cores.float32_products
      (Shape[data:2 model:2], 'float32')
    """

    @says_where
    def __init__(
        self,
        shape: ShapeLike,
        layout_rules: LayoutLike,
        *,
        options: MeshOptions | None = None,
        **changes: Unpack[MeshOptionKeywords],
    ) -> None:
        """Makes the mesh. Every field of `mtf.MeshOptions` is a keyword, and replaces the same field of `options`.

        Raises:
          ClusterError: if the process joined others after its GPUs were opened.
          DeviceError: if there are too few GPUs, or none is usable. The message says what is missing.
          LayoutError: if a rule names an axis that the mesh does not have.
          UsageError: if an option has an invalid value.
        """
        super().__init__(shape, layout_rules, options, changes)
        _ = self._cores  # raises an error if there are too few

    @property
    def unrolls_layers(self) -> bool:
        """True: in a loop, each iteration would copy its layer's slices of the tensors that it reads and writes."""
        return True

    @property
    def kernel_platform(self) -> str:
        """ "cuda" on GPUs of compute capability 8.0 (Ampere) and later, and empty on others and on virtual GPUs."""
        return "cuda" if self._cores.compute_capability >= _LEAST_CAPABILITY else ""

    @property
    def float32_products(self) -> str:
        """The arithmetic of float32 products: "TF32" or "float32". Only GPUs since Ampere have TF32."""
        return _PRODUCTS[self.options.product_precision or "default"] if self.kernel_platform else "float32"

    @property
    def _memory_count(self) -> MemoryCount:
        return BY_OPERATION

    def _find_cores(self) -> Cores:
        found = accelerator(GPU, self.size, self.options.memory_fraction)
        return found.on(self.shape, None, self.options.axes_over_processes)

    def __repr__(self) -> str:
        return f'GpuMeshImpl("{self.shape}", "{self.layout_rules}")'
