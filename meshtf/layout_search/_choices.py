"""The choices of layouts on a mesh: for each axis, the names of the dimensions that it splits.

A rule lists the axes that split one name. Seen from the axes, each axis of the mesh has a set of names. On
"rows:2;cols:4", "batch:rows;d_ff:cols;vocab:cols" is {batch} for rows and {d_ff, vocab} for cols. No axis may split two
dimensions of one tensor. So a set of names is independent in the graph whose nodes are names, with an edge between two
names of one tensor. The maximal sets, to which no name can be added, are the maximal cliques of the complement graph.
There are few of them, although there are many rules.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import networkx

from meshtf.control_flow.loops.loop import LoopOperation
from meshtf.dimension import Shape
from meshtf.graph.blocks import with_nested
from meshtf.graph.graph import Graph
from meshtf.layout import LayoutRules, padding_share

_MOST_PADDING = 1 / 8
"""The largest share of padding along a dimension. A layout with more is not worth trying."""

_MOST_SETS = 64
"""The most maximal sets, to which no name can be added, that are tried for one axis."""

MOST_LAYOUTS = 2000
"""The most layouts that are all priced. If there are more, they are searched."""

Names = frozenset[str]
SetsByAxis = tuple[Names, ...]
"""The names that each axis of the mesh splits."""

NO_NAMES: Names = frozenset()


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """A layout as sets of names, one for each axis of the mesh.

    Attributes:
      layout: the layout of all tensors.
      parameters: the layout of parameters between steps. None: the same as `layout`.
      activations: the layout, in place of `layout`, of tensors with a dimension that no variable has.
    """

    layout: SetsByAxis
    parameters: SetsByAxis | None = None
    activations: SetsByAxis = ()


class NamesOfShapes:
    """The dimension names of some tensors, their sizes, and which names occur together in one tensor."""

    def __init__(self, shapes: Iterable[Shape], mesh_shape: Shape) -> None:
        self.mesh_shape = mesh_shape
        self.sizes: dict[str, set[int]] = {}
        self.beside: dict[str, set[str]] = {}
        weights: dict[str, int] = {}
        counts = Counter(shapes)
        self._elements = {shape: count * shape.size for shape, count in counts.items()}
        for shape in counts:
            names = set(shape.dimension_names)
            for dim in shape:
                self.sizes.setdefault(dim.name, set()).add(dim.size)
                self.beside.setdefault(dim.name, set()).update(names - {dim.name})
                weights[dim.name] = max(weights.get(dim.name, 0), shape.size)
        self.names = sorted(self.sizes, key=lambda name: (-weights[name], name))
        """The names, starting with those of the largest tensors."""

    def fits(self, sets: SetsByAxis) -> bool:
        """Tells whether every size divides, with little padding at most, and no axis splits two dimensions of one
        tensor."""
        together = {name: self._cores(name, sets) for name in frozenset().union(*sets)}
        divides = all(self._divides(name, cores) for name, cores in together.items())
        return divides and not any(self.beside[name] & own for own in sets for name in own)

    def thinned(self, sets: SetsByAxis) -> SetsByAxis:
        """Removes names that too many axes would split, from the last of these axes. `fits` may hold for the result."""
        found: list[Names] = []
        for own in sets:
            left = frozenset(n for n in own if self._divides(n, self._cores(n, (*found, own))))
            found.append(left)
        return tuple(found)

    def share(self, names: Names) -> float:
        """Returns the share of all elements that are in tensors with one of the names."""
        own = sum(number for shape, number in self._elements.items() if names.intersection(shape.dimension_names))
        return own / max(1, sum(self._elements.values()))

    def names_for(self, axis: int) -> list[str]:
        """Returns the names whose dimensions the axis can split. An axis of size 1 splits none."""
        size = self.mesh_shape[axis].size
        return [name for name in self.names if self._divides(name, size)] if size > 1 else []

    def largest_sets(self, axis: int) -> list[Names]:
        """Returns sets of names for an axis to which no name can be added, in an order that depends only on the
        names.
        """
        names = self.names_for(axis)
        # The nodes are numbers, since Python goes through a set of texts in another order in each process.
        apart = networkx.Graph()
        apart.add_nodes_from(range(len(names)))
        pairs = itertools.combinations(range(len(names)), 2)
        apart.add_edges_from((a, b) for a, b in pairs if names[b] not in self.beside[names[a]])
        # Names that pairwise share no tensor are a clique of this graph, and the largest sets are its maximal cliques.
        found = map(sorted, itertools.islice(networkx.find_cliques(apart), _MOST_SETS))
        return [frozenset(names[n] for n in own) for own in sorted(found)]

    def all_sets(self, axis: int) -> Iterator[Names]:
        """Yields every set of names that an axis can split, the empty one first."""
        yield from self._extended(NO_NAMES, self.names_for(axis))

    def _extended(self, own: Names, left: list[str]) -> Iterator[Names]:
        if not left:
            yield own
            return
        name, *rest = left
        yield from self._extended(own, rest)
        if not self.beside[name] & own:
            yield from self._extended(own | {name}, rest)

    def with_name(self, own: Names, name: str) -> Names:
        """Returns the set with a name, and without the names that share a tensor with it."""
        return frozenset(n for n in own if n not in self.beside[name]) | {name}

    def _cores(self, name: str, sets: SetsByAxis) -> int:
        """Returns the number of cores along the axes that split the name. `sets` may have only the first few axes."""
        return math.prod(axis.size for axis, own in zip(self.mesh_shape, sets, strict=False) if name in own)

    def _divides(self, name: str, parts: int) -> bool:
        return all(padding_share(size, parts) <= _MOST_PADDING for size in self.sizes[name])


class Choices:
    """All choices for a program on a mesh.

    Args:
      graph: the graph of the program.
      mesh_shape: the shape of the mesh.
      kept: rules that every layout must have.
    """

    def __init__(self, graph: Graph, mesh_shape: Shape, kept: LayoutRules) -> None:
        self.mesh_shape = mesh_shape
        self._kept = dict(kept.rules)
        self._places = kept.places
        operations = list(with_nested(graph.operations))
        # Each iteration uses one position of a loop's dimension. If cores split it, most cores would be idle at any
        # time.
        loops = [o.spec for o in operations if isinstance(o, LoopOperation)]
        gone_through = {spec.dim.name for spec in loops} | {s.dim.name for spec in loops for s in spec.stacked}
        self._gone_through = gone_through - set(self._kept)
        shapes = [self.splittable(t.shape) for o in operations for t in o.outputs]
        variables = [self.splittable(t.shape) for o in graph.variables.values() for t in o.outputs]
        named = frozenset(d.name for shape in variables for d in shape)
        self.all = NamesOfShapes(shapes, mesh_shape)
        self.parameters = NamesOfShapes(variables, mesh_shape)
        self.activations = NamesOfShapes(
            [shape for shape in shapes if any(d.name not in named for d in shape)], mesh_shape
        )

    def splittable(self, shape: Shape) -> Shape:
        """Returns the shape without the dimensions over which loops iterate."""
        return Shape([d for d in shape if d.name not in self._gone_through])

    def sets_of(self, names: NamesOfShapes, axis: int, *, largest: bool) -> list[Names]:
        """Returns the sets of names for one axis that agree with the kept rules."""
        own = self.mesh_shape[axis].name
        fixed = frozenset(name for name, axes in self._kept.items() if own in axes)
        others = frozenset(self._kept) - fixed
        found = names.largest_sets(axis) if largest else list(itertools.islice(names.all_sets(axis), MOST_LAYOUTS + 1))
        kept = [self._with_kept(names, each - others, fixed) for each in found]
        return list(dict.fromkeys([frozenset(fixed & set(names.names)), *kept]))

    def _with_kept(self, names: NamesOfShapes, own: Names, fixed: Names) -> Names:
        there = fixed & set(names.names)
        beside = frozenset(other for name in there for other in names.beside[name])
        return own - beside | there

    def may_move(self, name: str) -> bool:
        """Tells whether no kept rule is about the dimension."""
        return name not in self._kept

    def exchanged(self, choice: Choice, axis: int, other: int) -> Choice | None:
        """Returns the choice in which two axes exchange the names that they split.

        Returns None if the result does not fit, is the same choice, or would move a name that a kept rule splits.
        """
        order = [*range(self.mesh_shape.ndims)]
        order[axis], order[other] = other, axis

        def of(names: NamesOfShapes, sets: SetsByAxis) -> SetsByAxis | None:
            found = tuple(sets[n] for n in order)
            stays = all(self.may_move(name) for name in sets[axis] ^ sets[other])
            return found if stays and names.fits(found) else None

        layout = of(self.all, choice.layout)
        parameters = None if choice.parameters is None else of(self.parameters, choice.parameters)
        activations = of(self.activations, choice.activations) if choice.activations else ()
        if layout is None or activations is None or (parameters is None) != (choice.parameters is None):
            return None
        found = Choice(layout, parameters, activations)
        return None if found == choice else found

    def rules(self, sets: SetsByAxis) -> LayoutRules:
        """Converts sets of names to layout rules."""
        names = [name for name in self.all.names if any(name in own for own in sets)]
        split = {
            name: tuple(axis.name for axis, own in zip(self.mesh_shape, sets, strict=True) if name in own)
            for name in names
        }
        kept = {name: axes for name, axes in self._kept.items() if name in split or not axes}
        rules: Mapping[str, tuple[str, ...]] = split | kept
        return LayoutRules([*rules.items(), *self._places])
