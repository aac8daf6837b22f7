"""Prices a layout: plans the program under it, and predicts its time on a machine.

Each layout is priced once. Two sets of rules are one layout if they split every tensor of the program in the same way.
For example, "batch:rows;d_ff:cols" already splits the activations [batch d_ff]. With an activation rule "d_ff:cols" it
is the same layout, so the program is not planned again.
"""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Callable, Hashable, Sequence

from meshtf.backends.plan_mesh_impl import PlanMeshImpl
from meshtf.costs import Machine, Prediction, predict
from meshtf.dimension import Shape
from meshtf.errors import LayoutError, LayoutWarning, MeshtfError
from meshtf.garbage_collection import garbage_collection_paused
from meshtf.graph.blocks import with_nested
from meshtf.graph.tensor import Tensor
from meshtf.layout import Axes, LayoutRules
from meshtf.lowering.lowering import Lowering
from meshtf.lowering.passes.pass_options import DEFAULT_PASS_OPTIONS
from meshtf.lowering.report.report import Report
from meshtf.mesh_impl.mesh_options import MeshOptions
from meshtf.planning.layouts.rules_by_place import RuleSet

_OVER = " over "
"""The word that occurs only in the names of collectives' parts."""


@dataclasses.dataclass(frozen=True, slots=True)
class MeshLayout:
    """A mesh and the rules over it.

    Attributes:
      mesh_shape: axes and sizes.
      layout: the axes that split each dimension.
      parameter_layout: the layout of parameters as they are kept between steps. None: the same as `layout`.
      activation_layout: replaces `layout` for tensors with a dimension that no variable has. None: no replacement.

    Examples:
      >>> layout = mtf.MeshLayout(mtf.convert_to_shape("rows:2"), mtf.convert_to_layout_rules("batch:rows"))
      >>> layout.bindings()["layout"]
      'batch:rows'
    """

    mesh_shape: Shape
    layout: LayoutRules
    parameter_layout: LayoutRules | None = None
    activation_layout: LayoutRules | None = None

    def bindings(self) -> dict[str, str | None]:
        """Returns the layout parameters of `Training`, keyed by name, as in a gin file."""
        mesh = ";".join(f"{axis.name}:{axis.size}" for axis in self.mesh_shape)
        own = {"mesh_shape": mesh, "layout": str(self.layout)}
        others = {"parameter_layout": self.parameter_layout, "activation_layout": self.activation_layout}
        return own | {name: None if rules is None else str(rules) for name, rules in others.items()}


@dataclasses.dataclass(frozen=True, slots=True)
class PricedLayout:
    """A layout, and the time and memory of a step under it.

    Attributes:
      choice: the mesh and the rules.
      seconds: predicted seconds of a step.
      peak_bytes: bytes of memory that a core needs.
      parts: the name and the seconds of each kind of work, the longest first.

    Examples:
      >>> layout = mtf.MeshLayout(mtf.convert_to_shape("rows:2"), mtf.convert_to_layout_rules("batch:rows"))
      >>> priced = mtf.PricedLayout(layout, seconds=0.5, peak_bytes=2**30, parts=(("products", 0.5),))
      >>> priced.parts[0]
      ('products', 0.5)
    """

    choice: MeshLayout
    seconds: float
    peak_bytes: int
    parts: tuple[tuple[str, float], ...]

    @property
    def communication_seconds(self) -> float:
        """The seconds of a step that are spent in collectives."""
        return sum(seconds for name, seconds in self.parts if _OVER in name)


