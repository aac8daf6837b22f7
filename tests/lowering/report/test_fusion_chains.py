"""Chains of elementwise work: what one pass over memory reads and writes."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.lowering.report.operation_records import OperationRecord

pytestmark = pytest.mark.quick

ROWS, COLUMNS = mtf.Dimension("rows", 16), mtf.Dimension("columns", 64)
X = 4 * 16 * 64
"""Bytes of a tensor of both dimensions."""


def _operations(program: Callable[[mtf.Tensor], mtf.Tensor]) -> list[OperationRecord]:
    inputs = {"x": mtf.TensorSpec([ROWS, COLUMNS], tf.float32)}
    report = mtf.function(program, mtf.PlanMeshImpl("cores:1", ""), inputs=inputs).report()
    return [o for o in report.operations if o.category != "view"]


def _moved(operations: list[OperationRecord]) -> tuple[int, int]:
    return sum(o.fused_bytes_read for o in operations), sum(o.fused_bytes_written for o in operations)


def test_a_chain_reads_what_enters_it_and_writes_what_leaves_it() -> None:
    operations = _operations(lambda x: mtf.tanh(mtf.exp(x) + x))
    assert len({o.chain for o in operations}) == 1
    assert _moved(operations) == (X, X)
    assert sum(o.bytes_read + o.bytes_written for o in operations) == 7 * X


def test_a_sum_ends_a_chain_and_what_follows_it_is_another() -> None:
    operations = _operations(lambda x: mtf.exp(x) - mtf.reduce_sum(mtf.exp(x), reduced_dim=COLUMNS))
    summed = next(o for o in operations if o.category == "reduction")
    last = operations[-1]
    assert summed.chain != last.chain
    assert summed.fused_bytes_written == 4 * 16
    assert last.fused_bytes_written == X


def test_a_product_that_sums_nothing_is_elementwise() -> None:
    """It goes on in the pass of what made its operands, and what reads it goes on in its pass."""
    scale = mtf.Shape([COLUMNS])
    operations = _operations(lambda x: mtf.tanh(mtf.einsum([mtf.exp(x), mtf.ones(x.mesh, scale)], [ROWS, COLUMNS])))
    assert {o.category for o in operations} == {"elementwise"}
    assert len({o.chain for o in operations if o.kind != "constant"}) == 1
    assert _moved(operations) == (X, X)


def test_a_chain_may_be_longer_than_calls_may_nest() -> None:
    def program(x: mtf.Tensor) -> mtf.Tensor:
        made = functools.reduce(lambda y, _: y + 1.0, range(600), x)
        return mtf.einsum([made, mtf.ones(x.mesh, [COLUMNS])], [ROWS])

    chain = [o for o in _operations(program) if o.kind == "add"]
    assert len({o.chain for o in chain}) == 1
    assert sum(o.fused_bytes_written for o in chain) == 0


def test_what_follows_a_product_is_done_as_it_is_written() -> None:
    def program(x: mtf.Tensor) -> mtf.Tensor:
        w = mtf.get_variable(x.mesh, "w", [COLUMNS, mtf.Dimension("out", 32)])
        return mtf.relu(mtf.einsum([x, w], [ROWS, mtf.Dimension("out", 32)]) + 1.0)

    operations = _operations(program)
    product = next(o for o in operations if o.category == "product")
    assert product.fused_bytes_written == 0
    assert _moved([o for o in operations if o is not product]) == (0, 4 * 16 * 32)


def test_what_leads_through_other_work_is_not_one_pass() -> None:
    """Elementwise work before and after a product of its result, which must be there for both."""

    def program(x: mtf.Tensor) -> mtf.Tensor:
        h = mtf.cos(x)
        other = mtf.rename_dimension(x, "rows", "others")
        scores = mtf.einsum([h, other], [ROWS, mtf.Dimension("others", 16)])
        return h + mtf.reduce_max(scores, reduced_dim="others")

    operations = _operations(program)
    by_kind = {o.kind: o for o in operations}
    assert by_kind["cos"].chain != operations[-1].chain
    assert by_kind["cos"].fused_bytes_written == X


def test_what_is_made_of_no_more_than_it_has_is_made_anew_and_not_written() -> None:
    """A cast of a smaller type, read by a sum and by what follows it: each reads the smaller one."""

    def program(x: mtf.Tensor) -> mtf.Tensor:
        small = mtf.get_variable(x.mesh, "small", [ROWS, COLUMNS], dtype=mtf.VariableDType(tf.bfloat16))
        wide = mtf.cast(small, tf.float32)
        return wide - mtf.reduce_sum(wide, reduced_dim=COLUMNS)

    operations = _operations(program)
    assert _moved(operations) == (X // 2 + X // 2 + 4 * 16, 4 * 16 + X)


def test_few_products_make_an_operand_themselves_and_many_find_it_written() -> None:
    """Of float32, which they read as bfloat16: two move 8 bytes for each element that they make anew, and 10 if it is
    written; four 16, and 14."""

    def program(x: mtf.Tensor, count: int) -> mtf.Tensor:
        h = mtf.relu(x)
        weights = [mtf.get_variable(x.mesh, f"w_{n}", [COLUMNS, mtf.Dimension(f"out_{n}", 8)]) for n in range(count)]
        return mtf.add_n([mtf.reduce_sum(mtf.einsum([h, w], [ROWS, w.shape[1]])) for w in weights])

    few, many = (_operations(functools.partial(program, count=count)) for count in (2, 4))
    written = [next(o for o in operations if o.kind == "relu").fused_bytes_written for operations in (few, many)]
    assert written == [0, X]


def test_a_value_that_waits_is_written_and_read_again() -> None:
    """The gradient of an exponential, which is kept, or computed again from the square that it is given."""

    def program(x: mtf.Tensor, recompute: str) -> mtf.Tensor:
        total = mtf.reduce_sum(mtf.recompute_grad(mtf.exp, mtf.square(x), recompute))
        (gradient,) = mtf.gradients([total], [x])
        assert gradient is not None
        return gradient

    kept, again = (_operations(functools.partial(program, recompute=how)) for how in ("everything", "nothing"))
    assert _moved(kept) == (X, X)
    square, exp = (next(o for o in again if o.kind == kind) for kind in ("square", "exp"))
    assert square.chain != exp.chain
    assert (square.fused_bytes_written, exp.fused_bytes_read) == (X, X)


def test_a_one_hot_vector_is_made_where_it_is_used() -> None:
    def program(x: mtf.Tensor) -> mtf.Tensor:
        ids = mtf.get_variable(x.mesh, "ids", [ROWS], tf.int32, initializer=mtf.zeros, trainable=False)
        return x * mtf.one_hot(ids, COLUMNS)

    operations = _operations(program)
    assert {o.category for o in operations if o.kind == "one_hot"} == {"elementwise"}
    assert _moved(operations) == (X + 4 * 16, X)
