"""Draws the parts of random programs. Whatever is drawn is legal: a step that would not be is taken back."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
import string
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DtypeError, LayoutError, ShapeError
from meshtf.layout import LayoutRules
from meshtf.ops.algebra.broadcasting import union
from meshtf.planning.layouts.layout_table import LayoutTable
from tests.properties.random_programs.program import Node, Program, Reference, Step
from tests.properties.random_programs.roundings import shows_mistakes

LARGEST = 1500  # elements of a tensor
MOST_DIMENSIONS = 7  # TensorFlow's slices have at most 8, and a reshape on its way may have one more than its ends
_LARGEST_VALUE = 60.0

Accepts = Callable[[np.ndarray], bool]


class RejectedError(Exception):
    """What was drawn is not a good step; it is taken back and another drawn."""


class DrawingError(AssertionError):
    """A step could not be built, or its reference does not fit. The message has the program so far."""


@dataclasses.dataclass(frozen=True)
class Space:
    """What programs are drawn over.

    Attributes:
      dtypes: of floating, or complex, tensors, each as often as it stands here.
      integers: the same of integers.
      small: a share of dimensions that have size 0 or 1, whatever the mesh is.
      any_size: whether sizes are any from 1 to 13, and split over any axes, whether these divide them or not.
    """

    dtypes: tuple[tf.DType, ...] = (*[tf.float32] * 14, *[tf.float64] * 3, *[tf.bfloat16] * 2, tf.float16)
    integers: tuple[tf.DType, ...] = (tf.int32, tf.int64)
    small: float = 0.0
    any_size: bool = False

    @property
    def max_padding(self) -> float:
        return 1.0 if self.any_size else 0.0

    @property
    def is_refused_nothing(self) -> bool:
        """Whether all that is drawn is legal for the dtypes."""
        return self.dtypes == USUAL.dtypes


USUAL = Space()
WIDE = Space(
    (*[tf.float32] * 10, *[tf.float64] * 3, *[tf.bfloat16] * 2, tf.float16, *[tf.complex64] * 3, tf.complex128),
    (*[tf.int32] * 6, *[tf.int64] * 4, tf.int8, tf.int16, tf.uint8, tf.uint16, tf.uint32, tf.uint64),
    0.08,
)
"""Every dtype. What has no meaning for one is refused by the language, and then not drawn."""
ANY_SIZE = dataclasses.replace(USUAL, any_size=True)
WIDE_ANY_SIZE = dataclasses.replace(WIDE, any_size=True)


def chance(rng: random.Random, probability: float) -> bool:
    """By an integer: hypothesis draws floats with a bias towards special ones."""
    return rng.randrange(1000) < 1000 * probability


class Builder:
    """Grows a program step by step. All randomness is in `rng`, which hypothesis may drive."""

    def __init__(
        self, rng: random.Random, mesh: mtf.Mesh, mesh_shape: mtf.Shape, prefix: str = "", space: Space = USUAL
    ) -> None:
        self.rng = rng
        self.space = space
        self.mesh = mesh
        self.mesh_shape = mesh_shape
        self.program = Program(mesh.graph, max_padding=space.max_padding, first_operation=len(mesh.graph.operations))
        self.dtype = rng.choice(space.dtypes)
        self._prefix = prefix
        self._names = (f"{prefix}{letter}{n or ''}" for n in itertools.count() for letter in string.ascii_lowercase)
        self._table = LayoutTable(mesh_shape, LayoutRules(()), max_padding=space.max_padding)
        self._others = set(mesh.graph.operations)  # those of other programs may need more padding than this one's
        self._resolved = len(self._others)
        self.dims = [self.new_dim() for _ in range(4)]

    def chance(self, probability: float) -> bool:
        return chance(self.rng, probability)

    # Dimensions and shapes

    def size(self) -> int:
        """A size that splits over some of the mesh axes into odd slices, or over none."""
        if self.space.small and self.chance(self.space.small):
            return self.rng.choice([0, 1])
        if self.space.any_size:
            return self.rng.randint(1, 13)
        axes = [a.size for a in self.mesh_shape if self.chance(0.6)]
        slices = [s for s in (1, 2, 3, 5, 7) if math.prod(axes) * s <= 64]
        return math.prod(axes) * self.rng.choice(slices or [1])

    def new_dim(self, size: int | None = None) -> mtf.Dimension:
        """A dimension whose name is not used yet."""
        return mtf.Dimension(next(self._names), self.size() if size is None else size)

    def shape(self, least: int = 0, most: int = 3) -> mtf.Shape:
        """Distinct dimensions of the program, in any order, not too many elements."""
        dims = list(self.dims)
        self.rng.shuffle(dims)
        chosen: list[mtf.Dimension] = []
        for dim in dims[: self.rng.randint(max(least, 1), most)]:
            if math.prod(d.size or 1 for d in chosen) * dim.size <= LARGEST:
                chosen.append(dim)
        if len(chosen) < least:
            raise RejectedError
        return mtf.Shape([] if least == 0 and self.chance(0.1) else chosen)

    def union(self, shapes: Sequence[mtf.Shape]) -> mtf.Shape:
        """All dimensions. Rejects what the language refuses: one name with two sizes, which a concat leaves behind."""
        try:
            return union(shapes)
        except ShapeError:
            raise RejectedError from None

    # Tensors

    def integer(self) -> tf.DType:
        return self.rng.choice(self.space.integers)

    def indices(self, size: int) -> Node:
        """Positions along a dimension, some out of range, and some as far out as numbers go."""
        dtype = self.integer()
        node = self.fresh(self.shape(0, 2), dtype, -2, size + 1)
        if self.chance(0.8) or not node.shape.size:
            return node
        limits = np.iinfo(dtype.as_numpy_dtype)
        array = node.array.astype(dtype.as_numpy_dtype)
        array.flat[self.rng.randrange(array.size)] = self.rng.choice([limits.min, min(limits.max, np.iinfo("i8").max)])
        self.program.feeds[node.tensor.operation.name] = array
        node.value = wide(array)
        return node

    def fresh(self, shape: mtf.Shape, dtype: tf.DType, low: float = -1.5, high: float = 1.5) -> Node:
        """A new input, sometimes of few distinct values so that there are ties."""
        array = self.array(shape, dtype, low, high)
        name = f"{self._prefix}x{len(self.program.nodes)}"
        tensor = mtf.placeholder(self.mesh, shape, dtype, name)
        self.program.feeds[tensor.operation.name] = array
        return self.known(tensor, array)

    def known(self, tensor: mtf.Tensor, array: np.ndarray) -> Node:
        """A node of a tensor whose value is known without a step."""
        node = Node(tensor, wide(array), is_exact=True, is_input=True, is_differentiable=has_gradient(tensor.dtype))
        self.program.nodes.append(node)
        return node

    def array(self, shape: mtf.Shape, dtype: tf.DType, low: float, high: float) -> np.ndarray:
        numbers = np.random.default_rng(self.rng.randrange(1 << 16))
        size = shape.to_integer_list
        if dtype == tf.bool:
            return numbers.integers(0, 2, size).astype(bool)
        if dtype.is_integer:
            low = max(low, 0) if dtype.is_unsigned else low
            return numbers.integers(math.ceil(low), math.floor(high) + 1, size).astype(dtype.as_numpy_dtype)
        if dtype.is_complex:
            return (numbers.uniform(low, high, size) + 1j * numbers.uniform(low, high, size)).astype(
                dtype.as_numpy_dtype
            )
        values = numbers.uniform(low, high, size)
        if self.chance(0.25):
            values = np.clip(np.round(values * 2) / 2, math.ceil(low * 2) / 2, math.floor(high * 2) / 2)
        return values.astype(dtype.as_numpy_dtype)

    def pick(
        self,
        dtype: tf.DType | None = None,
        least: int = 0,
        low: float = -1.5,
        high: float = 1.5,
        accepts: Callable[[Node], bool] | None = None,
    ) -> Node:
        """A tensor of the program that fits, or a new input whose values are between `low` and `high`."""
        wanted = dtype or self.dtype
        found = [
            n
            for n in self.program.nodes[-6:]
            if n.tensor.dtype == wanted and n.shape.ndims >= least and (accepts is None or accepts(n))
        ]
        if found and self.chance(0.75):
            return self.rng.choice(found)
        return self.fresh(self.shape(least), wanted, low, high)

    # Steps

    def step(
        self,
        text: str,
        inputs: Sequence[Node],
        outputs: mtf.Tensor | Sequence[mtf.Tensor],
        reference: Reference,
        *,
        is_exact: bool = False,
        turns: int = 1,
        factors: int = 1,
    ) -> list[Node]:
        """Adds what was built. `is_exact`: it moves values and computes none, so exact stays exact."""
        tensors = [outputs] if isinstance(outputs, mtf.Tensor) else list(outputs)
        if any(t is x.tensor for t in tensors for x in inputs):
            raise RejectedError
        if any(t.size > LARGEST or t.shape.ndims > MOST_DIMENSIONS for t in tensors):
            raise RejectedError
        results = reference(*(x.value for x in inputs))
        results = list(results) if isinstance(results, list | tuple) else [results]
        moved = is_exact and all(x.is_exact for x in inputs)
        # Integers and truth values that hang on rounding are never drawn.
        nodes = [Node(t, r, moved or not has_gradient(t.dtype)) for t, r in zip(tensors, results, strict=True)]
        for node in nodes:
            self._check_value(node, text)
        self._check_layout()
        self.program.nodes += nodes
        written = f"{text}({', '.join(x.tensor.name for x in inputs)})"
        self.program.steps.append(Step(written, inputs, nodes, reference, turns, factors))
        if not shows_mistakes(self.program):
            raise RejectedError
        return nodes

    def attempt(self, case: Callable[[Builder], Any]) -> bool:
        """Whether a case found a good step. Of one that did not, nothing is left.

        Nor is what the language refuses of unusual dtypes, or of dimensions of size 0.
        """
        program, graph = self.program, self.mesh.graph
        counts = len(graph.operations), len(program.nodes), len(program.steps)
        before = dict(graph.variables), dict(program.feeds), dict(program.variables)
        try:
            case(self)
            return len(program.steps) > counts[2]
        except (RejectedError, DtypeError, ShapeError) as error:
            if isinstance(error, DtypeError) and self.space.is_refused_nothing:
                raise
            if isinstance(error, ShapeError) and all(math.prod(n.shape.to_integer_list) for n in program.nodes):
                raise
            del graph.operations[counts[0] :], program.nodes[counts[1] :], program.steps[counts[2] :]
            graph.variables, program.feeds, program.variables = before
            self._resolved = min(self._resolved, counts[0])
            return False

    def _check_value(self, node: Node, text: str) -> None:
        got, expected = node.value.shape.as_list(), node.shape.to_integer_list
        assert got == expected, f"the reference of {text} gives {got}, the language [{node.shape}]"
        if has_gradient(node.value.dtype) and not np.all(np.abs(node.array) < _LARGEST_VALUE):
            raise RejectedError
        # The reference computes in int64: a program that overflows the tensor's own type says nothing.
        if node.tensor.dtype.is_integer:
            limits = np.iinfo(node.tensor.dtype.as_numpy_dtype)
            if np.any((node.array < limits.min) | (node.array > min(limits.max, np.iinfo("i8").max))):
                raise RejectedError

    def _check_layout(self) -> None:
        """Overrides must agree among themselves, whatever the rules."""
        operations = self.mesh.graph.operations
        try:
            self._table.resolve([*self._shared(operations[self._resolved :]), *operations[self._resolved :]])
        except LayoutError:
            raise RejectedError from None
        self._resolved = len(operations)

    def _shared(self, operations: Sequence[mtf.Operation]) -> list[mtf.Operation]:
        """Operations of other programs that these read for the first time, such as the count of steps."""
        read = {x.operation: None for operation in operations for x in operation.inputs}
        found = [operation for operation in read if operation in self._others]
        self._others.difference_update(found)
        return [*self._shared(found), *found] if found else []


def wide(array: Any) -> tf.Tensor:
    """An array in the precision of the reference."""
    array = np.asarray(array)
    if array.dtype == bool:
        return tf.constant(array)
    if np.iscomplexobj(array):
        return tf.constant(array.astype(np.complex128))
    is_integer = np.issubdtype(array.dtype, np.integer)
    return tf.constant(array.astype(np.int64 if is_integer else np.float64))


def wide_dtype(dtype: tf.DType) -> tf.DType:
    """That of the reference's numbers for a tensor's."""
    if dtype.is_complex:
        return tf.complex128
    return tf.float64 if dtype.is_floating else tf.int64 if dtype.is_integer else dtype


def has_gradient(dtype: tf.DType) -> bool:
    """Whether its numbers are rounded, and gradients flow through them."""
    return dtype.is_floating or dtype.is_complex


def is_clear_of(node: Node, distance: Callable[[np.ndarray], np.ndarray]) -> bool:
    """Whether no element lies so near to a jump that rounding could carry it across."""
    if node.is_exact:
        return True
    gap = 0.05 if node.tensor.dtype.size == 2 else 1e-3
    return bool(np.all(distance(node.array) > gap))