class Pricing:
    """Prices layouts of one program on one machine.

    Args:
      lowering: the lowering of the program, on any mesh.
      fetches: the tensors that it returns.
      machine: the machine on which it is to run.
      options: the options of the mesh, except layouts.
      told: a function that is called with each priced layout, and with None for a layout that the program cannot have.
    """

    def __init__(
        self,
        lowering: Lowering,
        fetches: Sequence[Tensor],
        machine: Machine,
        options: MeshOptions,
        told: Callable[[Pricing, PricedLayout | None], None] = lambda *_: None,
    ) -> None:
        self._lowering = lowering
        self.fetches = list(fetches)
        self._machine = machine
        self._options = options
        self._told = told
        self._found: dict[Hashable, PricedLayout | None] = {}
        self._began = time.monotonic()
        self.first_error: MeshtfError | None = None
        """The error of the first layout that the program cannot have."""
        operations = list(with_nested(lowering.graph.operations))
        self._shapes = list(dict.fromkeys(t.shape for o in operations for t in o.outputs))
        variables = lowering.graph.variables.values()
        self._parameter_shapes = list(dict.fromkeys(t.shape for o in variables for t in o.outputs))
        self._rule_set = RuleSet.of_variables(LayoutRules(()), None, variables)
        self._has_overrides = any(o.overrides_layout for o in operations)
        self.operations = len(operations)
        """The number of operations of the program."""
        self.planned_operations = 0
        """The number of operations that were planned so far, in all layouts together."""

    @property
    def seconds(self) -> float:
        """The seconds since the pricing began."""
        return time.monotonic() - self._began

    @property
    def count(self) -> int:
        """The number of layouts that were priced."""
        return len(self._found)

    @property
    def priced(self) -> list[PricedLayout]:
        """All layouts that the program can have, the fastest first."""
        found = [priced for priced in self._found.values() if priced is not None]
        return sorted(found, key=lambda priced: priced.seconds)

    def price(self, choice: MeshLayout) -> PricedLayout | None:
        """Returns the price of a layout, or None if the program cannot have it.

        If other rules that give every tensor the same layout were priced before, their price is returned, with their
        rules.
        """
        key = self._layouts_of_tensors(choice)
        if key not in self._found:
            self._found[key] = self._priced(choice)
            self._told(self, self._found[key])
        return self._found[key]

    def _layouts_of_tensors(self, choice: MeshLayout) -> Hashable:
        """Returns the parts of the layout on which a plan depends: the splits of every tensor, and the rules of
        places."""
        if self._has_overrides:
            # Beside an override, a tensor's layout depends on more than the tensor's shape.
            return choice
        rules, kept = choice.layout, choice.parameter_layout
        activations = choice.activation_layout or LayoutRules(())
        by_shape = _axes(dataclasses.replace(self._rule_set, rules=rules, activations=activations), self._shapes)
        by_parameter = None if kept is None else _axes(self._rule_set.with_rules(kept), self._parameter_shapes)
        places = [own.places for own in (rules, kept, activations) if own is not None]
        return choice.mesh_shape, by_shape, by_parameter, tuple(places)

    def lowered(self, choice: MeshLayout) -> Lowering:
        """Returns the program under the layout. Raises LayoutError if it cannot have it."""
        options = dataclasses.replace(
            self._options,
            parameter_layout=choice.parameter_layout,
            activation_layout=choice.activation_layout,
            axis_parts=(),
        )
        platform = self._machine.kernel_platform
        mesh_impl = PlanMeshImpl(choice.mesh_shape, choice.layout, options=options, kernel_platform=platform)
        own = self._lowering
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LayoutWarning)
            return Lowering(own.graph, {own.mesh: mesh_impl}, None, own.seed, DEFAULT_PASS_OPTIONS)

    @garbage_collection_paused()
    def predicted(self, choice: MeshLayout) -> tuple[Report, Prediction]:
        """Returns the program's report under the layout, and its predicted time. Raises LayoutError if it cannot have
        it.

        The report lacks the parts that only people read.
        """
        self.planned_operations += self.operations
        report = self.lowered(choice).brief_report(self.fetches)
        return report, predict(report, self._machine)

    def _priced(self, choice: MeshLayout) -> PricedLayout | None:
        try:
            report, prediction = self.predicted(choice)
        except LayoutError as error:
            self.first_error = self.first_error or error
            return None
        return PricedLayout(choice, prediction.seconds, report.memory.peak, parts_of(prediction))


def _axes(rule_set: RuleSet, shapes: Sequence[Shape]) -> tuple[tuple[Axes, ...], ...]:
    """Returns the axes that split each dimension of each shape, outside all places."""
    return tuple(tuple(rule_set.axes(shape, ((), ())).values()) for shape in shapes)


def parts_of(prediction: Prediction) -> tuple[tuple[str, float], ...]:
    """Returns the seconds of a step by the kind of work, the longest first.

    Collectives are listed by kind and axes, with their exposed seconds.
    """
    parts = dataclasses.asdict(prediction.parts)
    del parts["communication"]
    for row in prediction.collectives:
        parts[f"{row.kind}{_OVER}{'+'.join(row.axes)}"] = row.exposed_seconds
    return tuple(sorted(((name, seconds) for name, seconds in parts.items() if seconds > 0), key=lambda p: -p[1]))
