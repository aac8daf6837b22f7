"""The original's MNIST program, as it was written, has in a session the numbers that it has in meshtf's own words."""

from __future__ import annotations

import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf
import meshtf.compat.mesh_tensorflow as mtf
from meshtf.errors import DeviceError
from meshtf.testing import assert_close
from tests.compat.mesh_tensorflow.sessions import (
    BATCH,
    CLASSES,
    HIDDEN,
    IO,
    MESHES,
    graph_mode,
    initial,
    load_initial,
    mesh_impl,
)
from tests.house.sharpest import sharpest

STEPS = 3
IMAGES = np.random.RandomState(0).randn(BATCH.size, IO.size).astype(np.float32)
LABELS = np.arange(BATCH.size, dtype=np.int32) % CLASSES.size


def built(mesh_name: str, *, per_variable: bool = False) -> SimpleNamespace:
    """The program of mesh_tensorflow's examples/mnist.py, with dense layers alone."""
    images = tf.compat.v1.placeholder(tf.float32, [None, IO.size])
    labels = tf.compat.v1.placeholder(tf.int32, [BATCH.size])
    global_step = tf.compat.v1.train.get_or_create_global_step()
    graph = mtf.Graph()
    mesh = mtf.Mesh(graph, "my_mesh")
    x = mtf.import_tf_tensor(mesh, images, mtf.Shape([BATCH, IO]))
    with tf.compat.v1.variable_scope("net"):
        h = mtf.layers.dense(x, HIDDEN, reduced_dims=x.shape.dims[-1:], activation=mtf.relu, name="hidden1")
        logits = mtf.layers.dense(h, CLASSES, name="logits")
    y = mtf.import_tf_tensor(mesh, labels, mtf.Shape([BATCH]))
    loss = mtf.reduce_mean(mtf.layers.softmax_cross_entropy_with_logits(logits, mtf.one_hot(y, CLASSES), CLASSES))
    grads = mtf.gradients([loss], [v.outputs[0] for v in graph.trainable_variables])
    optimizer = mtf.optimize.AdafactorOptimizer()
    update_ops = []
    if per_variable:
        for grad, variable in zip(grads, graph.trainable_variables, strict=True):
            update_ops.extend(optimizer.apply_grad(grad, variable))
    else:
        update_ops = optimizer.apply_grads(grads, graph.trainable_variables)
    lowering = mtf.Lowering(graph, {mesh: mesh_impl(mesh_name)})
    tf_loss, tf_logits = lowering.export_to_tf_tensor(loss), lowering.export_to_tf_tensor(logits)
    tf_updates = [lowering.lowered_operation(op) for op in update_ops]
    tf_updates.append(tf.compat.v1.assign_add(global_step, 1))
    train = tf.group(tf_updates)
    fed = {images: IMAGES, labels: LABELS}
    return SimpleNamespace(
        graph=graph, lowering=lowering, loss=tf_loss, logits=tf_logits, train=train, fed=fed, x=images
    )


@pytest.fixture(scope="module")
def own_words() -> SimpleNamespace:
    """The same model as an mtf.function: losses before each step, and the weights at the end."""

    def step(x: meshtf.Tensor, y: meshtf.Tensor, mesh: meshtf.Mesh) -> meshtf.Tensor:
        shapes = {
            "net/hidden1/kernel": [IO, HIDDEN],
            "net/hidden1/bias": [HIDDEN],
            "net/logits/kernel": [HIDDEN, CLASSES],
            "net/logits/bias": [CLASSES],
        }
        w = {
            name: meshtf.get_variable(mesh, name, dims, initializer=initial(name, [d.size for d in dims]))
            for name, dims in shapes.items()
        }
        h = meshtf.relu(meshtf.einsum([x, w["net/hidden1/kernel"]], [BATCH, HIDDEN]) + w["net/hidden1/bias"])
        logits = meshtf.einsum([h, w["net/logits/kernel"]], [BATCH, CLASSES]) + w["net/logits/bias"]
        loss = meshtf.reduce_mean(meshtf.layers.softmax_cross_entropy_with_logits(logits, y, CLASSES))
        meshtf.optimize.AdafactorOptimizer(is_mesh_tensorflow_variant=True).minimize(loss)
        return loss

    specs = {"x": meshtf.TensorSpec([BATCH, IO]), "y": meshtf.TensorSpec([BATCH], tf.int32)}
    program = meshtf.function(step, meshtf.SpmdMeshImpl("all:1", ""), specs)
    losses = [float(program(x=IMAGES, y=LABELS)) for _ in range(STEPS + 1)]
    return SimpleNamespace(losses=losses)


