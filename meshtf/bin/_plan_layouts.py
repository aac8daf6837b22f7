"""Layouts of a configured training, planned: as it is, with bindings of --compare, and with settings of a page."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import meshtf as mtf
from meshtf.bin._run_program import error_message
from meshtf.costs import Machine, predict
from meshtf.errors import LayoutWarning, MeshtfError
from meshtf.mesh_impl.mesh_shape_rule import MeshShapeRule
from meshtf.plan_view.planned_layout import PlannedLayout, Settings
from meshtf.train.configuration import check_every_binding_is_read, read_configuration
from meshtf.train.gin_files.bindings import Parameter
from meshtf.train.monitoring.description import one_line
from meshtf.train.step_programs import training_step, training_step_on
from meshtf.train.training import Training, configured_training
from meshtf_programs.command_lines.command_line import FlagError
from meshtf_programs.packaged_configurations import recipe_file, recipes

FLAG = "--compare"
_NAMES = tuple(field.name for field in dataclasses.fields(Settings))
_ASSIGNMENT = re.compile(rf"(?:^|\s)({'|'.join(_NAMES)})=")
_OF_THE_MESH = {"mesh_shape", "layout", *(field.name for field in dataclasses.fields(mtf.MeshOptions))}
_NO_LAYOUTS = {"Training.parameter_layout": "None", "Training.activation_layout": "None"}
_MOST_CORES = 1 << 17
_NOT_COMPARED = """\
--compare={text!r} is no recipe, no layout and no settings. It is the name of a recipe ({recipes}), a layout as \
"batch:rows;d_ff:cols", or settings of {names}, as "mesh_shape=rows:4;cols:2 layout=batch:rows"."""
_TOO_MANY_CORES = "a page plans meshes of at most {most:,} cores, and [{shape}] has {cores:,}; meshtf-plan plans any"


@dataclasses.dataclass
class Planner:
    """Plans layouts of what files and bindings configure. Those of one program share its graph.

    Attributes:
      files, parameters: the configuration.
      processes: over how many the mesh is laid, in place of what is configured; None for that.
      machine: for predictions; None for none.
      allow_unread: whether bindings that nothing reads are allowed.
    """

    files: Sequence[Path]
    parameters: Sequence[str | Parameter]
    processes: int | None
    machine: Machine | None
    allow_unread: bool
    _configured_as: Training | None = dataclasses.field(default=None, init=False, repr=False)
    _built: tuple[Training, mtf.Function] | None = dataclasses.field(default=None, init=False, repr=False)

    def as_configured(self, label: str) -> tuple[Training, PlannedLayout]:
        """The training, in whose configuration gin is from then on, and its plan.

        Raises:
          MeshtfError, LayoutWarning: it cannot be.
        """
        training, planned = self._configured(label, self.parameters)
        self._configured_as = training
        return training, planned

    def compared(self, texts: Iterable[str]) -> list[PlannedLayout]:
        """One for each value of --compare; of one that cannot be, with its error.

        Raises:
          FlagError: a value is nothing of the kind.
        """
        return [self._compared(text, _bindings(text)) for text in texts]

    def again(self, training: Training, settings: Settings) -> PlannedLayout:
        """With other settings; what cannot be has its error."""
        changes = {
            "mesh_shape": settings.mesh_shape,
            "layout": settings.layout,
            "parameter_layout": settings.parameter_layout or None,
            "activation_layout": settings.activation_layout or None,
            "batch_size": settings.batch_size,
        }
        label = settings.layout or "nothing is split"

        def plan() -> PlannedLayout:
            _check_cores(settings.mesh_shape)
            return self._planned(label, dataclasses.replace(training, **changes))

        return _or_error(label, settings, plan)

    def _configured(self, label: str, parameters: Sequence[str | Parameter]) -> tuple[Training, PlannedLayout]:
        read_configuration(self.files, parameters)
        training = configured_training()
        planned = self._planned(label, training)
        if not self.allow_unread:
            check_every_binding_is_read()
        return training, planned

    def _compared(self, text: str, given: Mapping[str, str]) -> PlannedLayout:
        """`given`: values of gin's, by parameter."""
        own = [Parameter(FLAG, f"{name} = {value}") for name, value in given.items()]
        asked = {name: given.get(f"Training.{name}", "").strip("\"'") for name in _NAMES if name != "batch_size"}
        settings = Settings(**asked, batch_size=int(given.get("Training.batch_size", 0)))
        changes = _of_layout_alone(given)
        if self._configured_as is not None and changes is not None:
            training = self._configured_as
            return _or_error(text, settings, lambda: self._planned(text, dataclasses.replace(training, **changes)))
        return _or_error(text, settings, lambda: self._configured(text, [*self.parameters, *own])[1])

    def _planned(self, label: str, training: Training) -> PlannedLayout:
        options = training.mesh_options
        if self.processes is not None:
            options = dataclasses.replace(options, num_processes=self.processes)
        mesh_impl = mtf.PlanMeshImpl(training.mesh_shape, training.layout, options=options)
        if self._built is not None and _is_of_one_program(training, self._built[0]):
            program = training_step_on(mesh_impl, self._built[1])
        else:
            program = training_step(training, mesh_impl)
        self._built = training, program
        report, machine = program.report(), self.machine
        return PlannedLayout(
            label=label,
            settings=_settings_of(training),
            headline=one_line(training, program),
            report=report,
            prediction=None if machine is None else predict(report, machine, tokens_per_step=training.tokens_per_step),
            machine=machine,
        )


