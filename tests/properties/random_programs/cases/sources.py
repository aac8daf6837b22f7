"""Cases of operations without a tensor input, of random bits, and of variables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import meshtf as mtf
from meshtf.testing import interpret_graph
from tests.properties.random_programs.builder import Builder, RejectedError, wide
from tests.properties.random_programs.cases.elementwise import Case
from tests.properties.random_programs.program import spread


def source(b: Builder, text: str, tensor: mtf.Tensor, array: np.ndarray, is_exact: bool = True) -> None:
    value = wide(array)
    b.step(text, [], tensor, lambda: tf.identity(value), is_exact=is_exact)


def range_(b: Builder) -> None:
    dim, dtype = b.rng.choice(b.dims), b.rng.choice([tf.int32, tf.int64, b.dtype])
    if dim.size > 40:
        raise RejectedError
    source(b, f"range[{dim}]", mtf.range(b.mesh, dim, dtype), np.arange(dim.size).astype(dtype.as_numpy_dtype))


def constant(b: Builder) -> None:
    shape = b.shape()
    array = b.array(shape, b.dtype, -1.5, 1.5)
    source(b, f"constant[{shape}]", mtf.constant(b.mesh, array, shape, b.dtype), array)


def import_tf_tensor(b: Builder) -> None:
    shape, dtype = b.shape(), b.rng.choice([b.dtype, tf.int32, tf.bool])
    array = b.array(shape, dtype, -3, 3)
    given: Any = tf.constant(array) if b.chance(0.5) else array
    source(b, f"import_tf_tensor[{shape}]", mtf.import_tf_tensor(b.mesh, given, shape), array)


def filled(name: str, value: float) -> Case:
    def case(b: Builder) -> None:
        shape, dtype = b.shape(), b.rng.choice([b.dtype, b.dtype, tf.int32])
        value_ = (value,) if name == "fill" else ()
        tensor = getattr(mtf, name)(b.mesh, *value_, shape, dtype)
        source(b, f"{name}[{shape}]", tensor, np.full(shape.to_integer_list, value, dtype.as_numpy_dtype))

    return case


def filled_like(name: str, value: float) -> Case:
    def case(b: Builder) -> None:
        x = b.pick()
        size = x.shape.to_integer_list
        # No gradient flows: TensorFlow's own function cuts it too.
        z = getattr(mtf, name)(x.tensor)
        b.step(name, [x], z, lambda p: tf.fill(size, tf.constant(value, p.dtype)), is_exact=True)

    return case


def on_one_core(b: Builder, tensor: mtf.Tensor) -> np.ndarray:
    """What the interpreter gives on a mesh whose axes all have size 1: random bits have no other reference."""
    mesh_shape = mtf.Shape([(axis.name, 1) for axis in b.mesh_shape])
    return interpret_graph(tensor.graph, [tensor], b.program.feeds, mesh_shape, with_effects=False).results[0]


def random_tensor(name: str) -> Case:
    def case(b: Builder) -> None:
        shape = b.shape()
        arguments: dict[str, Any] = {}
        if name == "random_uniform" and b.chance(0.3):
            arguments = {"minval": -2, "maxval": 5, "dtype": tf.int32}
        arguments.setdefault("dtype", b.dtype)
        tensor = getattr(mtf, name)(b.mesh, shape, **arguments)
        source(b, f"{name}[{shape}]", tensor, on_one_core(b, tensor))

    return case


def dropout(b: Builder) -> None:
    x = b.pick(least=1)
    noise = None
    if b.chance(0.5):
        noise = mtf.Shape([d for d in x.shape if b.chance(0.6)])
    z = mtf.dropout(x.tensor, True, keep_prob=0.5, noise_shape=noise)
    mask = z.operation.inputs[0]
    assert mask.dtype == tf.bool
    kept = wide(on_one_core(b, mask))

    def reference(p: tf.Tensor) -> tf.Tensor:
        return tf.where(spread(kept, mask.shape.dimension_names, x.shape), p * 2, 0)

    b.step(f"dropout[noise {noise}]", [x], z, reference, is_exact=True)


def sample_with_temperature(b: Builder) -> None:
    """Of logits that are the same to the bit under every layout: others could decide a near tie otherwise."""
    x = b.pick(least=1, accepts=lambda n: n.is_exact)
    z = mtf.sample_with_temperature(x.tensor, b.rng.choice(x.names), b.rng.choice([0.0, 0.5, 1.0]))
    if not x.is_exact:
        raise RejectedError
    index = wide(on_one_core(b, z))
    b.step("sample_with_temperature", [x], z, lambda p: tf.identity(index))


def get_variable(b: Builder) -> None:
    """A variable, read as the program starts."""
    shape = b.shape()
    array = b.array(shape, b.dtype, -1.5, 1.5)
    name = f"{b.dims[0].name}_variable_{len(b.program.nodes)}"
    node = b.known(mtf.get_variable(b.mesh, name, shape, b.dtype, initializer=array, trainable=False), array)
    b.program.variables[name] = node
    b.step("identity", [node], mtf.identity(node.tensor), tf.identity, is_exact=True)


_ASSIGNMENTS: dict[str, Callable[..., tf.Tensor]] = {
    "assign": lambda old, new: new,
    "assign_add": tf.add,
    "assign_sub": tf.subtract,
}


def assignment(name: str) -> Case:
    """One to two assignments, and reads before and after: program order holds. No gradient flows through them."""

    def case(b: Builder) -> None:
        x = b.pick()
        dims = list(x.shape)
        b.rng.shuffle(dims)
        shape = mtf.Shape(dims)
        array = b.array(shape, b.dtype, -1.5, 1.5)
        full_name = f"{b.dims[0].name}_variable_{len(b.program.nodes)}"
        variable = mtf.get_variable(b.mesh, full_name, shape, b.dtype, initializer=array, trainable=False)
        node = b.known(variable, array)
        present = node
        for _ in range(b.rng.randrange(1, 3)):
            (present,) = b.step(
                f"{name}[{full_name}]",
                [present, x],
                getattr(mtf, name)(variable, x.tensor),
                lambda p, q: tf.stop_gradient(_ASSIGNMENTS[name](p, spread(q, x.names, shape))),
            )
        b.step("read_variable", [present], mtf.read_variable(variable), lambda p: tf.stop_gradient(p))
        b.program.variables[full_name] = present

    return case


CASES: dict[str, Case] = {
    "range": range_,
    "constant": constant,
    "import_tf_tensor": import_tf_tensor,
    "zeros": filled("zeros", 0),
    "ones": filled("ones", 1),
    "fill": filled("fill", 3),
    "zeros_like": filled_like("zeros_like", 0.0),
    "ones_like": filled_like("ones_like", 1.0),
    "random_uniform": random_tensor("random_uniform"),
    "random_normal": random_tensor("random_normal"),
    "random_truncated_normal": random_tensor("random_truncated_normal"),
    "dropout": dropout,
    "sample_with_temperature": sample_with_temperature,
    "get_variable": get_variable,
    **{name: assignment(name) for name in _ASSIGNMENTS},
}
