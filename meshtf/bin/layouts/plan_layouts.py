"""Plans layouts of a training: as configured, with bindings of --compare, and with settings from the plan's page."""

from __future__ import annotations

import ast
import dataclasses
import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import meshtf as mtf
from meshtf.bin.shared.run_program import error_message
from meshtf.costs import Machine, predict
from meshtf.errors import LayoutWarning, MeshtfError
from meshtf.layout_search import AUTO_MESH, SearchProgress
from meshtf.mesh_impl.mesh_shape_rule import MeshShapeRule
from meshtf.plan_view.planned_layout import PlannedLayout, Settings
from meshtf.train.configuration import ConfigurationError, check_every_binding_is_read, read_configuration
from meshtf.train.gin_files.bindings import Parameter, present_bindings, where_written
from meshtf.train.layouts.all_searches import SearchEffort
from meshtf.train.layouts.automatic_layout import AUTO, chosen_layout
from meshtf.train.monitoring.description import one_line
from meshtf.train.step_programs import training_step, training_step_on
from meshtf.train.training import Training, configured_training
from meshtf_programs.command_lines.shared.command_line import FlagError
from meshtf_programs.packaged_configurations import recipe_file, recipes

FLAG = "--compare"
_PAGE = "the page"
_TITLES = {
    "mesh_shape": "mesh",
    "parameter_layout": "parameters",
    "activation_layout": "activations",
    "batch_size": "batch size",
}
_OPTIONAL = ("parameter_layout", "activation_layout")
_NO_MACHINE = """\
a search for a layout needs a machine on which to predict its time: start meshtf-plan with --machine, a name such \
as v5e or the file that meshtf-probe writes"""
_NAMES = tuple(field.name for field in dataclasses.fields(Settings))
_ASSIGNMENT = re.compile(rf"(?:^|\s)({'|'.join(_NAMES)})=")
_OF_THE_MESH = {"mesh_shape", "layout", *(field.name for field in dataclasses.fields(mtf.MeshOptions))}
_NO_LAYOUTS = {"Training.parameter_layout": "None", "Training.activation_layout": "None"}
_MOST_CORES = 1 << 17
_NOT_COMPARED = """\
--compare={text!r} is not a recipe, a layout or settings. Give the name of a recipe ({recipes}), auto, a layout as \
"batch:rows;d_ff:cols", or settings of {names}, as "mesh_shape=rows:4;cols:2 layout=batch:rows"."""
_TOO_MANY_CORES = "a page plans meshes of at most {most:,} cores, and [{shape}] has {cores:,}; meshtf-plan plans any"


