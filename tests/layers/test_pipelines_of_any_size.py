"""Pipelines of drawn sizes give what the plain stack gives on one core, forward and back, or say why they do not."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

import meshtf as mtf
from meshtf.errors import LayoutError, ShapeError
from meshtf.layers import PipelineSchedule, pipeline
from meshtf.testing import FUNCTION_TERMS, assert_close, interpret, largest, plan

LARGEST = 13
Arrays = dict[str, tuple[list[mtf.Dimension], np.ndarray]]


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Of a batch, layers [d_model, d_ff], a schedule, and the number of parts of each dimension that is split."""

    batch: int
    d_model: int
    d_ff: int
    layers: int
    schedule: PipelineSchedule
    parts: tuple[tuple[str, int], ...]

    @property
    def mesh_shape(self) -> str:
        return ";".join(f"of_{name}:{n}" for name, n in self.parts)

    @property
    def layout(self) -> str:
        return ";".join(f"{name}:of_{name}" for name, _ in self.parts)

    def of(self, name: str) -> list[int]:
        """The sizes that a dimension has: that of the batch is also a micro-batch's."""
        if name == "batch":
            return [self.batch, self.batch // self.schedule.num_microbatches]
        return [self.schedule.num_stages if name == "stage" else getattr(self, name)]

    @property
    def inputs(self) -> Arrays:
        """x, a scale of each example, and the gradient that comes from behind."""
        batch, d_model = mtf.Dimension("batch", self.batch), mtf.Dimension("d_model", self.d_model)
        generator = np.random.default_rng(0)
        shapes = {"x": [batch, d_model], "scale": [batch], "of_y": [batch, d_model]}
        return {n: (s, generator.normal(size=[d.size for d in s]).astype(np.float32)) for n, s in shapes.items()}

    @property
    def specs(self) -> dict[str, mtf.TensorSpec]:
        return {name: mtf.TensorSpec(shape) for name, (shape, _) in self.inputs.items()}

    def program(self, schedule: PipelineSchedule | None) -> Callable[..., list[mtf.Tensor | None]]:
        """Results, and gradients by both inputs and all weights; without a schedule, of the plain stack."""
        d_ff, layers = mtf.Dimension("d_ff", self.d_ff), mtf.Dimension("layers", self.layers)

        def layer(x: mtf.Tensor, scale: mtf.Tensor) -> mtf.Tensor:
            d_model = x.shape.get_dim_by_name("d_model")
            h = mtf.dropout(mtf.layers.dense(x, [d_ff], activation=mtf.tanh), True, rate=0.3)
            return x + mtf.layers.dense(h, [d_model], [d_ff], name="out") * scale

        def step(x: mtf.Tensor, scale: mtf.Tensor, of_y: mtf.Tensor) -> list[mtf.Tensor | None]:
            if schedule is None:
                y = mtf.layer_stack(lambda xs, _: ([layer(xs[0], scale)], []), x, layers)[0][0]
            else:
                (y,) = pipeline(lambda xs, beside: [layer(xs[0], beside[0])], x, layers, schedule, [scale])
            weights = [v.value for v in x.graph.trainable_variables]
            return [y, *mtf.gradients([y], [x, scale, *weights], [of_y])]

        return step

    def check(self, found: list[np.ndarray]) -> None:
        """Roundings: through the products of all layers and back, and a sum over the batch. Values on the way are of
        the size of 1 at least, and may cancel."""
        plain = interpret(self.program(None), self.inputs, "all:1").results
        terms = (2 * self.layers * (2 * self.d_model + self.d_ff + 4 * FUNCTION_TERMS), self.batch)
        assert len(found) == len(plain) == 7
        for i, (value, expected) in enumerate(zip(found, plain, strict=True)):
            magnitude = max(1.0, largest(expected))
            assert_close(value.reshape(expected.shape), expected, terms=terms, magnitude=magnitude, what=f"result {i}")


def fits(size: int, parts: int) -> bool:
    """Whether at most a third of what the parts hold is padding."""
    held = -(-size // parts) * parts
    return 3 * (held - size) <= held


@st.composite
def sizes(draw: st.DrawFn, most_cores: int = 16) -> Sizes:
    """Of which none is refused: micro-batches divide the batch, and where rounds are several, stages divide these."""
    rounds = draw(st.sampled_from([1, 1, 2]))
    stages = draw(st.integers(1, LARGEST // rounds))
    layers = stages * rounds * draw(st.integers(1, LARGEST // (stages * rounds)))
    together = stages if rounds > 1 else 1
    microbatches = together * draw(st.integers(1, LARGEST // together))
    batch = microbatches * draw(st.integers(1, LARGEST // microbatches))
    d_model, d_ff = draw(st.integers(1, LARGEST)), draw(st.integers(1, LARGEST))
    drawn = Sizes(batch, d_model, d_ff, layers, PipelineSchedule(stages, microbatches, rounds), ())
    parts, left = [], most_cores
    for name in ("stage", "batch", draw(st.sampled_from(["d_model", "d_ff"]))):
        counts = [n for n in range(1, min(left, 4) + 1) if all(fits(size, n) for size in drawn.of(name))]
        parts.append((name, draw(st.sampled_from(counts[::-1]))))  # the simplest example is the one of most parts
        left //= parts[-1][1]
    return dataclasses.replace(drawn, parts=tuple(parts))


def check_on_devices(drawn: Sizes) -> None:
    mesh_impl = mtf.SpmdMeshImpl(drawn.mesh_shape, drawn.layout)
    step = mtf.function(drawn.program(drawn.schedule), mesh_impl, inputs=drawn.specs, seed=0)
    drawn.check([np.asarray(value) for value in step(**{name: array for name, (_, array) in drawn.inputs.items()})])


@settings(deadline=None, phases=[Phase.explicit])
@example(Sizes(9, 7, 5, 6, PipelineSchedule(3, 3, 2), (("stage", 2), ("batch", 2))))
@given(sizes(most_cores=4))
def test_a_pipeline_of_any_size_is_the_plain_stack(drawn: Sizes) -> None:
    check_on_devices(drawn)


@pytest.mark.long
@settings(deadline=None, max_examples=20)
@given(sizes())
def test_many_pipelines_of_any_size_are_the_plain_stack(drawn: Sizes) -> None:
    check_on_devices(drawn)


@settings(deadline=None, max_examples=20)
@given(sizes(), st.data())
def test_sizes_of_micro_batches_and_rounds_are_refused_with_those_that_fit(drawn: Sizes, data: st.DataObject) -> None:
    stages = drawn.schedule.num_stages
    count = data.draw(st.integers(2, LARGEST + 1).filter(lambda n: drawn.batch % n))
    fitting = [n for n in range(1, drawn.batch + 1) if drawn.batch % n == 0]
    message = f'"batch:{drawn.batch}" does not divide into {count} micro-batches; these fit: {fitting}'
    with pytest.raises(ShapeError, match=re.escape(message)):
        plan(drawn.program(PipelineSchedule(stages, count)), drawn.specs, "all:1")
    if count % stages:
        below = count - count % stages
        nearest = [n for n in (below, below + stages) if n]
        taken = f"num_microbatches must be a multiple of num_stages, {stages}, and is {count}"
        with pytest.raises(ValueError, match=re.escape(f"{taken}; the nearest that fit: {nearest}; or use one round")):
            PipelineSchedule(stages, count, 2)


@settings(deadline=None, max_examples=20)
@given(sizes(), st.sampled_from(["stage", "batch", "d_ff"]), st.data())
def test_parts_that_would_be_padding_are_refused(drawn: Sizes, name: str, data: st.DataObject) -> None:
    """More than a third of it: with the dimension, its size, and the rule."""
    count = data.draw(st.integers(2, 32).filter(lambda n: not all(fits(size, n) for size in drawn.of(name))))
    size = next(size for size in drawn.of(name) if not fits(size, count))
    where = f'(rule "{name}:cores", mesh [cores:{count}])'
    message = f'dimension "{name}" of size {size} does not divide into {count} parts {where}'
    with pytest.raises(LayoutError, match=re.escape(message)):
        plan(drawn.program(drawn.schedule), drawn.specs, f"cores:{count}", f"{name}:cores")
