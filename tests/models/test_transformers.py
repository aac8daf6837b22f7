"""The published Transformers: their sizes, and the same training on every mesh, as a scan and unrolled.

T5, BERT and GPT-2 are compared with one core, their loss and their gradients, each under some of six layouts.
Dropout drops in GPT-2 alone. Twenty steps are taken on virtual CPUs, where they are cheaper than on the interpreter: by
Llama and T5 1.0 under one layout; in the long run by Llama under all six, and by BERT.
"""

from __future__ import annotations

import re

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import GraphError, MeshtfError
from meshtf.testing import assert_close, largest, rounding_bound
from meshtf.train.configuration import configuration_errors
from tests.models.transformers import (
    LENGTH,
    MODELS,
    TERMS,
    TOKENS,
    VOCAB_SIZE,
    Case,
    case,
    configured,
    interpreted,
    like,
)
from tests.optimize.interpreted_training import InterpretedTraining

LAYOUTS = [
    ("rows:2", "batch:rows"),
    ("rows:2", "length:rows"),
    ("rows:2", "d_model:rows"),
    ("rows:2", "layers:rows;vocab:rows"),
    ("rows:2;cols:2", "batch:rows;heads:cols;d_ff:cols;vocab:cols"),
    ("rows:2;cols:2", "heads:rows;d_kv:cols;d_ff:rows+cols"),
]
LEARNING_RATE = 0.1
BFLOAT16_TERMS = 12
"""Some fifty bfloat16 tensors lie on the way to a logit, whose errors differ from token to token: in the mean over 24
of them 8 * sqrt(50 / 24) are left. The logits are of size 1 at the start, whatever the loss is."""

# Hyper-parameters as published; so many weights are in the checkpoints that their authors gave out.
PUBLISHED = {
    "gpt2": 124_439_808,
    "gpt2_xl": 1_557_611_200,
    "llama": 6_738_415_616,
    "llama_2_70b": 68_976_648_192,
    "qwen3_8b": 8_190_735_360,
    "qwen3_30b_a3b": 30_532_122_624,
    "mixtral_8x7b": 46_702_792_704,
    "deepseek_v2": 235_741_434_880,
    "deepseek_v3": 671_026_404_352,
    "gpt_oss_20b": 20_914_757_184,
    "gpt_oss_120b": 116_829_156_672,
    "bert": 109_514_298,
    "t5_1_0": 222_903_552,
    "t5_1_1": 247_577_856,
}
PUBLISHED_IMPORTED = {"roberta": 124_697_433, "modernbert": 149_655_232, "opt": 125_239_296, "bart": 139_420_416}


def num_weights(name: str) -> int:
    """Of a model in its full size."""
    made = case(name, sizes="")
    graph = mtf.Graph()
    mesh = mtf.Mesh(graph)
    with graph:
        made.loss({n: mtf.zeros(mesh, spec.shape, spec.dtype) for n, spec in made.specs.items()})
    return sum(variable.unpadded_shape.size for variable in graph.trainable_variables)


@pytest.mark.parametrize(("name", "expected"), {**PUBLISHED, **PUBLISHED_IMPORTED}.items())
def test_each_architecture_has_as_many_weights_as_published(name: str, expected: int) -> None:
    assert num_weights(name) == expected


@pytest.mark.parametrize(
    ("name", "billions"), [("mesh_tensorflow_lm_5b", 4.9), ("mesh_tensorflow_translation_3b", 2.9)]
)
def test_the_largest_models_of_mesh_tensorflow(name: str, billions: float) -> None:
    assert num_weights(name) / 1e9 == pytest.approx(billions, abs=0.05)


