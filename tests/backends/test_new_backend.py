"""A backend is one class: here one without devices, which runs plans on the interpreter."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.checkpoint import CheckpointFolder, restore
from meshtf.errors import NonFiniteError, UsageError
from meshtf.lowering.interpreter import Interpreter
from meshtf.mesh_impl.mesh_impl import MeshImpl, Program, ProgramAtOnce
from meshtf.mesh_impl.slices import Slices
from meshtf.planning.plan import Plan
from meshtf.planning.process_spans import ProcessOfCore
from meshtf.testing import assert_close


class InterpretedMeshImpl:
    """A mesh of any size in this process. Every array is on the host."""

    def __init__(self, shape: str, layout: str, options: mtf.MeshOptions) -> None:
        self.shape, self.layout_rules = mtf.convert_to_shape(shape), mtf.convert_to_layout_rules(layout)
        self.options = options

    @property
    def devices(self) -> tuple[str, ...]:
        return ("host",) * self.shape.size

    @property
    def process_of_core(self) -> ProcessOfCore:
        return ()

    @property
    def compiles_programs(self) -> bool:
        return False

    @property
    def unrolls_layers(self) -> bool:
        return False

    @property
    def kernel_platform(self) -> str:
        return ""

    @property
    def takes_arrays(self) -> bool:
        return False

    @property
    def steps_ahead(self) -> int:
        return 0

    @property
    def float32_products(self) -> str:
        return "float32"

    @property
    def peak_bytes(self) -> int | None:
        return None

    def check_runs(self, program: str) -> None:
        """Every program runs here."""

    def check_alike(self, program: str, texts: Callable[[], Mapping[str, str]]) -> None:
        """There is one process."""

    def zero_slices(self, name: str, slice_shape: Sequence[int], dtype: tf.DType) -> Slices:
        return {core: tf.Variable(tf.zeros(slice_shape, dtype)) for core in range(self.shape.size)}

    def program(self, plan: Plan, slices: Mapping[str, Slices], *, runs_once: bool = False) -> Program:
        def run(feeds: Sequence[tf.Tensor]) -> tuple[list[tf.Tensor], tf.Tensor]:
            interpreter = Interpreter(plan, {name: [s.numpy() for s in own.values()] for name, own in slices.items()})
            try:
                fetches = interpreter.run({f.name: x.numpy() for f, x in zip(plan.feeds, feeds, strict=True)})
            except NonFiniteError as error:
                fetched = [tf.zeros(value.shape.to_integer_list, value.dtype) for value in plan.fetches]
                return fetched, tf.constant([check.text for check in plan.checks].index(str(error)))
            for name, own in slices.items():
                for variable, array in zip(own.values(), interpreter.variables[name], strict=True):
                    variable.assign(array)
            return [tf.constant(x) for x in fetches], tf.constant(-1)

        return ProgramAtOnce(run)

    def step(self, program: str, plan: Plan) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def hlo(self, plan: Plan, program: str) -> None:
        return None


BATCH, D_MODEL, D_FF = mtf.Dimension("batch", 16), mtf.Dimension("d_model", 8), mtf.Dimension("d_ff", 32)
INPUTS = {"x": mtf.TensorSpec([BATCH, D_MODEL])}
X = np.linspace(-1, 1, 128, dtype=np.float32).reshape(16, 8)
TERMS = (D_MODEL.size, D_FF.size, X.size, D_MODEL.size, D_FF.size)
"""Of the two products, the mean, and the products of the gradients."""

OPTIONS = mtf.MeshOptions(parameter_layout="d_model:rows;d_ff:cols")


def train_step(x: mtf.Tensor) -> mtf.Tensor:
    h = mtf.layers.dense(x, [D_FF], activation=mtf.relu)
    loss = mtf.check_finite(mtf.reduce_mean(mtf.square(mtf.layers.dense(h, [D_MODEL]))))
    mtf.optimize.MomentumOptimizer(0.05, 0.9).minimize(loss)
    return loss


def trained_on(mesh_impl: MeshImpl) -> mtf.Function:
    return mtf.function(train_step, mesh_impl, inputs=INPUTS)


@pytest.fixture(scope="module")
def interpreted() -> mtf.Function:
    """After two steps on more cores than there are devices."""
    step = trained_on(InterpretedMeshImpl("rows:4;cols:4", "batch:rows;d_ff:cols", OPTIONS))
    for _ in range(2):
        step(x=X)
    return step


@pytest.fixture(scope="module")
def on_one_core() -> mtf.Function:
    step = trained_on(mtf.SpmdMeshImpl("rows:1;cols:1", ""))
    for _ in range(2):
        step(x=X)
    return step


def test_it_trains_as_one_core_does(interpreted: mtf.Function, on_one_core: mtf.Function) -> None:
    assert set(interpreted.variables) == set(on_one_core.variables)
    assert len(interpreted.variables.slices("dense/kernel").slices) == 16
    for name, value in on_one_core.variables.items():
        assert_close(interpreted.variables[name], value, terms=TERMS, steps=2, what=name)
    losses = [step(x=X).numpy() for step in (interpreted, on_one_core)]
    assert_close(*losses, terms=TERMS, steps=2, what="loss")


def test_its_report_is_that_on_paper(interpreted: mtf.Function) -> None:
    on_paper = trained_on(mtf.PlanMeshImpl("rows:4;cols:4", "batch:rows;d_ff:cols", options=OPTIONS))
    assert str(interpreted.report()) == str(on_paper.report())
    assert interpreted.report().collectives


def test_checkpoints_of_it_are_restored_elsewhere(interpreted: mtf.Function, tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path)
    folder.save(2, interpreted.variables, {})
    saved, elsewhere = folder.newest_readable(), trained_on(mtf.SpmdMeshImpl("rows:2;cols:2", "d_ff:rows"))
    assert saved is not None
    restore(saved, [elsewhere])
    for name, value in interpreted.variables.items():
        np.testing.assert_array_equal(elsewhere.variables[name], value)


def test_a_failed_check_ends_a_step_before_it_assigns(interpreted: mtf.Function) -> None:
    before = dict(interpreted.variables)
    with pytest.raises(NonFiniteError, match="check_finite"):
        interpreted(x=np.full_like(X, np.inf))
    for name, value in before.items():
        np.testing.assert_array_equal(interpreted.variables[name], value)


def test_it_has_no_hlo(interpreted: mtf.Function) -> None:
    with pytest.raises(UsageError, match=r"lowered for an mtf\.InterpretedMeshImpl, which does not compile it to HLO"):
        interpreted.hlo()
