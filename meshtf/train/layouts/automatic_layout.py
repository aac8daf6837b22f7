"""Finds the layout of a training with `Training.layout = "auto"`, perhaps with `Training.mesh_shape = "auto:512"`.

A search looks for the layout that fits and has the least predicted time (`meshtf.layout_search`). Some parts of a
configuration may be left open, and then variants of the training are tried as well:
- Recomputation and micro-batches, which need less memory and take longer. First none, then more of them, as long as
  that helps.
- A pipeline along an axis, if its stages would wait for less time than a step spends on collectives.

The result is a list of gin bindings, which become a part of the run's configuration. For example: the search without
recomputation finds 90 ms a step. With more memory than there is, it would be 60 ms. So recomputation is tried, which
finds 80 ms because a better layout fits now. Then two micro-batches are tried and find 85 ms, so the search ends with
recomputation.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import meshtf as mtf
from meshtf.costs import Machine
from meshtf.errors import GraphError, LayoutError, MeshtfError, ShapeError, UsageError
from meshtf.graph.blocks import with_nested
from meshtf.layers import PipelineSchedule
from meshtf.layout_search import ANY_MESH_AXES, AUTO_MESH, LayoutChoice, auto_layout
from meshtf.mesh_impl.mesh_shape_rule import MeshShapeRule
from meshtf.train.configuration import ConfigurationError, read_configuration
from meshtf.train.gin_files.bindings import Parameter, present_bindings
from meshtf.train.layouts.all_searches import AllSearches, SearchEffort
from meshtf.train.runs.resuming import bindings_of
from meshtf.train.step_programs import training_step
from meshtf.train.training import configured_training

AUTO = "auto"

_CHOSEN = ("mesh_shape", "layout", "parameter_layout", "activation_layout", "num_microbatches")
_STACK = "TransformerStack"
_RECOMPUTE = f"{_STACK}.recompute"
_RECOMPUTE_ALL = f"{_RECOMPUTE} = 'nothing'"
_PIPELINE = f"{_STACK}.pipeline"
_STAGES = "PipelineSchedule.num_stages"
_PASSING = "PipelineSchedule.num_microbatches"
_CHOSEN_OF_LAYERS = (_RECOMPUTE, _PIPELINE, _STAGES, _PASSING)
_MOST_MICROBATCHES = 16
_PASSING_PER_STAGE = (8, 4, 2)
_STAGES_OF_ANY_MESH = (2, 4, 8)
_QUICK_PLANS = 50
"""The number of plans after which it is known whether a variant fits into memory."""

_GAIN = 0.98
"""More recomputation is tried if, with unlimited memory, a step would take less than this share of the time."""

_MESH_ALONE = """\
Training.mesh_shape is "{mesh}", so its axes are searched together with the layout, but Training.layout is {layout}: \
give --layout=auto, or a mesh of axes and sizes"""
_OPEN = """\
Training.layout is "auto", and mesh [{mesh}] is as large as the devices allow: give sizes, or "auto:8" for 8 cores"""
_NO_STAGES = """\
PipelineSchedule.num_stages is searched together with the layout, but no number of stages fits mesh [{mesh}] and \
Training.batch_size: give a number"""
_NO_MACHINE = """\
Training.layout is "auto", but there is no machine to predict its time on: give --machine, a name such as v5e
or the file that meshtf-probe writes"""


@dataclasses.dataclass(frozen=True)
class ChosenLayout:
    """The layout that was found for a training.

    Attributes:
      bindings: the gin bindings that configure it.
      choice: its layout, its costs, and the runners-up. None if the run had chosen before.
      searched: a line on the searches, if there were several programs.
    """

    bindings: tuple[Parameter, ...]
    choice: LayoutChoice | None = None
    searched: str = ""

    @property
    def more(self) -> list[Parameter]:
        """The bindings besides a mesh and layouts."""
        named = () if self.choice is None else tuple(_named(self.choice))
        return [binding for binding in self.bindings if not binding.binding.startswith(named)]

    def __str__(self) -> str:
        if self.choice is None:
            return "layout:        as the run has chosen it, " + "; ".join(b.binding for b in self.bindings)
        more = [b.binding for b in self.more]
        searched = [f"  {self.searched}"] if self.searched else []
        return "\n".join([str(self.choice), *(f"  with {binding}" for binding in more), *searched])


def chosen_layout(
    files: Sequence[Path],
    parameters: Sequence[str | Parameter],
    machine: Callable[[], Machine] | None,
    run_before: Callable[[], str | None] = lambda: None,
    search: Callable[..., LayoutChoice] = auto_layout,
    effort: SearchEffort | None = None,
) -> ChosenLayout | None:
    """Finds the layout that a configuration asks for. Returns None if the configuration names one.

    Afterwards gin's configuration is undefined: read it again, with the bindings.

    Args:
      files, parameters: the configuration, as `read_configuration` takes it.
      machine: returns the machine on which the training is to run. None if the user named none.
      run_before: returns the operative configuration of the run that is resumed, whose layout is kept. It returns None
        for a new run.
      search: a function that finds a layout for a program, a mesh and a machine.
      effort: the limits of the search, and the function that receives its progress.

    Raises:
      ConfigurationError: if the mesh or the machine is missing.
      LayoutError: if no layout fits.
    """
    read_configuration(files, parameters)
    asked = {binding.name: binding.value for binding in present_bindings()}
    mesh, layout = asked.get("Training.mesh_shape"), asked.get("Training.layout")
    if layout != AUTO:
        if isinstance(mesh, str) and AUTO_MESH.fullmatch(mesh):
            raise ConfigurationError(
                _MESH_ALONE.format(mesh=mesh, layout="not given" if layout is None else repr(layout))
            )
        return None
    before = run_before()
    if before is not None and (kept := _kept(bindings_of(before), asked)):
        return ChosenLayout(kept)
    if machine is None:
        raise ConfigurationError(_NO_MACHINE)
    if not isinstance(mesh, str) or (not AUTO_MESH.fullmatch(mesh) and MeshShapeRule.parse(mesh).is_open):
        raise ConfigurationError(_OPEN.format(mesh=mesh))
    return _Choosing(files, parameters, asked, mesh, machine(), AllSearches(search, effort or SearchEffort())).best()


def _kept(before: Mapping[str, str], asked: Mapping[str, object]) -> tuple[Parameter, ...]:
    """Returns the run's bindings for options that the configuration leaves open. Layers keep their scopes."""
    names = [name for choice in _CHOSEN if (name := f"Training.{choice}") in before]
    names += [name for name in before if _unscoped(name) in _CHOSEN_OF_LAYERS and not _says(asked, _unscoped(name))]
    return tuple(Parameter("the run", f"{name} = {before[name]}") for name in names)


