"""One step of each optimizer is NumPy's, and its state is under the original's names."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

import meshtf.compat.mesh_tensorflow as mtf
from meshtf.errors import UsageError
from meshtf.testing import assert_close
from tests.compat.mesh_tensorflow.sessions import BATCH, HIDDEN, graph_mode, initial, load_initial, mesh_impl


class SignDescent(mtf.optimize.Optimizer):
    """One of a user's: it says what one gradient does."""

    def apply_grad(self, grad: mtf.Tensor, var: mtf.Variable) -> list:
        return [mtf.assign_sub(var, mtf.sign(grad) * 0.5)]


def test_every_optimizer() -> None:
    """The loss is the sum of squares, whose gradient is twice the weight: each optimizer has a weight of its own."""
    rate = 0.1
    with graph_mode(), tf.compat.v1.Session() as session:
        graph = mtf.Graph()
        mesh = mtf.Mesh(graph, "mesh")
        optimizers = {
            "sgd": mtf.optimize.SgdOptimizer(tf.constant(rate)),
            "momentum": mtf.optimize.MomentumOptimizer(rate, 0.9),
            "adam": mtf.optimize.AdamWeightDecayOptimizer(rate, weight_decay_rate=0.01),
            "bias": mtf.optimize.AdamWeightDecayOptimizer(rate, 0.01, exclude_from_weight_decay=["bias"]),
            "factored": mtf.optimize.AdafactorOptimizer(min_dim_size_to_factor=2, beta1=0.5, learning_rate=rate),
            "sign": SignDescent(),
        }
        for name in optimizers:
            mtf.get_variable(mesh, name, [BATCH, HIDDEN])
        weights = graph.trainable_variables
        loss = mtf.add_n([mtf.reduce_sum(mtf.square(w.value)) for w in weights])
        grads = mtf.gradients([loss], [w.outputs[0] for w in weights])
        updates = [
            op for o, g, w in zip(optimizers.values(), grads, weights, strict=True) for op in o.apply_grads([g], [w])
        ]
        lowering = mtf.Lowering(graph, {mesh: mesh_impl("2x2")})
        train = tf.group([lowering.lowered_operation(op) for op in updates])
        load_initial(graph, session)
        session.run(train)
        session.run(lowering.copy_slices_to_masters())
        after = session.run(dict(graph.masters))

    before = {name: initial(name, [BATCH.size, HIDDEN.size]).astype(np.float64) for name in optimizers}
    adam = {name: rate * 0.2 * w / (np.sqrt(0.001 * 4 * w**2) + 1e-6) for name, w in before.items()}
    squares = 4 * before["factored"] ** 2 + 1e-30
    rows, columns = squares.mean(1, keepdims=True), squares.mean(0, keepdims=True)
    direction = 2 * before["factored"] / np.sqrt(rows / rows.mean()) / np.sqrt(columns)
    size = np.sqrt((before["factored"] ** 2).mean())
    moves = {
        "sgd": rate * 2 * before["sgd"],
        "momentum": rate * 2 * before["momentum"],
        "adam": adam["adam"] + rate * 0.01 * before["adam"],
        "bias": adam["bias"],
        "factored": 0.5 * rate * size * direction / max(1.0, np.sqrt((direction**2).mean())),
        "sign": 0.5 * np.sign(before["sign"]),
    }
    for name, move in moves.items():
        assert_close(after[name], before[name] - move, terms=4 * BATCH.size * HIDDEN.size, what=name)
    slots = {
        "momentum_momentum_v",
        "adam/adam_m",
        "adam/adam_v",
        "factored_slot_vr",
        "factored_slot_vc",
        "factored_slot_m",
    }
    assert slots <= set(after)
    assert after["factored_slot_vr"].shape == (BATCH.size,)


def test_a_variable_without_a_gradient_is_named() -> None:
    with graph_mode():
        graph = mtf.Graph()
        w = mtf.get_variable(mtf.Mesh(graph, "mesh"), "lonely", [HIDDEN])
        with pytest.warns(UserWarning, match="lonely has no gradient"):
            assert mtf.optimize.SgdOptimizer(0.1).apply_grads([None], [w.operation]) == []


def test_factored_state_of_equal_dimensions_is_the_originals() -> None:
    """The first of equal dimensions is the larger one, which `vr` lacks; `vc` lacks the second."""
    a, b, c = (mtf.Dimension(name, 4) for name in "abc")
    with graph_mode():
        graph = mtf.Graph()
        w = mtf.get_variable(mtf.Mesh(graph, "mesh"), "w", [a, b, c])
        adafactor = mtf.optimize.AdafactorOptimizer(learning_rate=0.1, min_dim_size_to_factor=2)
        adafactor.apply_grads([w], [w.operation])
        assert graph.variables["w_slot_vr"].shape == mtf.Shape([b, c])
        assert graph.variables["w_slot_vc"].shape == mtf.Shape([a, c])


@pytest.mark.parametrize("kind", ["Adam", "pow"])
def test_optimizers_of_hyperparameters(kind: str) -> None:
    """As tensor2tensor's programs make them. In the second step the decay is no longer 0."""
    given = {"beta2": 0.99, "memory_exponent": 0.5, "multiply_by_parameter_scale": False, "beta1": 0.0}
    given |= {"clipping_threshold": None, "factored": False, "decay_type": kind}
    hparams = SimpleNamespace(optimizer="SGD", **{f"optimizer_adafactor_{name}": x for name, x in given.items()})
    assert isinstance(mtf.optimize.make_optimizer(hparams, 0.1), mtf.optimize.SgdOptimizer)
    hparams.optimizer = "Adafactor"
    with graph_mode(), tf.compat.v1.Session() as session:
        step = tf.compat.v1.train.get_or_create_global_step()
        graph = mtf.Graph()
        w = mtf.get_variable(mtf.Mesh(graph, "mesh"), "w", [BATCH])
        grads = mtf.gradients([mtf.reduce_sum(mtf.square(w))], [w])
        updates = mtf.optimize.make_optimizer(hparams, 0.1).apply_grads(grads, [w.operation])
        lowering = mtf.Lowering(graph, {w.mesh: mesh_impl("one core")})
        train = tf.group([*map(lowering.lowered_operation, updates), tf.compat.v1.assign_add(step, 1)])
        load_initial(graph, session)
        for _ in range(2):
            session.run(train)
        found = session.run(graph.masters["w"])
    value = initial("w", [BATCH.size]).astype(np.float64)
    moment = 0.0
    for decay in (0.0, 0.99 * 0.01 / (1 - 0.99**2) if kind == "Adam" else 1 - 2**-0.5):
        moment = moment * decay + (2 * value) ** 2 * (1 - decay)
        value = value - 0.1 * 2 * value / np.sqrt(moment)
    assert_close(found, value, terms=64)


def test_other_hyperparameters_of_optimizers_are_told() -> None:
    hparams = SimpleNamespace(optimizer="Adam", optimizer_adafactor_decay_type="Pow")
    with pytest.raises(UsageError, match=r'"SGD" or "Adafactor", not .Adam.'):
        mtf.optimize.make_optimizer(hparams, 0.1)
    for name in ("multiply_by_parameter_scale", "beta1", "clipping_threshold", "factored"):
        setattr(hparams, f"optimizer_adafactor_{name}", 0.0)
    with pytest.raises(UsageError, match=r'"pow" or "Adam", not .Pow.'):
        mtf.optimize.adafactor_optimizer_from_hparams(hparams, 0.1)
