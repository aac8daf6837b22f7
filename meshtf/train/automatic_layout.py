"""A training whose layout is to be found: `Training.layout = "auto"`, perhaps with `Training.mesh_shape = "auto:512"`.

A search looks for the layout of least predicted time that fits (`meshtf.layout_search`). Where the model's layers can
be computed again in the gradient, and the batch cut into micro-batches, and the configuration says nothing of either,
these are tried, too: first without, then with more of them, as long as that helps. What is found becomes bindings, and
with them a part of the run's configuration.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import meshtf as mtf
from meshtf.costs import Machine
from meshtf.errors import LayoutError, UsageError
from meshtf.graph import with_nested
from meshtf.layout_search import AUTO_MESH, LayoutChoice, auto_layout
from meshtf.mesh_impl.mesh_shape_rule import MeshShapeRule
from meshtf.train.configuration import ConfigurationError, read_configuration
from meshtf.train.gin_files.bindings import Parameter, present_bindings
from meshtf.train.resuming import bindings_of
from meshtf.train.step_programs import training_step
from meshtf.train.training import configured_training

AUTO = "auto"

_CHOSEN = ("mesh_shape", "layout", "parameter_layout", "activation_layout", "num_microbatches")
_RECOMPUTE = "TransformerStack.recompute"
_MOST_MICROBATCHES = 16
_QUICK_PLANS = 50
"""After which it is known whether a way to need less memory needs little enough."""

_GAIN = 0.98
"""With more memory a step must take less than this share of the time for more recomputation to be tried."""

_MESH_ALONE = """\
Training.mesh_shape is "{mesh}", for which the layout is to be found, too, and Training.layout is {layout}: give \
--layout=auto, or axes and sizes"""
_OPEN = """\
Training.layout is "auto", and mesh [{mesh}] is as large as the devices allow: give sizes, or "auto:8" for 8 cores"""
_NO_MACHINE = """\
Training.layout is "auto", and nobody says for which machine: give --machine, a name such as v5e or the file that
meshtf-probe writes"""


@dataclasses.dataclass(frozen=True)
class ChosenLayout:
    """What was found for a training.

    Attributes:
      bindings: that make the configuration have it.
      choice: its layout, its costs, and the runners-up; None where the run had chosen before.
    """

    bindings: tuple[Parameter, ...]
    choice: LayoutChoice | None = None

    def __str__(self) -> str:
        if self.choice is None:
            return "layout:        as the run has chosen it, " + "; ".join(b.binding for b in self.bindings)
        more = [b.binding for b in self.bindings if not b.binding.startswith(tuple(_named(self.choice)))]
        return "\n".join([str(self.choice), *(f"  with {binding}" for binding in more)])


def chosen_layout(
    files: Sequence[Path],
    parameters: Sequence[str | Parameter],
    machine: Callable[[], Machine] | None,
    run_before: Callable[[], str | None] = lambda: None,
    search: Callable[..., LayoutChoice] = auto_layout,
) -> ChosenLayout | None:
    """Finds the layout that a configuration asks for; None where it has one.

    Gin's configuration is afterwards any; read it again with the bindings.

    Args:
      files, parameters: of the configuration, as `read_configuration` takes them.
      machine: gives that on which the training is to run; None where nobody says.
      run_before: gives the operative configuration of the run that is resumed, whose layout is kept; None of a new run.
      search: finds a layout for a program, a mesh and a machine.

    Raises:
      ConfigurationError: the mesh or the machine is missing.
      LayoutError: no layout fits.
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
    if before is not None and (kept := _kept(bindings_of(before))):
        return ChosenLayout(kept)
    if machine is None:
        raise ConfigurationError(_NO_MACHINE)
    if not isinstance(mesh, str) or (not AUTO_MESH.fullmatch(mesh) and MeshShapeRule.parse(mesh).is_open):
        raise ConfigurationError(_OPEN.format(mesh=mesh))
    choosing = _Choosing(files, parameters, mesh, machine(), search)
    return choosing.best(asked)


def _kept(before: Mapping[str, str]) -> tuple[Parameter, ...]:
    names = [*(f"Training.{name}" for name in _CHOSEN), _RECOMPUTE]
    there = [name for name in names if name in before]
    return tuple(Parameter("the run", f"{name} = {before[name]}") for name in there)


def _named(choice: LayoutChoice) -> list[str]:
    return [f"Training.{name} = " for name in choice.layout.bindings()]


@dataclasses.dataclass(frozen=True)
class _Choosing:
    files: Sequence[Path]
    parameters: Sequence[str | Parameter]
    mesh: str
    machine: Machine
    search: Callable[..., LayoutChoice]

    def best(self, asked: Mapping[str, object]) -> ChosenLayout:
        """The quickest over ways to need less memory, each tried only where it may help."""
        best: tuple[LayoutChoice, tuple[str, ...]] | None = None
        refusal: LayoutError | UsageError | None = None
        for more in _ways_to_need_less(asked):
            try:
                found = self._found(more, is_quick=True)
            except (LayoutError, UsageError) as error:
                refusal = error
                continue
            if best is not None and found.best.seconds >= best[0].best.seconds:
                break
            best = (found, more)
            if found.seconds_in_any_memory >= _GAIN * found.best.seconds:
                break
        if best is None:
            assert refusal is not None
            raise refusal
        choice, more = best
        if choice.was_cut_short:
            # Of a program so large that the usual limit is the lower one, this search may find nothing.
            with contextlib.suppress(LayoutError, UsageError):
                longer = self._found(more, is_quick=False)
                choice = min(choice, longer, key=lambda found: found.best.seconds)
        own = [f"Training.{name} = {value!r}" for name, value in choice.layout.bindings().items()]
        return ChosenLayout(tuple(Parameter("--layout=auto", binding) for binding in [*own, *more]), choice)

    def _found(self, more: Sequence[str], *, is_quick: bool) -> LayoutChoice:
        """What a search finds for the training with more bindings: a quick one sees whether anything fits."""
        shape = "rows:1" if AUTO_MESH.fullmatch(self.mesh) else self.mesh
        nothing = ["Training.layout = ''", f"Training.mesh_shape = {shape!r}"]
        nothing += ["Training.parameter_layout = None", "Training.activation_layout = None"]
        read_configuration(self.files, [*self.parameters, *nothing, *more])
        training = configured_training()
        mesh_impl = mtf.PlanMeshImpl(training.mesh_shape, training.layout, options=training.mesh_options)
        program = training_step(training, mesh_impl)
        operations = sum(1 for _ in with_nested(program.graph.operations))
        limits = {"max_planned_operations": _QUICK_PLANS * operations} if is_quick else {}
        return self.search(program, self.mesh, self.machine, **limits)


def _ways_to_need_less(asked: Mapping[str, object]) -> Iterator[tuple[str, ...]]:
    """Bindings with which a step needs less memory and takes longer: at first none."""
    yield ()
    again: tuple[str, ...] = ()
    has_stack = any(name.split("/")[-1].startswith("TransformerStack.") for name in asked)
    if has_stack and not any(name.endswith(_RECOMPUTE) for name in asked):
        again = (f"{_RECOMPUTE} = 'nothing'",)
        yield again
    batch = asked.get("Training.batch_size")
    if "Training.num_microbatches" not in asked and isinstance(batch, int):
        for count in (2, 4, 8, _MOST_MICROBATCHES):
            if batch % count == 0:
                yield (*again, f"Training.num_microbatches = {count}")