@dataclasses.dataclass
class LayoutPlanner:
    """Plans the layouts that files and bindings configure. All layouts of one program share its graph.

    Attributes:
      files, parameters: the configuration.
      processes: the number of processes that share the mesh. None: as configured.
      machine: the machine for predictions, or None.
      allow_unread: whether bindings that nothing reads are allowed.
      effort: the limits of searches for a layout, if one is asked for beside the configured one.
    """

    files: Sequence[Path]
    parameters: Sequence[str | Parameter]
    processes: int | None
    machine: Machine | None
    allow_unread: bool
    effort: SearchEffort = dataclasses.field(default_factory=SearchEffort)
    _configured_as: Training | None = dataclasses.field(default=None, init=False, repr=False)
    _built: tuple[Training, mtf.Function] | None = dataclasses.field(default=None, init=False, repr=False)

    def as_configured(self, label: str) -> tuple[Training, PlannedLayout]:
        """Returns the training and its plan. Afterwards gin holds this configuration.

        Raises:
          MeshtfError, LayoutWarning: if the plan is impossible.
        """
        training, planned = self._configured(label, self.parameters)
        self._configured_as = training
        return training, planned

    def compared(self, texts: Iterable[str]) -> list[PlannedLayout]:
        """Returns one layout for each value of --compare. An impossible layout has an error.

        Raises:
          FlagError: if a value has the wrong form.
        """
        return [self._compared(text, _bindings(text)) for text in texts]

    def again(
        self, training: Training, settings: Settings, progress: Callable[[SearchProgress], None] | None = None
    ) -> PlannedLayout:
        """Returns a plan with other settings, and a label that lists them. Impossible settings give it an error.

        Args:
          training: the training as configured.
          settings: the settings. The layout "auto" asks for a search for the shortest predicted time.
          progress: a function that receives the progress of this search.
        """
        label = settings_text(settings, _settings_of(training))

        def plan() -> PlannedLayout:
            _check_cores(settings.mesh_shape)
            if settings.layout == AUTO:
                return self._found(training, settings, progress)
            return self._planned(label, dataclasses.replace(training, **_of_training(settings)))

        return _or_error(label, settings, plan, functools.partial(_from_page, settings))

    def _found(
        self, training: Training, settings: Settings, progress: Callable[[SearchProgress], None] | None
    ) -> PlannedLayout:
        """Returns the layout that a search finds. It leaves gin's configuration as it was."""
        if self.machine is None:
            raise ConfigurationError(_NO_MACHINE)
        own = [Parameter(_PAGE, f"Training.{name} = {value!r}") for name, value in _of_training(settings).items()]
        parameters, machine = [*self.parameters, *own], self.machine
        try:
            effort = dataclasses.replace(self.effort, progress=progress)
            chosen = chosen_layout(self.files, parameters, lambda: machine, effort=effort)
            assert chosen is not None
            read_configuration(self.files, [*parameters, *chosen.bindings])
            planned = self._planned("", configured_training())
        finally:
            read_configuration(self.files, self.parameters)
        more = "; ".join(binding.binding for binding in chosen.more)
        label = f"auto: {settings_text(planned.settings, _settings_of(training))}" + (f", {more}" if more else "")
        return dataclasses.replace(planned, label=label, search=str(chosen))

    def _configured(self, label: str, parameters: Sequence[str | Parameter]) -> tuple[Training, PlannedLayout]:
        read_configuration(self.files, parameters)
        training = configured_training()
        planned = self._planned(label, training)
        if not self.allow_unread:
            check_every_binding_is_read()
        return training, planned

    def _compared(self, text: str, given: Mapping[str, str]) -> PlannedLayout:
        """Returns the layout of one value of --compare. `given`: gin's values by parameter."""
        own = [Parameter(FLAG, f"{name} = {value}") for name, value in given.items()]
        changes, training = _of_layout_alone(given), self._configured_as
        if training is not None and changes is not None and changes.get("layout") != AUTO:
            return _or_error(text, given, lambda: self._planned(text, dataclasses.replace(training, **changes)))
        return _or_error(text, given, lambda: self._configured_or_found(text, [*self.parameters, *own]))

    def _configured_or_found(self, label: str, parameters: Sequence[str | Parameter]) -> PlannedLayout:
        """Returns the configured layout, or the one that a search finds if the configuration asks for it."""
        machine = self.machine
        chosen = chosen_layout(self.files, parameters, None if machine is None else lambda: machine, effort=self.effort)
        if chosen is None:
            return self._configured(label, parameters)[1]
        planned = self._configured(label, [*parameters, *chosen.bindings])[1]
        return dataclasses.replace(planned, search=str(chosen))

    def _planned(self, label: str, training: Training) -> PlannedLayout:
        options = training.mesh_options
        if self.processes is not None:
            options = dataclasses.replace(options, num_processes=self.processes)
        mesh_impl = mtf.PlanMeshImpl(
            training.mesh_shape,
            training.layout,
            options=options,
            kernel_platform="" if self.machine is None else self.machine.kernel_platform,
        )
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
    """Returns the fields of Training that gin's values set. Returns None if some are not about the mesh and the
    layout, or are not literals.
    """
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
    """Tells whether two trainings differ only in their layouts. Fields that cannot be compared count as different."""
    names = [field.name for field in dataclasses.fields(Training) if field.name not in _OF_THE_MESH]
    return all(
        x is y or (isinstance(x, bool | int | float | str) and type(x) is type(y) and x == y)
        for x, y in ((getattr(a, name), getattr(b, name)) for name in names)
    )