def _of_layout_alone(given: Mapping[str, str]) -> dict[str, object] | None:
    """The fields of Training that values of gin's set, where these are of the mesh and the layout, and literals."""
    changes = {name.removeprefix("Training."): value for name, value in given.items()}
    try:
        return (
            {name: ast.literal_eval(value) for name, value in changes.items()}
            if changes.keys() <= _OF_THE_MESH
            else None
        )
    except (SyntaxError, ValueError):
        return None


def _is_of_one_program(a: Training, b: Training) -> bool:
    """Whether they differ in nothing but their layouts. What is not known to be the same counts as different."""
    names = [field.name for field in dataclasses.fields(Training) if field.name not in _OF_THE_MESH]
    return all(
        x is y or (isinstance(x, bool | int | float | str) and type(x) is type(y) and x == y)
        for x, y in ((getattr(a, name), getattr(b, name)) for name in names)
    )


def _bindings(text: str) -> dict[str, str]:
    """What a value of --compare binds: gin's values by parameter. A recipe sets all layouts, as its file has them."""
    if text in recipes():
        lines = (line.partition("=") for line in recipe_file(text).read_text().splitlines() if not line.startswith("#"))
        return _NO_LAYOUTS | {name.strip(): value.strip() for name, equals, value in lines if equals}
    places = list(_ASSIGNMENT.finditer(text))
    if not places and ":" in text and "=" not in text:
        return {"Training.layout": repr(text)}
    ends = [match.start() for match in places[1:]] + [len(text)]
    given = {match[1]: text[match.end() : end].strip() for match, end in zip(places, ends, strict=False)}
    size = given.get("batch_size", "1")
    leads = places and not text[: places[0].start()].strip()
    if not leads or len(given) < len(places) or not (size.isdecimal() and size.isascii()):
        raise FlagError(_NOT_COMPARED.format(text=text, recipes=", ".join(recipes()), names=", ".join(_NAMES)))
    return {f"Training.{name}": str(int(v)) if name == "batch_size" else repr(v) for name, v in given.items()}


def _or_error(label: str, settings: Settings, plan: Callable[[], PlannedLayout]) -> PlannedLayout:
    try:
        return plan()
    except (MeshtfError, LayoutWarning) as error:
        return PlannedLayout(label, settings, error=error_message(error))


def _settings_of(training: Training) -> Settings:
    parameters, activations = (
        "" if rules is None else str(mtf.convert_to_layout_rules(rules))
        for rules in (training.parameter_layout, training.activation_layout)
    )
    return Settings(
        mesh_shape=training.mesh_shape,
        layout=training.layout_text,
        parameter_layout=parameters,
        activation_layout=activations,
        batch_size=training.batch_size,
    )


def _check_cores(mesh_shape: str) -> None:
    """Raises DeviceError, for more cores than a page can wait for."""
    rule = MeshShapeRule.parse(mesh_shape)
    if not rule.is_open and (shape := rule.shape(0)).size > _MOST_CORES:
        raise mtf.errors.DeviceError(_TOO_MANY_CORES.format(most=_MOST_CORES, shape=shape, cores=shape.size))
