"""Seconds of work and of collectives are those of formulas that can be done by hand."""

from __future__ import annotations

import dataclasses

import pytest

import meshtf as mtf
from meshtf.costs import (
    Machine,
    MatrixProduct,
    NetworkLevel,
    Placement,
    TorusLinks,
    Work,
    collective_seconds,
    permute_seconds,
    seconds_of,
)

pytestmark = pytest.mark.quick

TORUS = Machine("torus", "a test", {"bfloat16": 100e12}, 16e9, 1e15, TorusLinks(2, 1, 1e9, 0.0), vector_flops=1e12)
LEVELS = (NetworkLevel(4, 10e9, 0.0), NetworkLevel(None, 1e9, 0.0))
HOSTS = dataclasses.replace(TORUS, links=LEVELS)
GROUPS = {"all_gather": 1e6 / 8, "reduce_scatter": 1e6, "all_reduce": 1e6}


def test_a_product_is_done_in_whole_tiles() -> None:
    machine = dataclasses.replace(TORUS, product_tile=(8, 128, 128), product_efficiency=0.5)
    whole = MatrixProduct(2, 1024, 256, 128)
    assert seconds_of(Work(whole.flops, 0, "bfloat16", (whole,)), machine) == pytest.approx(whole.flops / 50e12)
    narrow = MatrixProduct(2, 1024, 256, 64)
    assert seconds_of(Work(narrow.flops, 0, "bfloat16", (narrow,)), machine) == pytest.approx(whole.flops / 50e12)
    assert seconds_of(Work(0, 0, "bfloat16", (MatrixProduct(1, 128, 8, 128),)), machine) == pytest.approx(
        2 * 128 * 128 * 8 / 50e12  # the other way round its rows fill tiles
    )


def test_work_takes_as_long_as_what_takes_longest_of_computing_and_moving() -> None:
    machine = dataclasses.replace(TORUS, memory_bandwidth=1e9, memory_efficiency=0.5, operation_seconds=1e-3)
    assert seconds_of(Work(10, 10**6, "float32"), machine) == pytest.approx(3e-3)
    assert seconds_of(Work(10**10, 10**6, "float32"), machine) == pytest.approx(11e-3)


def test_what_fits_in_the_cache_moves_at_its_speed() -> None:
    machine = dataclasses.replace(TORUS, memory_bandwidth=1e9, cache_bytes=10**6, cache_bandwidth=4e9)
    assert seconds_of(Work(10, 10**6, "float32"), machine) == pytest.approx(0.25e-3)
    assert seconds_of(Work(10, 10**6 + 4, "float32"), machine) == pytest.approx(1e-3, rel=1e-3)
    virtual = dataclasses.replace(machine, links=LEVELS, processors=2).shared_by(8)
    assert (virtual.cache_bytes, virtual.cache_bandwidth) == (10**6 / 2, 4e9 / 8)


def test_operands_in_another_order_are_moved_first_but_for_a_compiler() -> None:
    machine = dataclasses.replace(TORUS, memory_bandwidth=1e9)
    product = MatrixProduct(1, 1000, 1000, 1000, transposed=10**6)
    computing = product.flops / 100e12
    assert seconds_of(Work(product.flops, 0, "bfloat16", (product,)), machine) == pytest.approx(computing + 4e-3)
    compiles = dataclasses.replace(machine, fuses=True)
    assert seconds_of(Work(product.flops, 0, "bfloat16", (product,)), compiles) == pytest.approx(computing)


def test_few_rows_are_multiplied_as_fast_as_the_other_operand_is_read() -> None:
    machine = dataclasses.replace(TORUS, product_bandwidth=1e9)
    thin = MatrixProduct(1, 8, 1000, 1000)
    assert seconds_of(Work(thin.flops, 10**6, "bfloat16", (thin,)), machine) == pytest.approx(1e-3)
    assert seconds_of(Work(10, 10**6, "bfloat16"), machine) == pytest.approx(1e-9)  # no product


def test_exponentials_take_longer_than_other_elementwise_work_where_the_machine_says_so() -> None:
    machine = dataclasses.replace(TORUS, transcendental_flops=1e9)
    assert seconds_of(Work(10**6, 0, "float32"), machine) == pytest.approx(1e-6)
    assert seconds_of(Work(10**6, 0, "float32", transcendentals=10**6), machine) == pytest.approx(1e-6 + 1e-3)


@pytest.mark.parametrize(("kind", "given"), GROUPS.items())
def test_on_a_ring_bytes_go_both_ways_and_on_a_line_one(kind: str, given: float) -> None:
    passes = 2 if kind == "all_reduce" else 1
    eight = Placement(TORUS, mtf.convert_to_shape("x:8 y:8"))
    assert collective_seconds(kind, int(given), ("x",), eight) == pytest.approx(passes * 1e6 * 7 / 8 / 2e9)
    lines = Placement(dataclasses.replace(TORUS, links=TorusLinks(2, 1, 1e9, 0.0, 16)), mtf.convert_to_shape("x:8 y:8"))
    assert collective_seconds(kind, int(given), ("x",), lines) == pytest.approx(passes * 1e6 * 7 / 8 / 1e9)


