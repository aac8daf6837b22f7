"""`why`: where a tensor is made, how it is laid out and why, and which collectives it causes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from meshtf.call_sites import says_where
from meshtf.debug.layout_reasons import DimensionReason, layout_reasons
from meshtf.debug.lowered_program import LoweredProgram
from meshtf.errors import UsageError, counted
from meshtf.function.program import Function
from meshtf.graph.tensor import Tensor
from meshtf.layout import Axes
from meshtf.lowering.lowering import Lowering
from meshtf.lowering.report import accounting
from meshtf.lowering.report.text_table import Column, bytes_text, table
from meshtf.markup import block, element, grid
from meshtf.planning.plan import Collective, Plan, Value, walk


@dataclasses.dataclass(frozen=True, slots=True)
class SentFor:
    """A collective that makes a tensor, or sends it to a reader.

    Attributes:
      kind: all_reduce, all_gather and so on.
      axes: the mesh axes along which data moves.
      times: how often it runs in a step, including loops.
      bytes_sent: bytes that each core sends, over all runs.
      reason: "to make it", or "for" its reader.
    """

    kind: str
    axes: Axes
    times: int
    bytes_sent: int
    reason: str


@dataclasses.dataclass(frozen=True)
class Why:
    """The result of `mtf.debug.why`. Print it; a notebook shows it as HTML.

    Attributes:
      name: the tensor's name.
      shape: its named shape.
      dtype: its element type.
      label: the operation that makes it, as reports name it.
      line: the line that makes it, with its function.
      layout: its named shape with the mesh axes that split it.
      bytes_per_core: bytes of a core's part.
      dimensions: the reason for the layout of each dimension.
      kept: for a variable, its layout between steps, if that is different.
      sent: the collectives that make it or send it to readers.
    """

    name: str
    shape: str
    dtype: str
    label: str
    line: str
    layout: str
    bytes_per_core: int
    dimensions: tuple[DimensionReason, ...]
    kept: str
    sent: tuple[SentFor, ...]

    @property
    def bytes_sent(self) -> int:
        """Bytes that each core sends for it."""
        return sum(s.bytes_sent for s in self.sent)

    def _facts(self) -> list[tuple[str, str]]:
        facts = [
            ("made by", self.label),
            ("at", self.line),
            ("layout", f"[{self.layout}]"),
            ("per core", bytes_text(self.bytes_per_core).strip()),
        ]
        if self.kept:
            facts.append(("kept", f"[{self.kept}] between steps"))
        return facts

    def _reasons(self) -> list[tuple[str, ...]]:
        return [(d.dimension, "+".join(d.axes) or "(whole)", d.why) for d in self.dimensions]

    def _sent_rows(self) -> list[tuple[str, ...]]:
        return [(bytes_text(s.bytes_sent), f"{s.times}", s.kind, "+".join(s.axes), s.reason) for s in self.sent]

    @property
    def _sent_title(self) -> str:
        if not self.sent:
            return "nothing was sent for it"
        return f"{bytes_text(self.bytes_sent).strip()} sent per core, in {counted(len(self.sent), 'collective')}"

    def __str__(self) -> str:
        lines = [f"{self.name} [{self.shape}] {self.dtype}"]
        lines += [f"  {name:<9} {text}" for name, text in self._facts()]
        if self.dimensions:
            lines += ["", "because", *table(_REASONS, self._reasons(), _WIDTH)]
        lines += ["", self._sent_title, *(table(_SENT, self._sent_rows(), _WIDTH) if self.sent else [])]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        titles = [c.title for c in _SENT]
        rows = [[cell.strip() for cell in row] for row in self._sent_rows()]
        return block(
            element("p", element("b", f"{self.name} [{self.shape}] {self.dtype}")),
            grid((), self._facts()),
            *([grid([c.title for c in _REASONS], self._reasons())] if self.dimensions else []),
            element("p", self._sent_title),
            *([grid(titles, rows, [c.is_number for c in _SENT])] if self.sent else []),
        )


_WIDTH = 160
_NEEDS_PROGRAM = """\
the layout of {x} depends on a mesh; give its program, mtf.debug.why(x, step), or ask when mtf.function has made it"""
_REASONS = (Column("dimension"), Column("mesh axes"), Column("because"))
_SENT = (Column("sent", True), Column("times", True), Column("kind"), Column("mesh axes"), Column("why"))


@says_where
def why(x: Tensor | str, on: Function | Lowering | None = None) -> Why:
    """Explains where a tensor is made, how it is laid out and why, and which collectives make or send it.

    Args:
      x: a tensor of a program, or its name: of its operation, variable or export, or its label in reports.
      on: the program, on its mesh. The default is the program that was lowered last from the tensor's graph.

    Raises:
      GraphError: the program has no such tensor.
      UsageError: there is no program.

    Examples:
      >>> def total(x):
      ...     return mtf.reduce_sum(mtf.with_layout(x, "hidden:rows"), reduced_dim="hidden", name="total")
      >>> two_cores = mtf.PlanMeshImpl("rows:2", "batch:rows")
      >>> step = mtf.function(total, two_cores, {"x": mtf.TensorSpec("batch:4 hidden:8")})
      >>> answer = mtf.debug.why("x", step)
      >>> answer.layout, answer.dimensions[0].why
      ('batch:4/rows hidden:8', 'rule "batch:rows"')
      >>> [(s.kind, s.reason) for s in mtf.debug.why(step.results).sent]
      [('reduce_scatter', 'to make it')]
    """
    if on is None and isinstance(x, Tensor):
        on = x.graph.last_lowering
    if on is None:
        raise UsageError(_NEEDS_PROGRAM.format(x=x))
    lowered = LoweredProgram.of(on)
    tensor, lowering = lowered.tensor(x), lowered.lowering
    layouts = lowering.layouts
    dimensions = layout_reasons(tensor, layouts)
    execution = lowering.execution(lowered.fetches)
    layout = lowering.layout_text(tensor)
    kept = execution.variable_layouts.get(tensor.name)
    kept_text = "" if kept is None else lowering.axis_parts.layout_joined(kept).to_string(tensor.shape)
    slice_ = layouts[tensor].slice_shape(tensor.shape, layouts.mesh_shape)
    size = tensor.dtype.size
    for n in slice_:
        size *= n
    return Why(
        name=tensor.name,
        shape=str(tensor.shape),
        dtype=tensor.dtype.name,
        label=tensor.operation.label,
        line=tensor.operation.site.place,
        layout=layout,
        bytes_per_core=size,
        dimensions=dimensions,
        kept=kept_text if kept_text != layout else "",
        sent=tuple(_sent_for(tensor, execution.plan, lowering)),
    )


def _sent_for(x: Tensor, plan: Plan, lowering: Lowering) -> Iterator[SentFor]:
    """Yields the collectives of the tensor's operation, and the collectives that send its results to others."""
    made = _made_by(x, plan)
    for collective, times in accounting.collectives(plan):
        for own in collective.members or (collective,):
            if own.operation is x.operation:
                reason = "to make it"
            elif own.input in made:
                reason = f"for {own.operation.label}, {own.operation.site.place}"
            else:
                continue
            axes = lowering.axis_parts.axes_joined(own.step.axes)
            yield SentFor(own.step.kind, axes, times, times * accounting.collective_bytes(own, plan), reason)


def _made_by(x: Tensor, plan: Plan) -> set[Value]:
    """Returns the values that the tensor's operation makes, and results of collectives on them."""
    made: set[Value] = set()
    for instruction, _ in walk(plan.instructions):
        own = instruction.operation is x.operation
        if own or (isinstance(instruction, Collective) and _any_in(instruction.inputs, made)):
            made.update(instruction.outputs)
    return made


def _any_in(values: Sequence[Value], known: set[Value]) -> bool:
    return any(value in known for value in values)
