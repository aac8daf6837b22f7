"""Undocumented names of TensorFlow's tracing, its operations and its protos."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tests.tensorflow_private.private_name import PrivateName, runtime_state

_XLA = "tensorflow.compiler.tf2xla.ops.gen_xla_ops"
_HLO = "tensorflow.compiler.xla.service.hlo_pb2"
_XLA_DATA = "tensorflow.compiler.xla.xla_data_pb2"
_BUNDLE = "tensorflow.core.protobuf.tensor_bundle_pb2"
_STABLEHLO = """
module @negated {
  func.func public @main(%x: tensor<2xf32>) -> tensor<2xf32> {
    %y = stablehlo.negate %x : tensor<2xf32>
    return %y : tensor<2xf32>
  }
}
"""


def _compiled(body: Any, *arguments: Any) -> list[Any]:
    return tf.function(body, jit_compile=True, autograph=False)(*map(tf.constant, arguments)).numpy().tolist()


def _hlo(body: Any, *signature: tf.TensorSpec) -> str:
    function: Any = tf.function(body, jit_compile=True, autograph=False).get_concrete_function(*signature)
    tf.constant(0)  # for which it starts
    return runtime_state().get_compiler_ir("", "CPU", function.name, list(signature), [], stage="hlo").decode()


def _runs_a_module(xla_call_module: Any) -> None:
    def body(x: tf.Tensor) -> tf.Tensor:
        options = {"platforms": ["CPU"], "disabled_checks": ["platform"]}
        return xla_call_module([x], version=9, module=_STABLEHLO, Sout=[x.shape], Tout=[x.dtype], **options)[0]

    assert _compiled(body, [1.0, 2.0]) == [-1.0, -2.0]


def _is_the_replica(xla_replica_id: Any) -> None:
    assert "replica-id()" in _hlo(lambda: xla_replica_id())


def _is_a_barrier(xla_optimization_barrier: Any) -> None:
    spec = tf.TensorSpec([2])
    assert "opt-barrier" in _hlo(lambda x, y: xla_optimization_barrier(input=[x, y]), spec, spec)


def _gives_stablehlo_and_draws_nothing(_: Any) -> None:
    tf.random.set_seed(3)
    drawn = [float(tf.random.uniform([])) for _ in range(2)]
    tf.random.set_seed(3)
    assert float(tf.random.uniform([])) == drawn[0]
    assert " negate(" in _hlo(lambda x: -x, tf.TensorSpec([2]))
    assert float(tf.random.uniform([])) == drawn[1], "it draws a number of the user's"


def _has_entries(proto: Any) -> None:
    module = proto()
    alias = module.input_output_alias.entries.add(output_shape_index=[1], parameter_number=2)
    module.computations.add(name="main").instructions.add(opcode="copy").shape.is_dynamic_dimension.append(True)
    assert proto.FromString(module.SerializeToString()) == module
    assert alias.parameter_number == 2


def _is_a_kind(kind: Any) -> None:
    assert isinstance(kind, int)


def _has_precisions(proto: Any) -> None:
    assert [proto.Precision.Value(name) for name in ("DEFAULT", "HIGH", "HIGHEST")] == [0, 1, 2]


def _has_slices(proto: Any) -> None:
    entry = proto(shard_id=1, offset=2, size=3)
    entry.shape.dim.add(size=4)
    extent = entry.slices.add().extent.add(start=5)
    assert not extent.HasField("length")


def _has_shards(proto: Any) -> None:
    assert proto(num_shards=2).num_shards == 2


def _maps_lines_back(extract_stack: Any) -> None:
    found = []

    @tf.function(autograph=True)
    def written(x: tf.Tensor) -> tf.Tensor:
        if x > 0:  # which autograph rewrites
            x = x + 1
        found.extend(frame.filename for frame in extract_stack())
        return x

    written(tf.constant(1))
    assert __file__ in found
    assert not any("__autograph_generated_file" in name for name in found)


def _sees_tapes(is_empty: Any) -> None:
    assert is_empty()
    with tf.GradientTape() as tape:
        assert not is_empty()
        with tape.stop_recording():
            assert is_empty()


def _sees_compiled_callers(is_inside: Any) -> None:
    seen = []

    def inner(x: tf.Tensor) -> tf.Tensor:
        seen.append(is_inside(tf.compat.v1.get_default_graph()))
        return x

    for jit_compile in (False, True):
        called = tf.function(inner, autograph=False)
        tf.function(lambda x, called=called: called(x), autograph=False, jit_compile=jit_compile)(tf.constant(1.0))
    assert seen == [False, True]


TRACING = (
    PrivateName(_XLA, "xla_call_module", "xla_operations", "run a StableHLO module", (), _runs_a_module),
    PrivateName(_XLA, "xla_replica_id", "xla_operations", "tell a core its number", (), _is_the_replica),
    PrivateName(_XLA, "xla_optimization_barrier", "xla_operations", "keep the order of operations", (), _is_a_barrier),
    PrivateName(
        "tensorflow.python.eager.context",
        "Context.get_compiler_ir",
        "xla_modules",
        "hand programs to XLA's compiler",
        ("device_name", "platform_name", "function_name", "flat_args", "captured_inputs", "stage"),
        _gives_stablehlo_and_draws_nothing,
    ),
    PrivateName(_HLO, "HloModuleProto", "xla_modules", "read and change HLO", (), _has_entries),
    PrivateName(_HLO, "MAY_ALIAS", "xla_modules", "write variables in place on TPUs", (), _is_a_kind),
    PrivateName(_XLA_DATA, "PrecisionConfig", "xla_modules", "say how exact products are", (), _has_precisions),
    PrivateName(_XLA_DATA, "F8E4M3FN", "xla_modules", "know products of float8", (), _is_a_kind),
    PrivateName(_BUNDLE, "BundleEntryProto", "bundle_protos", "check indexes of checkpoints", (), _has_slices),
    PrivateName(_BUNDLE, "BundleHeaderProto", "bundle_protos", "find the files of a checkpoint", (), _has_shards),
    PrivateName(
        "tensorflow.python.util.tf_stack", "extract_stack", "stack_traces", "name the user's line", (), _maps_lines_back
    ),
    PrivateName(
        "tensorflow.python.pywrap_tfe",
        "TFE_Py_TapeSetIsEmpty",
        "surroundings",
        "refuse programs under a tape",
        (),
        _sees_tapes,
    ),
    PrivateName(
        "tensorflow.python.ops.control_flow_util",
        "GraphOrParentsInXlaContext",
        "surroundings",
        "refuse programs inside of what XLA compiles",
        (),
        _sees_compiled_callers,
    ),
)