def test_a_group_over_the_whole_torus_uses_all_links_and_groups_on_a_chip_share_them() -> None:
    placement = Placement(TORUS, mtf.convert_to_shape("x:8 y:8"))
    assert collective_seconds("all_reduce", 10**6, ("x", "y"), placement) == pytest.approx(2e6 * 63 / 64 / 4e9)
    two = dataclasses.replace(TORUS, links=TorusLinks(2, 2, 1e9, 0.0))
    shared = Placement(two, mtf.convert_to_shape("x:8 y:16"))
    assert collective_seconds("all_reduce", 10**6, ("x",), shared) == pytest.approx(2 * 2e6 * 7 / 8 / 2e9)
    assert collective_seconds("all_reduce", 10**6, ("y",), shared) == pytest.approx(2e6 * 7 / 8 / 2e9)


def test_an_allreduce_of_few_bytes_goes_round_once_and_one_of_many_twice() -> None:
    far = Placement(dataclasses.replace(TORUS, links=TorusLinks(2, 1, 1e9, 1e-6)), mtf.convert_to_shape("x:8 y:8"))
    assert collective_seconds("all_reduce", 1, ("x", "y"), far) == pytest.approx(2 * (4e-6 + 7 / 2e9))
    many = collective_seconds("all_reduce", 10**6, ("x", "y"), far)
    assert many == pytest.approx(2 * 8e-6 + 2e6 * 63 / 64 / 4e9)
    assert collective_seconds("reduce_scatter", 1, ("x",), far) == pytest.approx(4e-6, rel=1e-3)


def test_an_alltoall_grows_with_the_side_of_the_torus() -> None:
    """As GShard measured: nine times as long on 128 times as many cores, that is with the square root."""
    small, large = Placement(TORUS, mtf.convert_to_shape("x:64")), Placement(TORUS, mtf.convert_to_shape("x:1024"))
    times = [collective_seconds("all_to_all", 10**6, ("x",), p) for p in (small, large)]
    assert times[0] == pytest.approx(1e6 * 8 / 8 / 1e9)
    assert times[1] == pytest.approx(4 * times[0])


def test_a_network_is_crossed_level_by_level_with_what_a_core_has_of_it() -> None:
    placement = Placement(HOSTS, mtf.convert_to_shape("x:16"))
    assert collective_seconds("all_reduce", 4 * 10**6, ("x",), placement) == pytest.approx(
        2 * 4e6 * 3 / 4 / 10e9 + 2 * 4e6 * 3 / 4 / 4 / 1e9
    )
    assert collective_seconds("all_to_all", 4 * 10**6, ("x",), placement) == pytest.approx(
        4e6 * 3 / 4 / 10e9 + 4e6 * 3 / 4 / 1e9
    )


def test_processes_are_hosts() -> None:
    shape = mtf.convert_to_shape("x:4")
    assert collective_seconds("all_gather", 10**6, ("x",), Placement(HOSTS, shape)) == pytest.approx(3e6 / 10e9)
    apart = Placement(HOSTS, shape, (0, 0, 1, 1))
    assert collective_seconds("all_gather", 10**6, ("x",), apart) == pytest.approx(2e6 / 10e9 + 2e6 / 2 / 1e9)


def test_a_permute_goes_as_far_as_the_farthest() -> None:
    ring = Placement(TORUS, mtf.convert_to_shape("x:8 y:8"))
    near = tuple(8 * ((core // 8 + 1) % 8) + core % 8 for core in range(64))
    assert permute_seconds(10**6, near, ring) == pytest.approx(1e6 / 1e9)
    assert permute_seconds(10**6, tuple(range(64)), ring) == 0
    hosts = Placement(HOSTS, mtf.convert_to_shape("x:8"))
    assert permute_seconds(10**6, (1, 0, 3, 2, 5, 4, 7, 6), hosts) == pytest.approx(1e6 / 10e9)
    assert permute_seconds(10**6, (4, 5, 6, 7, 0, 1, 2, 3), hosts) == pytest.approx(1e6 / 1e9)


def test_a_collective_of_one_takes_no_time_and_each_takes_its_start() -> None:
    machine = dataclasses.replace(TORUS, collective_seconds=1e-3)
    placement = Placement(machine, mtf.convert_to_shape("x:4 y:1"))
    assert collective_seconds("all_gather", 8, ("y",), placement) == 0
    assert collective_seconds("all_gather", 8, ("x",), placement) == pytest.approx(1e-3, rel=1e-3)


def test_a_convolution_takes_what_it_takes_to_begin_besides() -> None:
    machine = dataclasses.replace(TORUS, memory_bandwidth=1e9, operation_seconds=1e-3, convolution_seconds=2e-3)
    for is_convolution, expected in ((False, 1e-3), (True, 3e-3)):
        product = MatrixProduct(1, 1, 1, 1, is_convolution=is_convolution)
        assert seconds_of(Work(2, 0, "bfloat16", (product,)), machine) == pytest.approx(expected)
