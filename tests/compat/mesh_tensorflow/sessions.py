"""Programs as they were written for Mesh TensorFlow, built in a graph of TensorFlow's and run by a session."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

import meshtf.compat.mesh_tensorflow as mtf

BATCH, IO, HIDDEN, CLASSES = (
    mtf.Dimension(name, size) for name, size in (("batch", 8), ("io", 16), ("hidden", 32), ("classes", 4))
)
MESHES = {"one core": ("all:1", "batch:all"), "2x2": ("rows:2;cols:2", "batch:rows;hidden:cols;absent:no_axis")}


def mesh_impl(name: str) -> mtf.placement_mesh_impl.PlacementMeshImpl | mtf.simd_mesh_impl.SimdMeshImpl:
    """Of virtual CPUs; "tpu" is the 2x2 of virtual TPU cores."""
    if name == "tpu":
        return mtf.simd_mesh_impl.SimdMeshImpl(*MESHES["2x2"])
    shape, layout = (convert(x) for convert, x in zip((mtf.convert_to_shape, str), MESHES[name], strict=True))
    return mtf.placement_mesh_impl.PlacementMeshImpl(shape, layout, [""] * shape.size)


@contextlib.contextmanager
def graph_mode() -> Iterator[None]:
    with tf.Graph().as_default():
        yield


def initial(name: str, sizes: Sequence[int]) -> np.ndarray:
    """Values that depend on the name alone."""
    return np.random.RandomState(sum(name.encode())).randn(*sizes).astype(np.float32) * 0.3


def evaluated(program: Callable[[mtf.Mesh], Any], mesh_name: str = "2x2") -> Any:
    """What a program's tensors are, its variables as `initial` has them."""
    with graph_mode():
        graph = mtf.Graph()
        mesh = mtf.Mesh(graph, "mesh")
        results = program(mesh)
        lowering = mtf.Lowering(graph, {mesh: mesh_impl(mesh_name)})
        exported = tf.nest.map_structure(lowering.export_to_tf_tensor, results)
        with tf.compat.v1.Session() as session:
            load_initial(graph, session)
            return session.run(exported)


def load_initial(graph: mtf.Graph, session: tf.compat.v1.Session) -> None:
    session.run(tf.compat.v1.global_variables_initializer())
    for name, master in graph.masters.items():
        if master.trainable:
            session.run(master.initializer, {master.initializer.inputs[1]: initial(name, master.shape.as_list())})