@pytest.mark.parametrize("mesh_name", sharpest([*MESHES, "tpu"], ["2x2"]))
def test_a_session_has_the_numbers_of_a_function(mesh_name: str, own_words: SimpleNamespace) -> None:
    """Fetched beside the update, the loss is the one before it; fetched alone, it changes nothing."""
    with graph_mode(), tf.compat.v1.Session() as session:
        program = built(mesh_name, per_variable=mesh_name == "one core")
        load_initial(program.graph, session)
        session.run(program.lowering.copy_masters_to_slices())
        losses = [session.run([program.loss, program.train], program.fed)[0] for _ in range(STEPS)]
        twice = [session.run(program.loss, program.fed) for _ in range(2)]
        expected, terms = np.array(own_words.losses, np.float32), IO.size * HIDDEN.size
        assert_close(np.array([*losses, twice[0]]), expected, terms=terms, steps=np.arange(STEPS + 1))
        assert twice[0] == twice[1]
        assert session.run(program.logits, {program.x: IMAGES}).shape == (BATCH.size, CLASSES.size)  # without labels
        names = [v.name for v in tf.compat.v1.trainable_variables()]
        assert names == ["net/hidden1/kernel:0", "net/hidden1/bias:0", "net/logits/kernel:0", "net/logits/bias:0"]


def test_a_monitored_session_saves_and_restores(tmp_path: Path) -> None:
    """The hooks that people have: a second session goes on with the weights and the step of the first."""
    folder, losses = str(tmp_path), []
    for _ in range(2):
        with graph_mode():
            program = built("2x2")
            listener = mtf.MtfCheckpointSaverListener(program.lowering)
            saver = tf.compat.v1.train.CheckpointSaverHook(folder, save_steps=1000, listeners=[listener])
            hooks = [mtf.MtfRestoreHook(program.lowering), saver]
            tf.compat.v1.set_random_seed(1)
            with tf.compat.v1.train.MonitoredTrainingSession(
                checkpoint_dir=folder, save_checkpoint_secs=None, hooks=hooks
            ) as session:
                for _ in range(2):
                    losses.append(float(session.run([program.loss, program.train], program.fed)[0]))
                after = float(session.run(program.loss, program.fed))
        losses.append(after)
    first, second = losses[:3], losses[3:]
    assert second[0] == first[2]  # where it ended
    assert sorted(losses[:3], reverse=True) == losses[:3]
    reader = tf.train.load_checkpoint(folder)
    assert reader.get_tensor("global_step") == 4
    assert "net/hidden1/kernel_slot_v" in reader.get_variable_to_shape_map()


def refusal(call: Any) -> str:
    with pytest.raises(Exception) as caught:  # noqa: PT011  # each test reads the message
        call()
    return str(caught.value)


def test_what_a_session_cannot_do_is_said() -> None:
    with graph_mode(), tf.compat.v1.Session() as session:
        graph = mtf.Graph()
        mesh = mtf.Mesh(graph, "mesh")
        w = mtf.get_variable(mesh, "w", [BATCH, HIDDEN], initializer=tf.compat.v1.ones_initializer())
        first, second = mtf.assign(w, w * 2.0), mtf.assign_add(w, w)
        lowering = mtf.Lowering(graph, {mesh: mesh_impl("2x2")})
        nodes = [lowering.lowered_operation(op) for op in (first, second)]
        session.run(tf.compat.v1.global_variables_initializer())
        message = refusal(lambda: session.run(nodes))
        assert "updates that depend on one another" in message
        assert "tf.group" in message
        assert "is no assignment" in refusal(lambda: lowering.lowered_operation(w.operation))
        assert "lowering.report()" in refusal(lambda: lowering.counters)
        assert "another graph" in refusal(
            lambda: lowering.export_to_tf_tensor(mtf.ones(mtf.Mesh(mtf.Graph(), "other"), [IO]))
        )
    with graph_mode():
        assert "random_normal_initializer" in refusal(
            lambda: mtf.get_variable(mesh, "v", [IO], initializer=meshtf.RandomNormal(stddev=1.0))
        )
    assert "meshtf.PlanMeshImpl" in refusal(lambda: mtf.auto_mtf)