def _bindings(text: str) -> dict[str, str]:
    """Returns the bindings of a value of --compare: gin's values by parameter. A recipe sets all layouts, as in
    its file.
    """
    if text in recipes():
        lines = (line.partition("=") for line in recipe_file(text).read_text().splitlines() if not line.startswith("#"))
        return _NO_LAYOUTS | {name.strip(): value.strip() for name, equals, value in lines if equals}
    places = list(_ASSIGNMENT.finditer(text))
    if text == AUTO or (not places and ":" in text and "=" not in text):
        return {"Training.layout": repr(text)}
    ends = [match.start() for match in places[1:]] + [len(text)]
    given = {match[1]: text[match.end() : end].strip() for match, end in zip(places, ends, strict=False)}
    size = given.get("batch_size", "1")
    leads = places and not text[: places[0].start()].strip()
    if not leads or len(given) < len(places) or not (size.isdecimal() and size.isascii()):
        raise FlagError(_NOT_COMPARED.format(text=text, recipes=", ".join(recipes()), names=", ".join(_NAMES)))
    return {f"Training.{name}": str(int(v)) if name == "batch_size" else repr(v) for name, v in given.items()}


def _or_error(
    label: str,
    asked: Settings | Mapping[str, str],
    plan: Callable[[], PlannedLayout],
    written: Callable[[str, Sequence[str]], str] | None = None,
) -> PlannedLayout:
    """Returns the plan. An impossible plan becomes an error, with the requested settings.

    Args:
      label: the label of the layout.
      asked: the requested settings, or gin's values of some. gin's configuration then has the others.
      plan: makes the plan.
      written: returns lines that say where the bindings in a message, and those of further names, were written.
    """
    try:
        return plan()
    except (MeshtfError, LayoutWarning) as error:
        settings = asked if isinstance(asked, Settings) else _settings_asked(asked)
        return PlannedLayout(label, settings, error=error_message(error, written))


def _settings_asked(given: Mapping[str, str]) -> Settings:
    values = {binding.name: binding.value for binding in present_bindings()}
    values |= {name: _literal(value) for name, value in given.items()}
    texts = {name: str(values.get(f"Training.{name}") or "") for name in _NAMES if name != "batch_size"}
    size = values.get("Training.batch_size")
    return Settings(**texts, batch_size=size if isinstance(size, int) else 0)


def _literal(value: str) -> object:
    try:
        return ast.literal_eval(value)
    except (SyntaxError, ValueError):
        return value


def _from_page(settings: Settings, message: str, names: Sequence[str]) -> str:
    """Returns lines like those of `where_written`, for settings that a page asked for."""
    asked = {f"Training.{name}": value for name, value in dataclasses.asdict(settings).items() if value}
    spoken = [name for name in asked if name in names or name in message]
    others = [line for line in where_written(message).splitlines() if line and line.split()[0] not in asked]
    return "\n".join(["", *(f"  {name} = {asked[name]!r}  is from {_PAGE}" for name in spoken), *others]).rstrip()


def settings_text(settings: Settings, others: Settings) -> str:
    """Returns the label of a layout: its rules, and those of its other settings that differ from `others`."""
    own, usual = dataclasses.asdict(settings), dataclasses.asdict(others)
    differing = [f"{_TITLES[name]} {own[name] or 'none'}" for name in _TITLES if own[name] != usual[name]]
    return ", ".join([settings.layout or "nothing is split", *differing])


def _of_training(settings: Settings) -> dict[str, Any]:
    """Returns the settings as fields of Training."""
    return {name: value or None if name in _OPTIONAL else value for name, value in dataclasses.asdict(settings).items()}


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
    """Raises DeviceError if planning this many cores would take too long for a page."""
    if (any_mesh := AUTO_MESH.fullmatch(mesh_shape)) is not None:
        shape, cores = mesh_shape, int(any_mesh[1])
    elif (rule := MeshShapeRule.parse(mesh_shape)).is_open:
        return
    else:
        shape, cores = str(rule.shape(0)), rule.shape(0).size
    if cores > _MOST_CORES:
        raise mtf.errors.DeviceError(_TOO_MANY_CORES.format(most=_MOST_CORES, shape=shape, cores=cores))
