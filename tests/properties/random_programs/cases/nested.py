"""Cases of loops in branches in loops: a tree of functions, drawn once, in the language and in TensorFlow."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import tensorflow as tf

import meshtf as mtf
from tests.properties.random_programs.builder import Builder, RejectedError
from tests.properties.random_programs.cases.elementwise import Case
from tests.properties.random_programs.program import Node, spread

_POLICIES = [None, True, "products", "nested"]
_MOST_TURNS = 3


@dataclasses.dataclass(frozen=True)
class Piece:
    """A function of a tensor and of the number of its turn, to a tensor of the same shape.

    reference: takes the values of what all pieces capture as well.
    turns: of a leaf, one after the other; so many at most.
    """

    text: str
    ours: Callable[[mtf.Tensor, mtf.Tensor], mtf.Tensor]
    reference: Callable[[tf.Tensor, int, Sequence[tf.Tensor]], tf.Tensor]
    turns: int = 1


class Tree:
    """Draws pieces inside pieces, all of tensors like one."""

    def __init__(self, b: Builder, x: Node) -> None:
        self.b, self.x = b, x
        self.captured: list[Node] = []

    def capture(self, shape: mtf.Shape, dtype: tf.DType, low: float, high: float) -> int:
        """A new input that pieces read from outside; returns its number."""
        self.captured.append(self.b.fresh(shape, dtype, low, high))
        return len(self.captured) - 1

    def piece(self, kinds: Sequence[str]) -> Piece:
        """A chain of pieces, each inside the one before; the innermost has a drawn leaf."""
        if not kinds:
            return self.b.rng.choice([self.sine, self.centred, self.mixed, self.weighted])()
        return getattr(self, kinds[0])(kinds[1:])

    def sine(self) -> Piece:
        shape = mtf.Shape([d for d in self.x.shape if self.b.chance(0.6)])
        at = self.capture(shape, self.x.tensor.dtype, -1, 1)
        other, names = self.captured[at], shape.dimension_names
        return Piece(
            "sine",
            lambda v, turn: mtf.sin(v) * 0.7 + other.tensor * 0.5,
            lambda p, turn, own: tf.sin(p) * 0.7 + spread(own[at], names, self.x.shape) * 0.5,
        )

    def centred(self) -> Piece:
        axis = self.b.rng.randrange(self.x.shape.ndims)
        return Piece(
            "centred",
            lambda v, turn: v - mtf.reduce_mean(v, reduced_dim=self.x.shape[axis]),
            lambda p, turn, own: p - tf.reduce_mean(p, axis, keepdims=True),
        )

    def mixed(self) -> Piece:
        at = self.capture(self.x.shape, self.x.tensor.dtype, -1, 1)
        other, scale = self.captured[at].tensor, 1.0 / max(1, self.x.shape.size)
        return Piece(
            "mixed",
            lambda v, turn: mtf.tanh(v) + mtf.reduce_sum(v * other) * scale,
            lambda p, turn, own: tf.tanh(p) + tf.reduce_sum(p * own[at]) * scale,
        )

    def weighted(self) -> Piece:
        return Piece(
            "weighted",
            lambda v, turn: v * (mtf.cast(turn, v.dtype) * 0.25 + 0.5),
            lambda p, turn, own: p * (turn * 0.25 + 0.5),
        )

    def loop(self, kinds: Sequence[str]) -> Piece:
        """As often as an input says, or a number known now."""
        inner, policy = self.piece(kinds), self.b.rng.choice(_POLICIES[:3])
        at = self.capture(mtf.Shape([]), tf.int32, 0, _MOST_TURNS)
        times, known = self.captured[at].tensor, int(self.captured[at].array)

        def ours(v: mtf.Tensor, turn: mtf.Tensor) -> mtf.Tensor:
            def body(n: mtf.Tensor, w: mtf.Tensor) -> list[mtf.Tensor]:
                return [n + 1, inner.ours(w, n)]

            start = mtf.zeros(v.mesh, [], tf.int32)
            return mtf.while_loop(lambda n, _: mtf.less(n, times), body, [start, v],
                                  maximum_iterations=_MOST_TURNS, recompute=policy)[1]  # fmt: skip

        def reference(p: tf.Tensor, turn: int, own: Sequence[tf.Tensor]) -> tf.Tensor:
            for n in range(known):
                p = inner.reference(p, n, own)
            return p

        return Piece(f"while_loop[{known}]({inner.text})", ours, reference, known * inner.turns)

    def scanned(self, kinds: Sequence[str]) -> Piece:
        """Along a new dimension of a captured tensor."""
        inner, dim = self.piece(kinds), self.b.new_dim(self.b.rng.choice([1, 2, 3, 4]))
        reverse, policy = self.b.chance(0.3), self.b.rng.choice(_POLICIES)
        kept = mtf.Shape([d for d in self.x.shape if self.b.chance(0.5)])
        at = self.capture(mtf.Shape([dim, *kept]), self.x.tensor.dtype, -0.5, 0.5)
        whole = self.captured[at].tensor

        def ours(v: mtf.Tensor, turn: mtf.Tensor) -> mtf.Tensor:
            def body(values: list[mtf.Tensor], parts: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
                return [inner.ours(values[0] + parts[0], parts[1])], []

            parts = [whole, mtf.range(v.mesh, dim, tf.int32)]
            return mtf.scan(body, v, parts, dim, reverse=reverse, recompute=policy)[0][0]

        def reference(p: tf.Tensor, turn: int, own: Sequence[tf.Tensor]) -> tf.Tensor:
            order = range(dim.size)
            for n in reversed(order) if reverse else order:
                p = inner.reference(p + spread(own[at][n], kept.dimension_names, self.x.shape), n, own)
            return p

        turns = dim.size * max(1, inner.turns)  # it adds a part in each
        return Piece(f"scan[{dim}, reverse={reverse}]({inner.text})", ours, reference, turns)

    def branch(self, kinds: Sequence[str]) -> Piece:
        """By the number of the turn, or by an input: what is inside on one side, a leaf on the other."""
        sides = [self.piece(kinds), self.piece(())]
        self.b.rng.shuffle(sides)
        first, second = sides
        if self.b.chance(0.5):
            at = self.capture(mtf.Shape([]), tf.bool, 0, 1)
            chosen = self.captured[at]
            known, text = bool(chosen.array), "an input"
        else:
            chosen, known, text = None, None, "odd turns"

        def ours(v: mtf.Tensor, turn: mtf.Tensor) -> mtf.Tensor:
            predicate = mtf.equal(mtf.mod(turn, 2), 1) if chosen is None else chosen.tensor
            return mtf.cond(predicate, lambda: first.ours(v, turn), lambda: second.ours(v, turn))[0]

        def reference(p: tf.Tensor, turn: int, own: Sequence[tf.Tensor]) -> tf.Tensor:
            is_first = turn % 2 == 1 if known is None else known
            return (first if is_first else second).reference(p, turn, own)

        turns = max(side.turns for side in ([first, second] if known is None else [first if known else second]))
        return Piece(f"cond[{text}]({first.text}, {second.text})", ours, reference, turns)

    def recomputed(self, kinds: Sequence[str]) -> Piece:
        inner, policy = self.piece(kinds), self.b.rng.choice(_POLICIES[1:3])

        def ours(v: mtf.Tensor, turn: mtf.Tensor) -> mtf.Tensor:
            return mtf.recompute_grad(lambda w: inner.ours(w, turn), v, policy)

        return Piece(f"recompute_grad({inner.text})", ours, inner.reference, inner.turns)


def nested(*kinds: str) -> Case:
    """Pieces of these kinds, each inside the one before; or, of none, of drawn ones."""

    def case(b: Builder) -> None:
        x = b.pick(least=1, accepts=lambda n: n.tensor.size <= 300)
        if b.dtype.is_complex or x.tensor.size > 300:
            raise RejectedError
        tree = Tree(b, x)
        drawn = [b.rng.choice(["loop", "scanned", "branch", "recomputed"]) for _ in range(b.rng.randint(2, 4))]
        piece = tree.piece(kinds or drawn)
        turn = mtf.zeros(b.mesh, [], tf.int32)
        z = piece.ours(x.tensor, turn)
        b.step(piece.text, [x, *tree.captured], z, lambda p, *own: piece.reference(p, 0, own), turns=piece.turns)

    return case


CASES: dict[str, Case] = {
    "loop in branch in loop": nested("loop", "branch", "loop"),
    "scan in branch in scan": nested("scanned", "branch", "scanned"),
    "branch in loop in branch": nested("branch", "loop", "branch"),
    "recomputed loop in scan": nested("scanned", "recomputed", "loop"),
    "drawn nesting": nested(),
}
