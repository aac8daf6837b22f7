from __future__ import annotations

import pytest
import tensorflow as tf

from meshtf.errors import CollectiveError, ExecutionError
from meshtf.mesh_impl.spmd._failure_text import is_collective_failure
from meshtf.mesh_impl.spmd.collective_runtime import collective_runtime
from meshtf.mesh_impl.spmd.step_errors import collective_scope, failed_collectives, lost_its_text, translate

ABORTED = """Graph execution error:

Detected at node while/cond/collective_17.all_reduce.rows-cols/CollectiveReduceV2 defined at (most recent call last):
  File "train.py", line 34, in <module>

  File "program.py", line 8, in emit

Collective ops is aborted by: no progress for 300 seconds; waiting: CPU:0; in no collective: CPU:1
The error could be from a previous operation. Restart your program to reset.
\t [[{{node while/cond/collective_17.all_reduce.rows-cols/CollectiveReduceV2}}]]
\t [[StatefulPartitionedCall_7]] [Op:__inference_st_142]"""

LOCAL = """Graph execution error:

Detected at node op_3.reshape/Reshape defined at (most recent call last):
<stack traces unavailable>
2 root error(s) found.
  (0) CANCELLED:  CompleteGroup is cancelled before it starts
\t [[{{node collective_17.all_reduce.rows/CollectiveReduceV2}}]]
  (1) INVALID_ARGUMENT:  {{function_node f}} Input to reshape is a tensor with 4 values
\t [[{{node op_3.reshape/Reshape}}]]
0 successful operations. [Op:__inference_st_1]"""

NO_MEMORY = """Graph execution error:

Detected at node op_3.reshape/Reshape defined at (most recent call last):
<stack traces unavailable>
OOM when allocating tensor with shape[100000,32,384] and type float
\t [[{{node op_3.reshape/Reshape}}]]
Hint: If you want to see a list of allocated tensors when OOM happens, add report_tensor_allocations_upon_oom.

\t [[StatefulPartitionedCall]]
Hint: If you want to see a list of allocated tensors when OOM happens, add report_tensor_allocations_upon_oom.
 [Op:__inference_function_5801]"""

ORIGINS = {"collective_17": 'einsum "logits" (model.py:12)', "op_3": 'slicewise "mine" (model.py:30)'}


def test_a_scope_is_one_that_tensorflow_takes() -> None:
    scope = collective_scope(17, "all_reduce", ("rows", "c+öls"))
    with tf.Graph().as_default(), tf.name_scope(scope):
        assert tf.constant(1).name.startswith(scope)
    (found,) = failed_collectives(f"[[{{{{node a/{scope}/b}}}}]] {scope}")
    assert (found.scope, found.kind) == ("collective_17", "all_reduce")


def test_a_stalled_collective() -> None:
    error = tf.errors.DeadlineExceededError(None, None, ABORTED)
    translated = translate(error, ORIGINS)
    assert isinstance(translated, CollectiveError)
    assert str(translated) == (
        'all_reduce over mesh axes rows+cols, for einsum "logits" (model.py:12)\n'
        "failed: no progress for 300 seconds; waiting: CPU:0; in no collective: CPU:1\n"
        "The process must be restarted."
    )


CANCELLED = tf.errors.CancelledError(None, None, "RecvAsync is cancelled.\n\t [[{{node Identity_7/_70}}]]")
NOT_BEGUN = tf.errors.CancelledError(
    None,
    None,
    """Graph execution error:

Detected at node StatefulPartitionedCall_2 defined at (most recent call last):
<stack traces unavailable>
Function was cancelled before it was started
\t [[{{node StatefulPartitionedCall_2}}]] [Op:__inference__on_every_core_48251]""",
)


def test_an_allocation_that_failed_keeps_its_text() -> None:
    translated = translate(tf.errors.ResourceExhaustedError(None, None, NO_MEMORY), ORIGINS)
    fact = "OOM when allocating tensor with shape[100000,32,384] and type float"
    assert str(translated) == f'slicewise "mine" (model.py:30): {fact}'


def test_a_failure_whose_node_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collective_runtime(), "_failed", "train step: no progress for 3 seconds")
    translated = translate(CANCELLED, ORIGINS)
    assert isinstance(translated, CollectiveError)
    assert "does not say which" in str(translated)
    assert "failed: train step: no progress for 3 seconds (RecvAsync is cancelled.)" in str(translated)


@pytest.mark.parametrize(
    ("error", "fact"),
    [(CANCELLED, "RecvAsync is cancelled."), (NOT_BEGUN, "Function was cancelled before it was started")],
)
def test_an_error_on_a_core_whose_text_is_lost(error: tf.errors.CancelledError, fact: str) -> None:
    """Another core was in a collective, or had not begun, as happens where processors are few and busy."""
    assert not is_collective_failure(error)
    translated = translate(error, ORIGINS)
    assert isinstance(translated, ExecutionError)
    assert f"lost its text: the other cores were cancelled ({fact})" in str(translated)
    assert lost_its_text(translated)


def test_an_error_of_a_local_operation() -> None:
    error = tf.errors.InvalidArgumentError(None, None, LOCAL)
    assert not is_collective_failure(error)
    translated = translate(error, ORIGINS)
    assert isinstance(translated, ExecutionError)
    assert str(translated) == (
        'slicewise "mine" (model.py:30): INVALID_ARGUMENT: Input to reshape is a tensor with 4 values'
    )


def test_an_error_of_no_known_operation() -> None:
    error = tf.errors.ResourceExhaustedError(
        None, None, "{{function_node __inference_f_1}} OOM when allocating tensor\n\t [[{{node MatMul}}]] [Op:f]"
    )
    assert str(translate(error, {})) == "OOM when allocating tensor"


@pytest.mark.parametrize("kind", ["all_reduce", "permute"])
def test_no_axes(kind: str) -> None:
    assert failed_collectives(collective_scope(1, kind, ()))[0].kind == kind