def test_a_part_of_a_group_is_refused_and_the_session_goes_on() -> None:
    """A group counts from when it is made on, and a run of another thread that has not ended yet is no part."""
    entered, go_on, gates = threading.Event(), threading.Event(), itertools.count()

    def gate() -> np.int64:
        if next(gates) == 0:
            entered.set()
            go_on.wait(120.0)
        return np.int64(0)

    threads = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=4, use_per_session_threads=True)
    with graph_mode(), tf.compat.v1.Session(config=threads) as session:
        graph = mtf.Graph()
        mesh = mtf.Mesh(graph, "mesh")
        made = [
            mtf.get_variable(mesh, name, [BATCH, HIDDEN], initializer=tf.compat.v1.ones_initializer()) for name in "vw"
        ]
        total = mtf.reduce_sum(made[0] + made[1])
        lowering = mtf.Lowering(graph, {mesh: mesh_impl("2x2")})
        exported = lowering.export_to_tf_tensor(total)
        nodes = [lowering.lowered_operation(mtf.assign_add(made[0], made[0]))]
        with tf.control_dependencies(nodes), tf.control_dependencies([tf.numpy_function(gate, [], tf.int64)]):
            nodes.append(lowering.lowered_operation(mtf.assign_add(made[1], made[1])))
        session.run(tf.compat.v1.global_variables_initializer())
        session.run(lowering.copy_masters_to_slices())
        first = session.run(exported)
        go_on.set()
        session.run(nodes)
        assert session.run(exported) == 2 * first

        single = lowering.lowered_operation(mtf.assign_add(made[0], made[0]))
        other = lowering.lowered_operation(mtf.assign_add(made[1], made[1]))
        session.run(single)
        before = session.run(exported)
        both = tf.group([single, other])
        session.run(single)
        assert "asked for 1 of 2 updates" in refusal(lambda: session.run(exported))
        after = session.run(exported)
        session.run(both)
        assert before < after < session.run(exported) == 2 * after

        go_on.clear()
        entered.clear()
        gates = itertools.count()
        with ThreadPoolExecutor(1) as pool:
            slow = pool.submit(session.run, nodes)
            assert entered.wait(120.0)
            session.run(exported)
            go_on.set()
            slow.result()
        assert session.run(exported) == 4 * after


@pytest.mark.parametrize("mesh_name", MESHES)
def test_what_is_exported_behind_an_update_is_the_value_before_it(mesh_name: str) -> None:
    with graph_mode(), tf.compat.v1.Session() as session:
        fed = tf.compat.v1.placeholder(tf.float32, [])
        graph = mtf.Graph()
        mesh = mtf.Mesh(graph, "mesh")
        w = mtf.get_variable(mesh, "w", [BATCH, HIDDEN], initializer=tf.compat.v1.ones_initializer())
        total = mtf.reduce_sum(w) * mtf.import_tf_tensor(mesh, fed, [])
        lowering = mtf.Lowering(graph, {mesh: mesh_impl(mesh_name)})
        update = lowering.lowered_operation(mtf.assign_add(w, w))
        with tf.control_dependencies([update]):
            exported = lowering.export_to_tf_tensor(total)
        session.run(tf.compat.v1.global_variables_initializer())
        values = [session.run(exported, {fed: 1.0}) for _ in range(3)]
        assert values == [BATCH.size * HIDDEN.size * n for n in (1, 2, 4)]


def test_the_types_of_a_variable() -> None:
    with graph_mode():
        mesh = mtf.Mesh(mtf.Graph(), "mesh")
        for given, types in (
            ({"master_dtype": tf.bfloat16}, (tf.bfloat16, tf.float32, tf.float32)),
            ({"dtype": tf.bfloat16}, (tf.bfloat16, tf.bfloat16, tf.bfloat16)),
            ({"dtype": None, "activation_dtype": tf.bfloat16}, (tf.float32, tf.float32, tf.bfloat16)),
        ):
            name = "_".join(given)
            own = mtf.get_variable(mesh, name, [IO], **given)
            assert own.dtype == types[2], given
            assert mesh.graph.masters[name].dtype.base_dtype == types[0], given


def test_a_scope_without_a_name_gives_the_names_of_tensorflow() -> None:
    """GPT-Neo's layers that share their variables are in `tf.variable_scope("")` of another scope."""
    with graph_mode(), tf.compat.v1.Session() as session:
        graph = mtf.Graph()
        mesh = mtf.Mesh(graph, "mesh")
        with tf.compat.v1.variable_scope("net"):
            first = mtf.get_variable(mesh, "w", [BATCH, HIDDEN])
            with tf.compat.v1.variable_scope(""):
                second, again = (mtf.get_variable(mesh, "w", [BATCH, HIDDEN]) for _ in range(2))
        assert [v.full_name for v in graph.trainable_variables] == ["net/w", "net//w"]
        grads = mtf.gradients(
            [mtf.reduce_sum(first + second * again)], [v.outputs[0] for v in graph.trainable_variables]
        )
        adam = mtf.optimize.AdamWeightDecayOptimizer(0.1)
        updates = [*mtf.optimize.SgdOptimizer(0.1).apply_grads(grads[:1], graph.trainable_variables[:1])]
        updates += adam.apply_grads(grads[1:], graph.trainable_variables[1:])
        lowering = mtf.Lowering(graph, {mesh: mesh_impl("2x2")})
        train = tf.group([lowering.lowered_operation(op) for op in updates])
        load_initial(graph, session)
        session.run(train)
        session.run(lowering.copy_slices_to_masters())
        after = {v.op.name: session.run(v) for v in tf.compat.v1.global_variables()}
    assert_close(after["net/w"], initial("net/w", [BATCH.size, HIDDEN.size]) - 0.1, terms=2)
    assert_close(after["net//w/adam_m"], 0.2 * initial("net//w", [BATCH.size, HIDDEN.size]), terms=4)


