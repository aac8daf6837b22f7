"""Random rules, read box by box, against NumPy; and how much is read at a time."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from meshtf.checkpoint._box import Box
from meshtf.checkpoint.conversion.axes import Axes
from meshtf.checkpoint.conversion.converted import ConvertedSource, Sizes
from meshtf.checkpoint.conversion.rule import placed, rules_of
from meshtf.checkpoint.conversion.tied_tensors import WithoutCopies
from meshtf.checkpoint.formats.tensor_source import described
from meshtf.checkpoint.manifest import SavedTensor

SIZES = {"a": 2, "b": 3, "c": 4, "d": 5}


@dataclasses.dataclass
class Arrays:
    """A source of arrays, that knows the largest part that was read at a time."""

    arrays: Mapping[str, np.ndarray]
    largest: int = 0
    step: int = 7
    state: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def tensors(self) -> dict[str, SavedTensor]:
        return {name: described(x.shape, tf.as_dtype(x.dtype)) for name, x in self.arrays.items()}

    def read(self, name: str, box: Box | None = None) -> tf.Tensor:
        part = self.arrays[name] if box is None else self.arrays[name][box.slices]
        self.largest = max(self.largest, part.size)
        return tf.constant(part)


@dataclasses.dataclass
class CountedArrays(Arrays):
    """Such a source that counts how often it was asked for all its tensors."""

    listings: int = 0

    @property
    def tensors(self) -> dict[str, SavedTensor]:
        self.listings += 1
        return super().tensors


def test_tensors_are_listed_a_few_times_however_many_there_are() -> None:
    """Each listing takes as long as there are tensors: one for each of them would take hours for a large model."""
    source = CountedArrays({f"w.{number}": np.zeros(2) for number in range(1000)})
    single = WithoutCopies.of(source, {"w.1": "w.0", "w.2": "none"}, "")
    assert len(single.tensors) == 999
    assert "w.1" not in single.tensors
    assert "none" in single.tensors
    assert source.listings < 10


def random_side(generator: np.random.Generator, prefix: str) -> tuple[str, str]:
    """A name and axes: each of a, b, c, d in the name, alone, or in a group."""
    axes = list(generator.permutation(list(SIZES)))
    named = axes[: generator.integers(0, 3)]
    rest = [axis for axis in axes if axis not in named]
    groups: list[str] = []
    while rest:
        count = int(generator.integers(1, len(rest) + 1))
        taken, rest = rest[:count], rest[count:]
        groups.append(taken[0] if count == 1 else f"({' '.join(taken)})")
    if generator.integers(3) == 0:
        groups.insert(0, "1")
    return prefix + "".join(f".{{{axis}}}" for axis in named), " ".join(groups)


def in_order(arrays: Mapping[str, np.ndarray], name: str, axes: str) -> np.ndarray:
    """The tensors of a side as one array over a, b, c, d."""
    named = [axis for axis in SIZES if f"{{{axis}}}" in name]
    parsed = Axes.parse(axes)
    whole = np.empty([SIZES[axis] for axis in (*named, *parsed.names)], np.int64)
    for numbers in np.ndindex(*(SIZES[axis] for axis in named)):
        own = name.format(**dict(zip(named, numbers, strict=True)))
        whole[numbers] = arrays[own].reshape([SIZES[axis] for axis in parsed.names])
    order = [*named, *parsed.names]
    return whole.transpose([order.index(axis) for axis in SIZES])


@pytest.mark.parametrize("seed", range(40))
def test_every_part_of_every_tensor_is_what_the_axes_say(seed: int) -> None:
    generator = np.random.default_rng(seed)
    (there, there_axes), (here, here_axes) = random_side(generator, "x"), random_side(generator, "y")
    (rule,) = rules_of({"rules": f"{there} [{there_axes}] = {here} [{here_axes}]"})
    shape = rule.there.axes.shape(SIZES)
    names = list(rule.there.names({}, SIZES, {}))
    source = Arrays({name: generator.integers(0, 10**6, shape) for name in names})
    made = ConvertedSource(source, [(rule.there, rule.here)], Sizes(SIZES, {}))
    made.check("the source", "")
    values = {name: made.read(name).numpy() for name in made.tensors}
    np.testing.assert_array_equal(in_order(values, here, here_axes), in_order(source.arrays, there, there_axes))
    for name, tensor in made.tensors.items():
        start = [int(generator.integers(0, n)) for n in tensor.shape]
        size = [int(generator.integers(1, n - s + 1)) for n, s in zip(tensor.shape, start, strict=True)]
        box = Box(tuple(start), tuple(size))
        np.testing.assert_array_equal(made.read(name, box), values[name][box.slices])


JOINED = """
w [b (+ a c)] = x [c b a]
w [b (+ d)] = y [d b]
w [b (+ c)] = z [b c]
u [(a + c d) b] = p [a c d b]
u [(a + d) b] = q [b a d]
u [(a + c) b] = r [c a b]
"""


@pytest.mark.parametrize("seed", range(4))
def test_parts_of_unequal_size_are_cut_and_joined(seed: int) -> None:
    """`w` is [b, a·c + d + c]; `u` has for each place of `a` parts of c·d, d and c rows."""
    generator = np.random.default_rng(seed)
    rules = placed(rules_of({"rules": JOINED}), SIZES)
    shapes = {"x": "c b a", "y": "d b", "z": "b c", "p": "a c d b", "q": "b a d", "r": "c a b"}
    here = {name: generator.normal(size=[SIZES[axis] for axis in axes.split()]) for name, axes in shapes.items()}
    w = np.concatenate([here["x"].transpose(1, 2, 0).reshape(3, 8), here["y"].T, here["z"]], 1)
    rows = [here["p"].reshape(2, 20, 3), here["q"].transpose(1, 2, 0), here["r"].transpose(1, 0, 2)]
    there = {"w": w, "u": np.concatenate(rows, 1).reshape(-1, 3)}
    for source, expected, sides in (
        (there, here, [(rule.there, rule.here) for rule in rules]),
        (here, there, [(rule.here, rule.there) for rule in rules]),
    ):
        made = ConvertedSource(Arrays(source), sides, Sizes(SIZES, {}))
        made.check("the arrays", "")
        assert {name: tensor.shape for name, tensor in made.tensors.items()} == {
            n: v.shape for n, v in expected.items()
        }
        for name, value in expected.items():
            np.testing.assert_array_equal(made.read(name), value)
            start = [int(generator.integers(size)) for size in value.shape]
            size = [int(generator.integers(1, n - s + 1)) for s, n in zip(start, value.shape, strict=True)]
            box = Box(tuple(start), tuple(size))
            np.testing.assert_array_equal(made.read(name, box), value[box.slices])


def test_a_joined_tensor_lacks_a_part() -> None:
    rules = placed(rules_of({"rules": JOINED}), SIZES)
    made = ConvertedSource(Arrays({"w": np.zeros([3, 16])}), [(r.there, r.here) for r in rules[:3]], Sizes(SIZES, {}))
    assert made.other_form == ["w is [3, 16], and must be [3, 17]"]


def test_of_the_source_only_what_a_part_needs_is_read() -> None:
    (rule,) = rules_of({"rules": "kernel [(b c) a] = {b} [c a]"})
    source = Arrays({"kernel": np.arange(24).reshape(12, 2)})
    made = ConvertedSource(source, [(rule.there, rule.here)], Sizes(SIZES, {}))
    assert list(made.tensors) == ["0", "1", "2"]
    assert made.step == 7
    np.testing.assert_array_equal(made.read("1"), source.arrays["kernel"][4:8])
    assert source.largest == 8


def test_floating_tensors_are_cast_and_others_are_not() -> None:
    rules = rules_of({"rules": "w [a] = v\nn [a] = m"})
    source = Arrays({"w": np.array([1.5, 2.5], np.float32), "n": np.array([1, 2], np.int32)})
    sides = [(rule.there, rule.here) for rule in rules]
    made = ConvertedSource(source, sides, Sizes(SIZES, {}), tf.bfloat16)
    assert {name: tensor.dtype for name, tensor in made.tensors.items()} == {"v": tf.bfloat16, "m": tf.int32}
    assert made.read("v").dtype == tf.bfloat16
    assert made.read("m").dtype == tf.int32