@pytest.mark.parametrize(
    ("name", "layers", "d_model", "heads"), [("2b", 10, 2560, 40), ("8b", 16, 4096, 64), ("137b", 64, 8192, 128)]
)
def test_lamda_has_the_weights_of_its_shape(name: str, layers: int, d_model: int, heads: int) -> None:
    """Attention of heads of 128, a gated layer 8 times as wide, norms, biases of 32 distances, and 32,000 pieces."""
    layer = 4 * d_model * heads * 128 + 3 * d_model * 8 * d_model + 2 * d_model
    weights = layers * layer + d_model + 32 * heads
    assert weights / 1e9 == pytest.approx(float(name[:-1]), rel=0.08)
    assert num_weights(f"lamda_{name}") == weights + 32_000 * d_model


def one_core(made: Case) -> InterpretedTraining:
    return InterpretedTraining(made.training_step(LEARNING_RATE), made.specs, "rows:1;cols:1", "")


@pytest.mark.parametrize(
    ("name", "layouts"),
    [
        ("gpt2", LAYOUTS[2:3]),
        pytest.param("gpt2", LAYOUTS[::2], marks=pytest.mark.long),
        ("bert", LAYOUTS[1::4]),
        pytest.param("bert", LAYOUTS[1::2], marks=pytest.mark.long),
        pytest.param("t5_1_0", LAYOUTS[1::2], marks=pytest.mark.long),
        ("t5_1_1", LAYOUTS[4:5]),
        pytest.param("t5_1_0", LAYOUTS[::2], marks=pytest.mark.long),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_loss_and_gradients_are_the_same_under_every_layout(name: str, layouts: list[tuple[str, str]]) -> None:
    made = case(name, *([] if name == "gpt2" else ["dropout_rate = 0.0"]))
    batch, one = made.batch(), one_core(made)
    before = one.variables
    loss = one.step(**batch)
    gradients = {v: (before[v] - value) / LEARNING_RATE for v, value in one.variables.items()}
    np.testing.assert_array_equal(one["embedding/weights"][VOCAB_SIZE:], 0.0, "the vocabulary's padding")
    for mesh_shape, layout in layouts:
        many = InterpretedTraining(made.training_step(LEARNING_RATE), made.specs, mesh_shape, layout)
        assert_close(many.step(**batch), loss, terms=TERMS, dtype="float32", what=layout)
        for variable, gradient in gradients.items():
            found = (before[variable] - many[variable]) / LEARNING_RATE
            # Beside the gradient, the weight was rounded, before it was divided by the rate.
            atol = rounding_bound("float32", TERMS, largest(gradients[like(variable)]))
            atol += rounding_bound("float32", 2, largest(before[variable]) / LEARNING_RATE)
            np.testing.assert_allclose(found, gradient, rtol=0, atol=atol, err_msg=f"{variable} under {layout}")


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "layouts"),
    [
        ("bert", LAYOUTS[3:4]),
        ("t5_1_0", LAYOUTS[2:3]),
        ("llama", LAYOUTS),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_twenty_steps_on_devices_are_those_of_one_core(name: str, layouts: list[tuple[str, str]]) -> None:
    made = case(name, "dropout_rate = 0.0")
    batches = [made.batch(seed) for seed in range(2)] * 10
    one = one_core(made)
    expected = [one.step(**batch) for batch in batches]
    assert expected[-1] < expected[0]
    for mesh_shape, layout in layouts:
        mesh_impl = mtf.SpmdMeshImpl(mesh_shape, layout)
        step = mtf.function(made.training_step(LEARNING_RATE), mesh_impl, inputs=made.specs)
        losses = [float(step(**batch)) for batch in batches]
        assert_close(losses, expected, terms=TERMS, steps=np.arange(20), dtype="float32", what=layout)
        for variable in step.graph.trainable_variables:
            value = step.variables[variable.full_name]
            kept = one[variable.full_name][tuple(slice(n) for n in value.shape)]
            size = largest(one[like(variable.full_name)])
            assert_close(value, kept, terms=TERMS, magnitude=size, steps=20, what=f"{variable} under {layout}")


@pytest.mark.parametrize("name", ["gpt2", pytest.param("t5_1_1", marks=pytest.mark.long)])
def test_a_scan_equals_unrolled_layers_dropout_included(name: str) -> None:
    losses = {}
    for unroll in (False, True):
        made = case(name, f"TransformerStack.unroll = {unroll}", "dropout_rate = 0.2")
        training = one_core(made)
        losses[unroll] = [training.step(**made.batch()) for _ in range(2)]
    assert_close(losses[False], losses[True], terms=TERMS, steps=np.arange(2), dtype="float32")


RECOMPUTED = ("'everything'", "{'self_attention': 'nothing'}", "'nested'")
"""Policies that keep less and less. The last keeps inputs: of segments of layers, and of the layers of one segment."""


def recomputed(policy: str, num_layers: int) -> Case:
    return case("gpt2", f"TransformerStack.recompute = {policy}", f"num_layers = {num_layers}", "dropout_rate = 0.2")


@pytest.mark.parametrize("policies", [RECOMPUTED[::2], pytest.param(RECOMPUTED, marks=pytest.mark.long)], ids=len)
def test_recomputation_changes_no_loss(policies: tuple[str, ...]) -> None:
    losses = []
    for policy in policies:
        made = recomputed(policy, num_layers=4)
        training = one_core(made)
        losses.append([training.step(**made.batch()) for _ in range(2)])
    for other in losses[1:]:
        assert_close(other, losses[0], terms=TERMS, steps=np.arange(2), dtype="float32")


def test_recomputation_saves_memory() -> None:
    peaks = [one_core(recomputed(policy, num_layers=16)).lowering.report().memory.peak for policy in RECOMPUTED]
    assert peaks[0] > peaks[1] > peaks[2]


@pytest.mark.plain_cpu
@pytest.mark.parametrize("name", ["llama", pytest.param("t5_1_0", marks=pytest.mark.long)])
def test_a_step_with_bfloat16_activations(name: str) -> None:
    """The loss is that of float32 within bfloat16's precision, and variables stay float32."""
    made = case(name, "dropout_rate = 0.0")
    arrays = {n: (made.specs[n].shape, array) for n, array in made.batch().items()}

    def step(**features: mtf.Tensor) -> list[mtf.Tensor]:
        return [made.training_step()(**features)]

    wide, narrow = (interpreted(step, arrays, activation_dtype=dtype) for dtype in (tf.float32, tf.bfloat16))
    assert wide.results[0] != narrow.results[0]
    assert_close(narrow.results[0], wide.results[0], terms=BFLOAT16_TERMS, magnitude=1.0, dtype=tf.bfloat16)
    for variable, value in narrow.variables.items():
        assert np.isfinite(value).all(), variable
        assert value.dtype == wide.variables[variable].dtype


def token_losses(made: Case, targets: list[int], segments: list[int], positions: list[int]) -> np.ndarray:
    """Of one row, [length]."""
    columns = {"targets": targets, "targets_segmentation": segments, "targets_position": positions}
    rows = {n: np.tile(np.array(column, np.int32), (4, 1)) for n, column in columns.items()}
    rows["targets_weights"] = (rows["targets_segmentation"] > 0).astype(np.float32)
    arrays = {n: (TOKENS, array) for n, array in rows.items()}

    def weighted(**features: mtf.Tensor) -> list[mtf.Tensor]:
        return [mtf.multiply(*made.model.metrics(features, False)["loss"])]

    return interpreted(weighted, arrays).results[0][0]


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_packed_examples_do_not_see_each_other(name: str) -> None:
    """The loss of two packed examples is that of each in a row of its own, and padding has none."""
    made = case(name)
    packed = token_losses(made, [2, 3, 4, 5, 6, 0], [1, 1, 1, 2, 2, 0], [0, 1, 2, 0, 1, 0])
    first = token_losses(made, [2, 3, 4, 0, 0, 0], [1, 1, 1, 0, 0, 0], [0, 1, 2, 0, 0, 0])
    second = token_losses(made, [5, 6, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0])
    assert_close(packed, [*first[:3], *second[:2], 0.0], terms=TERMS)


@pytest.mark.parametrize("name", ["bert", "t5_1_0"])
def test_padding_of_the_inputs_is_not_seen(name: str) -> None:
    """Also where nothing says where it is: inputs with padding at the end have the logits of shorter inputs."""
    model = configured(name)

    def logits(length: int) -> np.ndarray:
        ids = np.zeros([2, length], np.int32)
        ids[:, :4] = [[2, 3, 4, 5], [6, 7, 8, 9]]
        arrays = {"inputs": (mtf.Shape([("batch", 2), ("length", length)]), ids)}
        arrays["targets"] = (mtf.Shape([("batch", 2), ("length", 4)]), ids[:, :4])
        return interpreted(lambda **features: [model.logits(features, False)], arrays).results[0][:, :4]

    assert_close(logits(6), logits(4), terms=TERMS)


@pytest.mark.parametrize(
    ("name", "parameters", "there", "lacking", "hint"),
    [
        ("t5_1_0", [], ["targets"], "inputs", "; does the task"),
        ("bert", [], ["inputs", "target"], "targets", '; did you mean "target"'),
        ("bert", [], ["inputs", "targets"], "targets_weights", ""),
        ("llama", ["TransformerLM.sees_prefix = True"], ["targets"], "targets_prefix", ""),
    ],
)
def test_a_model_says_which_feature_it_lacks(
    name: str, parameters: list[str], there: list[str], lacking: str, hint: str
) -> None:
    model = configured(name, *parameters)
    graph = mtf.Graph()
    mesh = mtf.Mesh(graph)
    features = {n: mtf.zeros(mesh, TOKENS, tf.int32) for n in there}
    found = f'needs a feature "{lacking}", but the batch has {", ".join(there)}'
    with graph, pytest.raises(GraphError) as raised:
        model.metrics(features, True)
    assert found in str(raised.value)
    assert hint in str(raised.value)


def test_learned_positions_end_somewhere() -> None:
    model = configured("gpt2", "max_length = 4")
    graph = mtf.Graph()
    mesh = mtf.Mesh(graph)
    with graph, pytest.raises(ValueError, match=f"there are 4 learned positions, fewer than {LENGTH}"):
        model.metrics({"targets": mtf.zeros(mesh, TOKENS, tf.int32)}, True)


def test_every_published_configuration_is_counted() -> None:
    of_experts = {"qwen3_30b_a3b", "mixtral_8x7b", "deepseek_v2", "deepseek_v3", "gpt_oss_20b", "gpt_oss_120b"}
    assert {*MODELS} == {*PUBLISHED, "mesh_tensorflow_lm_5b", "mesh_tensorflow_translation_3b"} - of_experts


@pytest.mark.parametrize(
    ("name", "parameter", "message"),
    [
        (
            "llama",
            "TransformerStack.num_layers = %num_layer",
            'macro %num_layer has no value; did you mean "num_layers"?',
        ),
        (
            "llama",
            "TransformerLM.stack = @TransformerStack",
            "TransformerLM.stack must be a TransformerStack, or a ChainedStacks, and is @TransformerStack; in gin",
        ),
        (
            "llama",
            "TransformerLM.output = 3",
            "TransformerLM.output must be a VocabularyEmbedding, or None, and is 3; in gin @Name() makes one",
        ),
        ("t5_1_0", "EncoderDecoder.encoder = None", "EncoderDecoder.encoder must be a TransformerStack, and is None"),
        ("bert", "d_model = '32'", "MaskedLM.d_model must be an integer, and is '32'"),
        ("bert", "MaskedLM.activation = 'glu'", "activation 'glu' is not a function; did you mean \"gelu\"?"),
    ],
)
def test_what_is_configured_wrongly_is_told_when_it_is_made(name: str, parameter: str, message: str) -> None:
    with pytest.raises(MeshtfError, match=re.escape(message)), configuration_errors():
        configured(name, parameter)