def _unscoped(name: str) -> str:
    return name.rpartition("/")[2]


def _says(asked: Mapping[str, object], parameter: str) -> bool:
    return any(_unscoped(name) == parameter for name in asked)


def _named(choice: LayoutChoice) -> list[str]:
    return [f"Training.{name} = " for name in choice.layout.bindings()]


@dataclasses.dataclass(frozen=True)
class _Variant:
    """The training with more bindings, and a rule that all of its layouts keep."""

    bindings: tuple[str, ...] = ()
    keep: str = ""


@dataclasses.dataclass(frozen=True)
class _Choosing:
    files: Sequence[Path]
    parameters: Sequence[str | Parameter]
    asked: Mapping[str, object]
    mesh: str
    machine: Machine
    searches: AllSearches

    def best(self) -> ChosenLayout:
        """Returns the fastest variant of the training. Each variant is tried only if it may help."""
        best: tuple[LayoutChoice, _Variant] | None = None
        refusal: MeshtfError | ConfigurationError = ConfigurationError(_NO_STAGES.format(mesh=self.mesh))
        if not _leaves_stages_open(self.asked):
            try:
                best = self._best_in_memory()
            except (LayoutError, UsageError) as error:
                refusal = error
        for again in self._recomputations(best):
            for variant in self._pipelines(best, again):
                try:
                    found = self._found(variant, is_quick=True)
                except (ConfigurationError, LayoutError, UsageError, ShapeError, GraphError) as error:
                    refusal = refusal if isinstance(refusal, MeshtfError) else error
                    continue
                if best is None or found.best.seconds < best[0].best.seconds:
                    best = (found, variant)
            if best is not None:
                break
        if best is None:
            raise refusal
        choice, variant = best
        if choice.was_cut_short:
            # For a very large program the usual limit is below the quick one. Then this search may find nothing.
            with contextlib.suppress(LayoutError, UsageError):
                longer = self._found(variant, is_quick=False)
                quickest = min(longer, choice, key=lambda found: found.best.seconds)
                choice = dataclasses.replace(quickest, end=longer.end)
        choice = self.searches.ended(choice)
        own = [f"Training.{name} = {value!r}" for name, value in choice.layout.bindings().items()]
        bindings = [Parameter("--layout=auto", binding) for binding in [*own, *variant.bindings]]
        return ChosenLayout(tuple(bindings), choice, str(self.searches))

    def _best_in_memory(self) -> tuple[LayoutChoice, _Variant]:
        """Returns the fastest variant among the ways to need less memory. Raises LayoutError or UsageError if
        none is found.
        """
        best: tuple[LayoutChoice, _Variant] | None = None
        refusal: LayoutError | UsageError | None = None
        for variant in _ways_to_need_less(self.asked):
            try:
                found = self._found(variant, is_quick=True)
            except (LayoutError, UsageError) as error:
                refusal = error
                continue
            if best is not None and found.best.seconds >= best[0].best.seconds:
                break
            best = (found, variant)
            if found.seconds_in_any_memory >= _GAIN * found.best.seconds:
                break
        if best is None:
            assert refusal is not None
            raise refusal
        return best

    def _recomputations(self, best: tuple[LayoutChoice, _Variant] | None) -> list[tuple[str, ...]]:
        """Returns the bindings of recomputation for a pipeline's layers.

        They are those of the best variant so far. If there is none, first no recomputation is tried, and then full
        recomputation.
        """
        if best is not None:
            return [tuple(binding for binding in best[1].bindings if binding.startswith(_RECOMPUTE))]
        return [()] if _says(self.asked, _RECOMPUTE) else [(), (_RECOMPUTE_ALL,)]

    def _pipelines(self, best: tuple[LayoutChoice, _Variant] | None, again: tuple[str, ...]) -> Iterator[_Variant]:
        """Yields a pipeline along each axis of the mesh.

        If there is a best variant, a pipeline is left out if its stages wait longer than that variant communicates.
        """
        batch, passing = self.asked.get("Training.batch_size"), self.asked.get(_PASSING)
        is_open = _leaves_stages_open(self.asked)
        may_add_one = _has_stack(self.asked) and not _says(self.asked, _PIPELINE) and not _says(self.asked, _STAGES)
        if not isinstance(batch, int) or not (is_open or may_add_one):
            return
        for axis, stages in self._axes():
            counts = [passing] if isinstance(passing, int) else [n * stages for n in _PASSING_PER_STAGE]
            count = next((count for count in counts if batch % count == 0), None)
            if count is None:
                continue
            if best is not None:
                waiting = PipelineSchedule(stages, count).bubble * best[0].best.seconds
                if waiting >= best[0].best.communication_seconds:
                    continue
            pipeline = (f"{_PIPELINE} = @PipelineSchedule()",) if may_add_one else ()
            given = (f"{_PASSING} = {count}",) if not _says(self.asked, _PASSING) else ()
            yield _Variant((*again, *pipeline, f"{_STAGES} = {stages}", *given), keep=f"stage:{axis}")

    def _axes(self) -> list[tuple[str, int]]:
        """Returns the mesh axes that may split stages, with their sizes."""
        if any_mesh := AUTO_MESH.fullmatch(self.mesh):
            return [(ANY_MESH_AXES[0], size) for size in _STAGES_OF_ANY_MESH if int(any_mesh[1]) % size == 0]
        return [(axis.name, axis.size) for axis in mtf.convert_to_shape(self.mesh) if axis.size > 1]

    def _found(self, variant: _Variant, *, is_quick: bool) -> LayoutChoice:
        """Returns the result of the search for one variant. A quick search only finds out whether anything fits."""
        self.searches.check_time()
        shape = "rows:1" if AUTO_MESH.fullmatch(self.mesh) else self.mesh
        nothing = ["Training.layout = ''", f"Training.mesh_shape = {shape!r}"]
        nothing += ["Training.parameter_layout = None", "Training.activation_layout = None"]
        read_configuration(self.files, [*self.parameters, *nothing, *variant.bindings])
        training = configured_training()
        mesh_impl = mtf.PlanMeshImpl(
            training.mesh_shape,
            training.layout,
            options=training.mesh_options,
            kernel_platform=self.machine.kernel_platform,
        )
        program = training_step(training, mesh_impl)
        operations = sum(1 for _ in with_nested(program.graph.operations))
        limit = _QUICK_PLANS * operations if is_quick else None
        with_bindings = ", ".join(variant.bindings)
        return self.searches.found(with_bindings, limit, program, self.mesh, self.machine, keep=variant.keep)


def _has_stack(asked: Mapping[str, object]) -> bool:
    return any(_unscoped(name).startswith(f"{_STACK}.") for name in asked)


def _leaves_stages_open(asked: Mapping[str, object]) -> bool:
    """Tells whether the configuration has a pipeline and does not say how many stages."""
    return _says(asked, _PIPELINE) and not _says(asked, _STAGES)


def _ways_to_need_less(asked: Mapping[str, object]) -> Iterator[_Variant]:
    """Yields variants that need less memory and take longer, beginning with the training as it is."""
    yield _Variant()
    again: tuple[str, ...] = ()
    if _has_stack(asked) and not _says(asked, _RECOMPUTE):
        again = (_RECOMPUTE_ALL,)
        yield _Variant(again)
    batch = asked.get("Training.batch_size")
    if "Training.num_microbatches" not in asked and isinstance(batch, int):
        for count in (2, 4, 8, _MOST_MICROBATCHES):
            if batch % count == 0:
                yield _Variant((*again, f"Training.num_microbatches = {count}"))
