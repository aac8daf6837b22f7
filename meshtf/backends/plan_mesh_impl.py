"""A mesh without devices: programs are lowered for it and reported on, but never run."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn, Unpack, final

import tensorflow as tf

from meshtf.call_sites import says_where, user_site
from meshtf.dimension import Shape, ShapeLike
from meshtf.errors import UsageError
from meshtf.layout import LayoutLike, LayoutRules
from meshtf.mesh_impl.mesh_options import MeshOptionKeywords, MeshOptions, checked_mesh
from meshtf.mesh_impl.slices import Slices
from meshtf.planning.plan import Plan
from meshtf.planning.process_spans import ProcessOfCore

_ON_PAPER = """\
program "{program}" was lowered for mesh [{shape}] on paper, which runs nothing; give mtf.SpmdMeshImpl to run it, or \
read its report()
  at {site}"""


@final
@dataclasses.dataclass(frozen=True, init=False)
class PlanMeshImpl:
    """A mesh of any size without devices, for `mtf.function` and `mtf.Lowering`.

    A program has the same report as on devices: memory and FLOPs per core, and every collective with its bytes. No
    memory is allocated for variables. Calling the program raises UsageError.

    Attributes:
      shape: the mesh's named shape.
      layout_rules: which dimension is split over which mesh axes.
      options: all other options of the mesh.
      kernel_platform: the platform whose kernels programs use, by XLA's name for it: "cuda" for GPUs, or "" for none.

    Examples:
      >>> pod = mtf.PlanMeshImpl("data:64;model:16", "batch:data;d_ff:model")
      >>> pod.shape.size
      1024
    """

    shape: Shape
    layout_rules: LayoutRules
    options: MeshOptions
    kernel_platform: str

    @says_where
    def __init__(
        self,
        shape: ShapeLike,
        layout_rules: LayoutLike,
        *,
        options: MeshOptions | None = None,
        kernel_platform: str = "",
        **changes: Unpack[MeshOptionKeywords],
    ) -> None:
        """Makes the mesh. Every field of `mtf.MeshOptions` is a keyword, and replaces the same field of `options`.

        Raises:
          LayoutError: if a rule names an axis that the mesh does not have.
          UsageError: if an option has an invalid value.
        """
        converted, rules, chosen = checked_mesh(shape, layout_rules, options, changes)
        if kernel_platform not in ("", "cuda"):
            raise UsageError(f'kernel_platform must be "cuda" or empty, and is {kernel_platform!r}')
        object.__setattr__(self, "shape", converted)
        object.__setattr__(self, "layout_rules", rules)
        object.__setattr__(self, "options", chosen)
        object.__setattr__(self, "kernel_platform", kernel_platform)

    @property
    def size(self) -> int:
        """Number of cores."""
        return self.shape.size

    @property
    def ndims(self) -> int:
        """Number of mesh axes."""
        return self.shape.ndims

    @property
    def devices(self) -> tuple[str, ...]:
        """Empty, since there are no devices."""
        return ()

    @property
    def process_of_core(self) -> ProcessOfCore:
        """The process of each core according to the options, although no process exists."""
        return self.options.process_of_core(self.shape)

    @property
    def compiles_programs(self) -> bool:
        """False, since nothing is compiled."""
        return False

    @property
    def unrolls_layers(self) -> bool:
        """Whether the mesh represents GPUs, for which layers are unrolled."""
        return bool(self.kernel_platform)

    @property
    def takes_arrays(self) -> bool:
        """False, since nothing runs."""
        return False

    @property
    def steps_ahead(self) -> int:
        """0, since nothing runs."""
        return 0

    @property
    def float32_products(self) -> str:
        """float32, since nothing is multiplied."""
        return "float32"

    @property
    def peak_bytes(self) -> None:
        """None, since nothing runs."""
        return None

    def check_runs(self, program: str) -> NoReturn:
        """Raises UsageError, since nothing runs on paper."""
        raise UsageError(_ON_PAPER.format(program=program, shape=self.shape, site=user_site()))

    def check_alike(self, program: str, texts: Callable[[], Mapping[str, str]]) -> None:
        """Does nothing, since nothing runs."""

    def zero_slices(self, name: str, slice_shape: Sequence[int], dtype: tf.DType) -> Slices:
        """Returns no slices, since there are no devices."""
        return {}

    def program(self, plan: Plan, slices: Mapping[str, Slices], *, runs_once: bool = False) -> NoReturn:
        """Raises UsageError, since nothing runs on paper."""
        self.check_runs("unnamed")

    def step(self, program: str, plan: Plan) -> contextlib.AbstractContextManager[None]:
        """Returns a context that does nothing, since nothing runs."""
        return contextlib.nullcontext()

    def hlo(self, plan: Plan, program: str) -> None:
        """Returns None, since nothing is compiled."""