def test_eager_execution_gives_values_at_once() -> None:
    graph = mtf.Graph()
    mesh = mtf.Mesh(graph, "mesh")
    x = mtf.import_tf_tensor(mesh, IMAGES, [BATCH, mtf.Dimension("hidden", IO.size)])
    y = mtf.anonymize(x * tf.constant(2.0) + 1)
    lowering = mtf.Lowering(graph, {mesh: mesh_impl("2x2")})
    np.testing.assert_array_equal(lowering.export_to_tf_tensor(y), IMAGES * 2 + 1)
    assert y.shape.dimension_names == ["_anonymous_0", "_anonymous_1"]


@pytest.mark.parametrize("mesh_name", sharpest(MESHES, ["2x2"]))
def test_fetches_of_two_lowerings_wait_for_one_another(mesh_name: str) -> None:
    """A session runs both at once, each in a thread of its own, and a process runs one program at a time."""
    threads = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=4, use_per_session_threads=True)
    entered = threading.Barrier(2)
    with graph_mode(), tf.compat.v1.Session(config=threads) as session:
        exported = []
        for _ in range(2):
            gate = tf.numpy_function(lambda: np.int32(entered.wait(120.0) * 0), [], tf.int32)
            mesh = mtf.Mesh(mtf.Graph(), "mesh")
            x = mtf.import_tf_tensor(mesh, IMAGES, [BATCH, ("hidden", IO.size)])
            x += mtf.import_tf_tensor(mesh, tf.cast(gate, tf.float32), [])
            y = mtf.slicewise(_slowly, [x], output_dtype=tf.float32, splittable_dims=[BATCH])
            exported.append(mtf.Lowering(mesh.graph, {mesh: mesh_impl(mesh_name)}).export_to_tf_tensor(y))
        for first, second in (session.run(exported) for _ in range(2)):
            np.testing.assert_array_equal(first, second)
            np.testing.assert_array_equal(first, IMAGES)


def _slowly(x: tf.Tensor) -> tf.Tensor:
    """So that another program begins meanwhile, where nothing keeps it."""
    return tf.ensure_shape(tf.numpy_function(lambda x: (time.sleep(0.05), x)[1], [x], x.dtype), x.shape)


def test_programs_that_disable_shapes_of_integers() -> None:
    """`tf.disable_v2_behavior()` does; random bits, and scalars of bfloat16, are there all the same."""
    tf.compat.v1.disable_v2_tensorshape()
    try:
        with graph_mode(), tf.compat.v1.Session() as session:
            mesh = mtf.Mesh(mtf.Graph(), "mesh")
            noise = mtf.random_uniform(mesh, [BATCH, HIDDEN], tf.bfloat16)
            dropped = mtf.dropout(mtf.ones(mesh, [BATCH, HIDDEN]), True, rate=0.5)
            largest = mtf.reduce_max(noise)
            lowering = mtf.Lowering(mesh.graph, {mesh: mesh_impl("2x2")})
            found = session.run([lowering.export_to_tf_tensor(x) for x in (noise, largest, dropped)])
        assert not isinstance(tf.TensorShape([1])[0], int)  # as the program left it
        assert found[0].max() == found[1]
        assert set(np.unique(found[2])) == {0.0, 2.0}
    finally:
        tf.compat.v1.enable_v2_tensorshape()


def test_a_placer_says_where_masters_are() -> None:
    """Each is where the fewest bytes are."""
    with graph_mode():
        devices = ["cpu:0", "cpu:1", "cpu:2"]
        mesh = mtf.Mesh(mtf.Graph(), "mesh", mtf.utils.BalancedVariablePlacer(devices, [100, 0, 0]))
        for name in "abc":
            mtf.get_variable(mesh, name, [IO])
        assert [mesh.graph.masters[n].device for n in "abc"] == ["cpu:1", "cpu:2", "cpu:1"]
        with pytest.raises(DeviceError, match="1 number for 3 devices"):
            mtf.utils.BalancedVariablePlacer(devices, [1])
