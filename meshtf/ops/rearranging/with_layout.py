"""`with_layout` and `replicate`, which override a tensor's layout."""

from __future__ import annotations

from collections.abc import Sequence

from meshtf.call_sites import language_function
from meshtf.errors import LayoutError, nearest
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor, check_tensor
from meshtf.layout import LayoutLike, LayoutRules, TensorLayout, check_tensor_layout, convert_to_layout_rules
from meshtf.planning.layouts.layout_table import LayoutTable, ResolvedLayout
from meshtf.planning.planner import Planner


class WithLayoutOperation(Operation):
    """x in another layout: that of the rules, of an override, or of another tensor."""

    passes_pending_sums = True
    takes_any_layout = True
    takes_padding = True

    def __init__(self, x: Tensor, rules: LayoutRules | None, like: Tensor | None = None) -> None:
        super().__init__([x], [(x.shape, x.dtype)], name="with_layout")
        self._rules = rules
        self._like = like
        self.overrides_layout = rules is not None or (like is not None and like.is_overridden)

    @property
    def override(self) -> LayoutRules | None:
        """The rules of the override; None if the layout is that of the program's rules or of another tensor."""
        return self._rules

    @property
    def axes(self) -> tuple[str, ...]:
        """The mesh axes that the override names."""
        return () if self._rules is None else tuple(axis for _, axes in self._rules.rules for axis in axes)

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        return [with_layout_of(check_tensor(grad_ys[0]), self.inputs[0])]

    def output_layouts(self, layouts: LayoutTable) -> Sequence[ResolvedLayout]:
        (x,) = self.inputs
        if self._like is not None:
            return [layouts.resolved(self._like)]
        if self._rules is None:
            return [layouts.under_rules(x.shape)]
        return [ResolvedLayout(self._overridden(layouts), is_overridden=True)]

    def _overridden(self, layouts: LayoutTable) -> TensorLayout:
        assert self._rules is not None
        (x,) = self.inputs
        mesh_shape, taken_apart = layouts.whole_mesh_shape, layouts.axis_parts.axes_taken_apart
        known = layouts.axis_parts.named(mesh_shape).dimension_names
        taken = {a for name, axes in self._rules.rules if x.shape.has(name) for a in axes}
        for axis in taken - set(known):
            raise LayoutError(
                f'the override names mesh axis "{axis}", which mesh [{mesh_shape}] does not have{nearest(axis, known)}'
            )
        rules, taken = {n: taken_apart(axes) for n, axes in self._rules.rules}, set(taken_apart(tuple(taken)))
        own = layouts[x].axes if self._rules.rules else ((),) * x.shape.ndims
        axes = tuple(
            rules.get(d.name, tuple(a for a in kept if a not in taken)) for d, kept in zip(x.shape, own, strict=True)
        )
        check_tensor_layout(TensorLayout(axes), x.shape, layouts.mesh_shape, layouts.max_padding)
        return layouts.effective(TensorLayout(axes))

    def lower(self, planner: Planner) -> None:
        (value,) = planner.read_operands_as_they_are(self, fill=None)
        planner.write(self.outputs[0], value)


@language_function
def with_layout(x: Tensor, layout: LayoutLike | None) -> Tensor:
    """x with a split that overrides the rules: `with_layout(x, "expert:rows")`. None returns to the rules.

    The named dimensions are split as given. The others keep their split, except over a mesh axis that a named dimension
    uses. Results that are computed from x inherit the layout, dimension by dimension.

    Raises:
      LayoutError: x has no such dimension.

    Examples:
      >>> mtf.with_layout(x, "hidden:cols")
      with_layout [batch:4 hidden:8] float32
    """
    check_tensor(x)
    if layout is None:
        return WithLayoutOperation(x, None).outputs[0]
    rules = convert_to_layout_rules(layout)
    if rules.places:
        raise LayoutError(f'with_layout is for one tensor; leave the place "{rules.places[0][0]}" out of its rules')
    for name, _ in rules.rules:
        if not x.shape.has(name):
            raise LayoutError(f'no dimension "{name}" in [{x.shape}]{nearest(name, x.shape.dimension_names)}')
    return WithLayoutOperation(x, rules).outputs[0]


@language_function
def replicate(x: Tensor) -> Tensor:
    """x, whole on every core.

    Examples:
      >>> mtf.replicate(x)
      with_layout [batch:4 hidden:8] float32
    """
    return WithLayoutOperation(check_tensor(x), LayoutRules(())).outputs[0]


def with_layout_of(x: Tensor, like: Tensor) -> Tensor:
    """x in the layout of `like`, which has the same shape."""
    return WithLayoutOperation(x, None, like).outputs[0]
