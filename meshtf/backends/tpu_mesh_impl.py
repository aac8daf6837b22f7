"""A mesh mapped onto the torus of a TPU, whose cores run one program compiled by XLA."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Unpack, final

from meshtf.backends._pjrt_mesh_impl import PjrtMeshImpl
from meshtf.call_sites import says_where
from meshtf.dimension import ShapeLike
from meshtf.errors import DeviceError
from meshtf.layout import LayoutLike
from meshtf.lowering.report.memory.what_fits import AS_FUSED, MemoryCount
from meshtf.mesh_impl.mesh_options import MeshOptionKeywords, MeshOptions
from meshtf.mesh_impl.pjrt.kinds import TPU
from meshtf.mesh_impl.pjrt.of_this_process import accelerator
from meshtf.mesh_impl.tpu.torus import Torus

if TYPE_CHECKING:
    from meshtf.mesh_impl.pjrt.pjrt import Cores

_ANOTHER_TORUS = """\
mesh [{shape}] was laid onto {given}, and the TPU has {found}; leave physical_torus out, or give the TPU's own."""

_PRODUCTS = {"default": "one bfloat16 pass", "high": "three bfloat16 passes", "highest": "six bfloat16 passes"}


@final
class TpuMeshImpl(PjrtMeshImpl):
    """A mesh of TPU cores, for `mtf.function` and `mtf.Lowering`.

    Lowering a program compiles it to HLO, which needs no TPU. If XLA cannot compile it, lowering raises
    CompilationError. Running it needs a TPU or a virtual TPU (`mtf.virtual_tpu`). Variables are buffers on the cores,
    which steps update in place.

    It has never run on a real TPU, since none was available. The TPU's own compiler has compiled every operation.
    Virtual TPUs, which use the same runtime as TPUs, have run the programs.

    Args:
      physical_torus: "4x4" or "4x4x8", in chips with two cores each, or a `Torus`, whose chips may have one core. The
        default is the torus of the TPU, which must then be present.

    Attributes:
      shape: the mesh's named shape.
      layout_rules: which dimension is split over which mesh axes.
      options: all other options of the mesh.
      torus: the chips, and the cores on each. None on a virtual TPU, unless physical_torus gave it.
      core_positions: by core number, its chip's coordinates on the torus and its number on the chip. Neighbours along a
        mesh axis are on one chip, or on chips with a link between them. None if there is no torus.

    Examples:
      >>> cores = mtf.TpuMeshImpl("data:4;model:2", "batch:data;d_ff:model", physical_torus="2x2")
      >>> cores.shape
      Shape[data:4 model:2]
    """

    @says_where
    def __init__(
        self,
        shape: ShapeLike,
        layout_rules: LayoutLike,
        *,
        physical_torus: str | Sequence[int] | Torus | None = None,
        options: MeshOptions | None = None,
        **changes: Unpack[MeshOptionKeywords],
    ) -> None:
        """Makes the mesh. Every field of `mtf.MeshOptions` is a keyword, and replaces the same field of `options`.

        Raises:
          ClusterError: if the process joined others after its TPU was opened.
          DeviceError: if the mesh does not fit the torus (the message lists meshes that do), or if there is no TPU.
          LayoutError: if a rule names an axis that the mesh does not have.
          UsageError: if an option has an invalid value.
        """
        super().__init__(shape, layout_rules, options, changes)
        given = None if physical_torus is None else Torus.of(physical_torus)
        self.torus = given or accelerator(TPU, self.size).torus
        self.core_positions = self.torus and self.torus.place(self.shape)
        if given is None:
            _ = self._cores  # raises an error if there are too few

    @property
    def float32_products(self) -> str:
        """The arithmetic of float32 products. On a virtual TPU it is float32."""
        return "float32" if self.torus is None else _PRODUCTS[self.options.product_precision or "default"]

    @property
    def _memory_count(self) -> MemoryCount:
        return AS_FUSED

    def _find_cores(self) -> Cores:
        found = accelerator(TPU, self.size)
        if found.torus not in (None, self.torus):
            raise DeviceError(_ANOTHER_TORUS.format(shape=self.shape, given=self.torus, found=found.torus))
        return found.on(self.shape, self.core_positions, self.options.axes_over_processes)

    def __repr__(self) -> str:
        return f'TpuMeshImpl("{self.shape}", "{self.layout_rules}", physical_torus={self.torus})'
