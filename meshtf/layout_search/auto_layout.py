"""The entry of the search: the layout that fits and has the least predicted time, for a program, a mesh and a
machine.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gc
import numbers
from collections.abc import Callable, Iterator, Sequence

import tensorflow as tf

from meshtf.call_sites import says_where
from meshtf.costs import Machine, load_machine
from meshtf.dimension import Shape, ShapeLike
from meshtf.errors import LayoutError, MeshtfError, UsageError
from meshtf.function.program import Function
from meshtf.graph.tensor import Tensor
from meshtf.layout import LayoutLike, LayoutRules, check_mesh_axes, convert_to_layout_rules
from meshtf.layout_search._choices import Choices
from meshtf.layout_search._overrides import Overrides
from meshtf.layout_search._pricing import MeshLayout, PricedLayout, Pricing
from meshtf.layout_search._rough_estimate import RoughEstimate
from meshtf.layout_search._search import Limits, OutOfTime, Search
from meshtf.layout_search.candidate_meshes import candidate_meshes
from meshtf.layout_search.layout_choice import LayoutChoice
from meshtf.layout_search.search_progress import SearchProgress, Watch
from meshtf.lowering.report.memory.peak_memory import largest_at_peak
from meshtf.lowering.report.text_table import size_text
from meshtf.mesh_impl.mesh_options import MeshOptions
from meshtf.planning.layouts.rules_by_place import unused_rules
from meshtf.planning.plan import Plan

_RUNNERS_UP = 3
_MESHES_SEARCHED = 2
_MESHES_PRICED = 12
_MOST_DOUBLINGS = 8
_LARGEST = 3

_DOES_NOT_FIT = """\
no layout of program "{program}" that was tried on mesh [{mesh}] fits into {memory} per core: the smallest takes \
{peak}, {over} too much, with layout "{layout}"{parameters}.
The largest parts of it on each core: {largest}.
{instead}{cut_short}"""
_CUT_SHORT = """
The search reached its limits, {limits}, before it finished: layouts that it did not try may need less."""
_LARGER_MESH = """\
On mesh [{mesh}] the same rules take {peak}. A smaller batch, micro-batches or recomputation need less, too."""
_NO_MESH = """\
No mesh up to {times} times as large would be enough with these rules: a smaller batch, micro-batches or recomputation \
need less."""
_CONTRADICTION = """\
program "{program}" has no layout on mesh [{mesh}] that keeps "{kept}": {error}"""
_TOO_SOON = """\
the search for a layout of program "{program}" reached its limits before it found one that the program can have: \
give it more than {limits}"""


@says_where
def auto_layout(  # noqa: PLR0913  # what it is to find, how long it may look, and who is told
    program: Function,
    mesh_shape: ShapeLike,
    machine: Machine | str,
    *,
    memory_per_core: float | None = None,
    keep: LayoutLike = "",
    options: MeshOptions | None = None,
    max_planned_operations: int = 250_000,
    max_seconds: float | None = None,
    progress: Callable[[SearchProgress], None] | None = None,
) -> LayoutChoice:
    """Finds the layout that fits and has the least predicted time.

    If the program has few dimensions, all its layouts are planned and priced, and the result is the best of all.
    Otherwise the search prices the most promising layouts, and descends from the best of these. The result says which
    of the two happened. Rules by place, such as "logits{vocab:cols}", are added to the best layout if each saves a
    hundredth of the step's time or more. The plans are those that would run, so memory and every collective have their
    true price.

    Args:
      program: the program, planned for any mesh, on paper too.
      mesh_shape: axes and sizes, as "rows:64;cols:8"; or "auto:512", for one to three axes to be found.
      machine: the machine on which it is to run: one of `mtf.costs.load_machine`, or its name.
      memory_per_core: bytes that a core may use. The default is all of the machine's.
      keep: rules that every layout is to have, such as "batch:rows". Meshes of "auto:512" that cannot have them are
        left out.
      options: the options of the mesh except layouts. The default is the options of the program's mesh.
      max_planned_operations: the search ends when it has planned this many operations, in all layouts together. About
        5,000 take a second. This limit keeps the result the same on every machine.
      max_seconds: the search also ends after this many seconds. The best so far is then the result, which says so.
      progress: is called after each planned layout, with their number and the best so far. `print` shows it.

    Raises:
      LayoutError: if no layout fits. The message says what is too large, by how much, and which mesh would do. Also if
        the rules to keep contradict one another or the program on each mesh, or have a dimension that it lacks.
      MachineError: if there is no such machine.
      UsageError: if a limit is not positive, or ended the search before anything was found.

    Examples:
      >>> paper = mtf.PlanMeshImpl("rows:2;cols:4", "")
      >>> def product(x, w):
      ...     return mtf.einsum([x, w], "batch:64 d_ff:8")
      >>> specs = {"x": mtf.TensorSpec("batch:64 d_model:32"), "w": mtf.TensorSpec("d_model:32 d_ff:8")}
      >>> found = mtf.auto_layout(mtf.function(product, paper, specs), "rows:2;cols:4", "v5e")
      >>> found.is_proven, found.layout.mesh_shape
      (True, Shape[rows:2 cols:4])
    """
    _check_limits(max_planned_operations, max_seconds, memory_per_core)
    known = load_machine(machine) if isinstance(machine, str) or not isinstance(machine, Machine) else machine
    fetches = [x for x in tf.nest.flatten(program.results) if isinstance(x, Tensor)]
    kept = convert_to_layout_rules(keep)
    for message in unused_rules(kept, program.graph.operations, "rule to keep"):
        raise LayoutError(message)
    limits = Limits(max_planned_operations, max_seconds)
    meshes = candidate_meshes(mesh_shape)
    memory = known.shared_by(meshes[0].size).memory_bytes if memory_per_core is None else memory_per_core
    watch = Watch(program.name, memory, progress)
    pricing = Pricing(program.lowering, fetches, known, options or program.lowering.mesh_impl.options, watch.saw)
    widest = max(meshes, key=lambda mesh: mesh.ndims)
    request = _Request(program, known, kept, pricing, limits, widest, watch)
    with _what_is_there_is_kept():
        return request.choice(meshes, memory)


@dataclasses.dataclass(frozen=True)
class _Request:
    """The arguments of `auto_layout`, without the sizes of the mesh. widest: a mesh with the most axes."""

    program: Function
    machine: Machine
    kept: LayoutRules
    pricing: Pricing
    limits: Limits
    widest: Shape
    watch: Watch

    def choice(self, of_so_many_cores: Sequence[Shape], memory: float) -> LayoutChoice:
        meshes = self._that_have_the_kept(of_so_many_cores)
        searches = self._searches(meshes, memory)
        was_cut_short = False
        try:
            for search in searches.values():
                search.run(meshes=len(meshes))
            for mesh in self._best_meshes(list(searches), memory) if len(meshes) > 1 else ():
                searches[mesh].run()
            self._try_overrides(memory)
        except OutOfTime:
            was_cut_short = True
        fitting = [priced for priced in self.pricing.priced if priced.peak_bytes <= memory]
        if not fitting:
            raise self._refusal(meshes, memory, was_cut_short=was_cut_short)
        is_proven = len(searches) == len(meshes) and all(search.is_exhaustive for search in searches.values())
        return LayoutChoice(
            program=self.program.name,
            machine=self.machine.name,
            best=fitting[0],
            runners_up=tuple(_that_differ(fitting)[:_RUNNERS_UP]),
            memory_per_core=memory,
            layouts_priced=self.pricing.count,
            seconds_in_any_memory=self.pricing.priced[0].seconds,
            least_seconds=self._least_seconds(meshes[0]),
            is_proven=is_proven,
            end=self.watch.end(self.pricing, self.limits, was_cut_short=was_cut_short, is_all=is_proven),
        )

    def _least_seconds(self, mesh: Shape) -> float:
        """Returns the seconds of all products, divided evenly among all cores, at the share of the peak that they
        reach."""
        return self._unsplit(mesh).work_seconds / (mesh.size * self.machine.product_efficiency)

    def _try_overrides(self, memory: float) -> None:
        """Tries overrides on the fastest layout that fits. Their results are then among the priced layouts."""
        best = next((priced for priced in self.pricing.priced if priced.peak_bytes <= memory), None)
        if best is not None:
            choices = Choices(self.program.graph, best.choice.mesh_shape, self.kept)
            price = functools.partial(self.limits.priced, self.pricing)
            Overrides(self.pricing, self.program.graph, choices, self.kept, price).improved(best, memory)

    def _searches(self, meshes: Sequence[Shape], memory: float) -> dict[Shape, Search]:
        """Returns searches on the meshes with the least estimates, in the order in which the meshes are given."""
        found = {mesh: self._search(mesh, memory) for mesh in meshes}
        if len(found) <= _MESHES_PRICED:
            return found
        best = sorted(found, key=lambda mesh: found[mesh].estimated_seconds)[:_MESHES_PRICED]
        return {mesh: search for mesh, search in found.items() if mesh in best}

    def _that_have_the_kept(self, meshes: Sequence[Shape]) -> list[Shape]:
        """Returns the meshes on which the kept rules are possible. Raises LayoutError if there are none."""
        if not self.kept.rules:
            return list(meshes)
        error: LayoutError | None = None
        possible = []
        for mesh in meshes:
            try:
                check_mesh_axes(self.kept, mesh)
            except LayoutError as unknown_axis:
                error = unknown_axis
                continue
            possible.append(mesh)
        if not possible and error is not None:
            raise error
        found = [mesh for mesh in possible if self.pricing.price(MeshLayout(mesh, self.kept)) is not None]
        if not found:
            raise self._contradiction(possible[0])
        return found

    def _search(self, mesh: Shape, memory: float) -> Search:
        choices = Choices(self.program.graph, mesh, self.kept)
        return Search(self.pricing, choices, self._unsplit(mesh), memory, self.limits)

    def _unsplit(self, mesh: Shape) -> RoughEstimate:
        return RoughEstimate(self._unsplit_plan, self.machine.shared_by(mesh.size), mesh)

    @functools.cached_property
    def _unsplit_plan(self) -> Plan:
        """The plan with nothing split. For the estimate it is the same on every mesh."""
        rules = convert_to_layout_rules("")
        try:
            return self._plan(MeshLayout(Shape([(axis.name, 1) for axis in self.widest]), rules))
        except LayoutError:
            # The program has overrides that fit no mesh. Planning for a requested mesh raises an error that names it.
            return self._plan(MeshLayout(self.widest, rules))

    def _plan(self, layout: MeshLayout) -> Plan:
        return self.pricing.lowered(layout).plan_for(self.pricing.fetches)

    def _best_meshes(self, meshes: Sequence[Shape], memory: float) -> list[Shape]:
        """Returns the meshes with the fastest layouts that fit, or with the smallest layouts if none fits."""

        def rank(mesh: Shape) -> tuple[float, float]:
            own = [p for p in self.pricing.priced if p.choice.mesh_shape == mesh]
            return min(((max(0.0, p.peak_bytes - memory), p.seconds) for p in own), default=(float("inf"), 0.0))

        return sorted(meshes, key=rank)[:_MESHES_SEARCHED]

    def _refusal(self, meshes: Sequence[Shape], memory: float, *, was_cut_short: bool) -> MeshtfError:
        priced = self.pricing.priced
        limits = f"{self.limits.planned_operations:,} planned operations (--search_operations)"
        limits += "" if self.limits.seconds is None else f" and {self.limits.seconds:g} s (--search_seconds)"
        if not priced and was_cut_short:
            return UsageError(_TOO_SOON.format(program=self.program.name, limits=limits))
        if not priced:
            return self._contradiction(meshes[0])
        least = min(priced, key=lambda p: p.peak_bytes)
        rules = least.choice.parameter_layout
        plan = self._plan(least.choice)
        largest = [
            f"[{value.layout.to_string(value.shape)}] {value.dtype.name} of {name}, {size_text(value.slice_bytes)}"
            for value, name in largest_at_peak(plan, _LARGEST)
        ]
        text = _DOES_NOT_FIT.format(
            program=self.program.name,
            mesh=least.choice.mesh_shape,
            memory=size_text(memory),
            peak=size_text(least.peak_bytes),
            over=size_text(least.peak_bytes - memory),
            layout=least.choice.layout,
            parameters="" if rules is None else f' and parameter_layout "{rules}"',
            largest="; ".join(largest),
            instead=self._instead(least, memory),
            cut_short=_CUT_SHORT.format(limits=limits) if was_cut_short else "",
        )
        return LayoutError(text)

    def _contradiction(self, mesh: Shape) -> LayoutError:
        error = str(self.pricing.first_error).partition("\n  at ")[0]
        names = {"program": self.program.name, "mesh": mesh, "kept": self.kept, "error": error}
        return LayoutError(_CONTRADICTION.format(**names))

    def _instead(self, least: PricedLayout, memory: float) -> str:
        """Returns advice on a larger mesh for the layout that needs least memory, found by doubling one axis or
        another.
        """
        mesh = least.choice.mesh_shape
        for _ in range(_MOST_DOUBLINGS):
            memory /= 1 if self.machine.processors is None else 2  # virtual cores share what there is
            larger = [
                self.pricing.price(dataclasses.replace(least.choice, mesh_shape=_doubled(mesh, axis))) for axis in mesh
            ]
            found = min((p for p in larger if p is not None), key=lambda p: p.peak_bytes, default=None)
            if found is None:
                break
            mesh = found.choice.mesh_shape
            if found.peak_bytes <= memory:
                return _LARGER_MESH.format(mesh=mesh, peak=size_text(found.peak_bytes))
        return _NO_MESH.format(times=2**_MOST_DOUBLINGS)


@contextlib.contextmanager
def _what_is_there_is_kept() -> Iterator[None]:
    """Makes the garbage collector ignore all present objects, which it would otherwise traverse again every few
    plans."""
    if gc.get_freeze_count():
        yield
        return
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _doubled(mesh: Shape, axis: object) -> Shape:
    return Shape([(d.name, 2 * d.size if d == axis else d.size) for d in mesh])


def _that_differ(fitting: Sequence[PricedLayout]) -> list[PricedLayout]:
    """Returns the layouts after the best whose costs differ from those of all layouts before them."""
    found: list[PricedLayout] = []
    for priced in fitting[1:]:
        before = [*found, fitting[0]]
        if all((p.seconds, p.peak_bytes) != (priced.seconds, priced.peak_bytes) for p in before):
            found.append(priced)
        if len(found) == _RUNNERS_UP:
            break
    return found


def _check_limits(operations: int, seconds: float | None, memory: float | None) -> None:
    limits = {"max_planned_operations": operations, "max_seconds": seconds, "memory_per_core": memory}
    for name, limit in limits.items():
        if limit is not None and not (isinstance(limit, numbers.Real) and float(limit) > 0):
            raise UsageError(f"{name} must be positive, and is {limit!r}")
