"""What is counted in compiled programs: kernels, and the bytes that they read and write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from benchmarks.gpu.kernels import Counts, Loop, counted_kernels


@pytest.fixture(autouse=True)
def on_the_cpu() -> Iterator[None]:
    """Otherwise JAX would open every accelerator that it has a plugin for."""
    before = jax.config.jax_platforms
    jax.config.update("jax_platforms", "cpu")
    yield
    jax.config.update("jax_platforms", before)


def _compiled(function: Callable[..., object], *arguments: jax.Array) -> Counts:
    (module,) = jax.jit(function).lower(*arguments).compile().runtime_executable().hlo_modules()
    return counted_kernels(module.as_serialized_hlo_module_proto())


def _as_written(function: Callable[..., object], *arguments: jax.Array) -> Counts:
    """The counts of a program that is not compiled: each operation is a kernel."""
    module: Any = jax.jit(function).lower(*arguments).compiler_ir("hlo")
    return counted_kernels(module.as_serialized_hlo_module_proto())


def test_a_product_reads_its_operands_and_writes_its_result() -> None:
    """The tanh is a second kernel, which reads what the product has written."""
    found = _compiled(lambda x, w: jnp.tanh(x @ w), jnp.zeros([8, 16]), jnp.zeros([16, 4]))
    assert found.kernels.total() == 2
    assert found.bytes.total() == 4 * (8 * 16 + 16 * 4 + 8 * 4) + 4 * (8 * 4 + 8 * 4)
    assert found.bytes.keys() == found.kernels.keys()
    assert found.loops == []


def test_a_loop_counts_once_for_each_iteration() -> None:
    """Each reads a slice and writes one in place, so the bytes of an iteration do not grow with their number."""

    def layers(number: int) -> Counts:
        def layer(x: jax.Array, w: jax.Array) -> tuple[jax.Array, jax.Array]:
            return jnp.tanh(x @ w), x

        return _compiled(lambda x, w: jax.lax.scan(layer, x, w), jnp.zeros([2, 16]), jnp.zeros([number, 16, 16]))

    few, some, many = map(layers, (8, 16, 32))
    (loop,) = some.loops
    assert loop.iterations == 16
    assert some.kernels.total() - few.kernels.total() == 8 * loop.kernels
    assert many.bytes.total() - some.bytes.total() == 2 * (some.bytes.total() - few.bytes.total())
    assert some.bytes.total() < 16 * 4 * (4 * 16 * 16 + 20 * 2 * 16)


def test_a_loop_of_unknown_length_counts_once() -> None:
    def doubled(x: jax.Array) -> jax.Array:
        return jax.lax.while_loop(lambda x: jnp.sum(x) < 1, lambda x: x * 2, x)

    found = _compiled(doubled, jnp.ones([8, 16]))
    (loop,) = found.loops
    copies = found.kernels["copy"]
    assert loop == Loop(None, found.kernels.total() - copies) == Loop(None, 2)
    assert found.bytes.total() - found.bytes["copy"] == 4 * 128 + 1 + 4 * (128 + 128)


def test_only_what_is_read_and_written_is_counted() -> None:
    table, rows = jnp.zeros([1000, 16]), jnp.zeros([7], jnp.int32)
    promised = {"mode": "promise_in_bounds", "unique_indices": True}
    gathered = _as_written(lambda table, rows: table.at[rows].get(**promised), table, rows)
    assert gathered.bytes["gather"] == 4 * (2 * 7 * 16 + 7)
    scattered = _as_written(lambda table, rows: table.at[rows].add(jnp.ones([7, 16]), **promised), table, rows)
    assert scattered.bytes["scatter"] == 4 * (2 * 7 * 16 + 7)
    assert _as_written(lambda table: table[3:5], table).bytes["slice"] == 4 * (2 * 2 * 16)
    assert _as_written(lambda table: table @ table.T, table).bytes["dot"] == 4 * (2 * 16000 + 1000**2)


def test_results_of_a_library_that_nothing_reads_are_not_counted() -> None:
    """LAPACK also writes the pivots, which nothing reads here. JAX checks a number that tells of errors."""
    found = _compiled(lambda x: jax.lax.linalg.lu(x)[0], jnp.eye(8))
    ((kind, number),) = [(kind, number) for kind, number in found.bytes.items() if kind.startswith("custom-call")]
    assert number == 4 * (2 * 64 + 1)
    assert found.kernels[kind] == 1


def test_one_branch_counts() -> None:
    def either(x: jax.Array) -> jax.Array:
        return jax.lax.cond(x[0] > 0, lambda x: jnp.sin(jnp.sin(x)), jnp.cos, x)

    found = _as_written(either, jnp.zeros([8]))
    assert (found.kernels["sine"], found.kernels["cosine"]) == (2, 0)


def test_a_function_counts_at_each_call() -> None:
    sine = jax.jit(jnp.sin)
    found = _as_written(lambda x: sine(sine(x)), jnp.zeros([8]))
    assert found.kernels == {"sine": 2}
    assert found.bytes == {"sine": 2 * 4 * 16}


def test_types_of_fewer_bits_take_fewer_bytes() -> None:
    for dtype, size in ((jnp.bfloat16, 16), (jnp.float8_e4m3fn, 8), (jnp.int4, 4), (jnp.bool, 8)):
        found = _as_written(lambda x: jnp.reshape(x, [4, 4]).T, jnp.zeros([16], dtype))
        assert found.bytes["transpose"] == 2 * 2 * size
