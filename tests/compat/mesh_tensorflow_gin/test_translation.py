"""Gin of Mesh TensorFlow, line by line: what has a counterpart, what has none, and that nothing is lost unseen."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import gin
import pytest

from meshtf.checkpoint.conversion.operative_config import read_source
from meshtf.compat.mesh_tensorflow_gin.translation import Translation, translated
from meshtf.models import EncoderDecoder
from meshtf.train.configuration import read_configuration
from tests.compat.mesh_tensorflow_gin.whole_source import OPERATIVE

SIZES = """\
d_ff = 64
d_kv = 8
d_model = 32
dropout_rate = 0.1
num_heads = 4
num_layers = 2
Unitransformer.positional_embedding = False
SelfAttention.relative_attention_type = 'bias_shared'
"""


@pytest.fixture(autouse=True)
def _clear_gin() -> Iterator[None]:
    yield
    gin.clear_config()


def translation(folder: Path, text: str) -> Translation:
    (folder / "source.gin").write_text(text)
    return translated(read_source(folder / "source.gin"), "source.gin")


def lines_of(made: Translation) -> dict[str, str]:
    return dict(line.split(" = ", 1) for line in made.text.splitlines() if " = " in line)


CARRIED: dict[str, dict[str, str]] = {
    "Unitransformer.shared_embedding_and_softmax_weights = False": {
        "EncoderDecoder.output": "@output/VocabularyEmbedding()",
        "VocabularyEmbedding.scale_logits": "False",
    },
    "Unitransformer.shared_embedding_and_softmax_weights = False\n"
    "decoder/Unitransformer.shared_embedding_and_softmax_weights = True": {},
    "Unitransformer.z_loss = 0.01\nencoder/Unitransformer.z_loss = 0.5": {"TokenLoss.z_loss": "0.01"},
    "decoder/Unitransformer.label_smoothing = 0.1\nUnitransformer.label_smoothing = 0.2": {
        "TokenLoss.label_smoothing": "0.1"
    },
    "Unitransformer.vocab_divisor = 64": {"VocabularyEmbedding.multiple": "64"},
    "sizes = 48\nother = %sizes\nDenseReluDense.hidden_size = %other": {"FeedForward.d_ff": "48"},
    "LayerStack.norm_epsilon = 1e-05": {"RmsNorm.epsilon": "1e-05"},
    "encoder/make_layer_stack.layers = [\n  @layers.SelfAttention,  # twice\n  @layers.SelfAttention,\n"
    "  @layers.DenseReluDense,\n]": {
        "encoder/TransformerStack.sublayers": "[@SelfAttention(), @SelfAttention(), @FeedForward()]"
    },
    "decoder/make_layer_stack.layers = [('a', @SelfAttention), ('b', @EncDecAttention), ('c', @DenseReluDense)]": {},
    "TalkingHeadsSelfAttention.key_size = 3\nmake_layer_stack.layers = [@SelfAttention, @DenseReluDense]\n"
    "decoder/make_layer_stack.layers = [@SelfAttention, @EncDecAttention, @DenseReluDense]": {},
    "Bitransformer.shared_embedding = False": {"EncoderDecoder.targets_embedding": "@targets/TokenEmbedding()"},
    "encoder/SelfAttention.relative_attention_type = None": {"encoder/TransformerStack.bias": "None"},
    "SelfAttention.fold_scaling_into_initializer = False": {"AttentionConfig.query_scale": "None"},
    "AdafactorOptimizer.beta1 = 0.9\nadafactor_decay_rate_pow.exponent = 0.7": {
        "AdafactorOptimizer.beta_1": "0.9",
        "AdafactorOptimizer.decay_exponent": "0.7",
        "Training.optimizer": "@AdafactorOptimizer()",
    },
    "run.keep_checkpoint_max = 7\nget_variable_dtype.activation_dtype = 'bfloat16'": {
        "Training.keep_checkpoints": "7",
        "Training.activation_dtype": '"bfloat16"',
    },
    "run.mesh_shape = []\nrun.layout_rules = 'batch:all,experts:all'": {
        "Training.mesh_shape": '"one:1"',
        "Training.layout": '""',
    },
    # the product of three, and the same function with an offset: it decays over a tenth of the steps behind it
    "run.train_steps = 100\nrun.learning_rate_schedule = [\n @x.truncated_rsqrt, @x.linear_decay, @x.constant, 3.0]\n"
    "constant.value = 0.5\nlinear_decay.steps_or_fraction = 25\ntruncated_rsqrt.warmup_steps = 10.0": {
        "NoamSchedule.total_steps": "100",
        "NoamSchedule.warmup_steps": "10",
        "NoamSchedule.linear_decay_fraction": "0.25",
        "NoamSchedule.multiplier": "1.5",
    },
    "run.train_steps = 100\nrun.learning_rate_schedule = @learning_rate_schedule_noam\n"
    "learning_rate_schedule_noam.offset = 60": {
        "NoamSchedule.offset": "60",
        "NoamSchedule.linear_decay_fraction": repr(0.1 * 40 / 100),
    },
    "run.train_steps = 9\nrun.total_run_steps = 50\nrun.learning_rate_schedule = @slanted_triangular\n"
    "slanted_triangular.ratio = 8": {
        "SlantedTriangularSchedule.total_steps": "50",
        "SlantedTriangularSchedule.ratio": "8",
        "Training.num_steps": "9",
    },
    # the rise takes a tenth of 50 steps, and not of the 10 behind the start
    "run.train_steps = 50\nrun.learning_rate_schedule = @slanted_triangular\nslanted_triangular.start_step = 40": {
        "SlantedTriangularSchedule.total_steps": "90",
        "SlantedTriangularSchedule.start_step": "40",
    },
    "run.learning_rate_schedule = @constant_learning_rate\nconstant_learning_rate.learning_rate = 0.001": {
        "AdafactorOptimizer.learning_rate": "@ConstantSchedule()",
        "ConstantSchedule.value": "0.001",
    },
}


@pytest.mark.parametrize("text", CARRIED)
def test_what_has_a_counterpart_is_carried_over(text: str, tmp_path: Path) -> None:
    """Nothing is written where it is so anyway; meshtf reads the rest, and makes the model of it."""
    made, base = translation(tmp_path, f"{SIZES}{text}\n"), translation(tmp_path, SIZES)
    assert (made.losses, base.losses) == ((), ())
    lines = {name: value for name, value in lines_of(made).items() if lines_of(base).get(name) != value}
    assert {name: lines.get(name) for name in CARRIED[text]} == CARRIED[text]
    assert bool(lines) == bool(CARRIED[text])
    (tmp_path / "own.gin").write_text(made.text)
    read_configuration([tmp_path / "own.gin"], [])
    EncoderDecoder()


LOST = {
    "encoder/Unitransformer.d_model = 64": "encoder and decoder differ, and have one EncoderDecoder.d_model here",
    "make_bitransformer.encoder_name = 'decoder'": "encoder and decoder share no variables here",
    "encoder/make_layer_stack.layers = [({'num_heads': 6}, @SelfAttention)]": "parameters of their own",
    "decoder/make_layer_stack.layers = [@SelfAttention, @MoE1D]": "of meshtf.layers.moe; the layers of T5 are taken",
    "LayerStack.sublayers_final = [@sublayer_rms_norm]": "T5 is taken, sublayer_rms_norm, sublayer_dropout",
    "encoder/sublayer_dropout.dropout_rate = 0.5": "Mesh TensorFlow reads it where there is no scope",
    "third/SelfAttention.num_heads = 2": "nothing is made in a scope third",
    "DenseReluDense.activation = 'snake'": "Mesh TensorFlow does not take this value",
    "SelfAttention.shared_kv = True": "keys and values have a kernel each here",
    "SelfAttention.some_new_parameter = 1": "there is no SelfAttention here, or it has no such parameter",
    "run.layout_rules = 'batch:data,memory:model'": "the model has no dimension memory here",
    "run.optimizer = @SGD": "another optimizer: choose one of meshtf.optimize",
    "run.learning_rate_schedule = @linear_warmup\nrun.train_steps = 3": "another schedule",
    "run.learning_rate_schedule = @learning_rate_schedule_noam\nrun.train_steps = 0": "float division by zero",
    "linear_warmup.steps_or_fraction = 3": "there is no linear_warmup here",
    "NAME = 'c4'\nget_vocabulary.mixture_or_task_name = %NAME": "a macro of get_vocabulary.mixture_or_task_name",
    "unused = 3": "a macro that no line of the source uses",
    "include 'models/absent.gin'": "there is no such file in the folder of this one, or above it: its lines "
    "are missing",
    "SelfAttention:\n  num_heads = 8": "this is not a binding",
}


@pytest.mark.parametrize("text", LOST)
def test_what_has_none_is_named(text: str, tmp_path: Path) -> None:
    losses = translation(tmp_path, f"{SIZES}{text}\n").losses
    assert LOST[text] in str(losses[0])
    assert str(losses[0]).startswith(f"line {SIZES.count(chr(10)) + 1}: {text.splitlines()[0][:40]}")


def test_no_line_of_a_whole_file_can_change_unseen(tmp_path: Path) -> None:
    """Each value that is another gives another translation, or another list of what is not in it."""
    found = lines_and_losses(tmp_path, OPERATIVE)
    for number, line in enumerate(OPERATIVE.splitlines()):
        name, _, value = line.partition(" = ")
        if not value or name.rpartition("/")[2] in WITHOUT_EFFECT or name in WITHOUT_EFFECT:
            continue
        other = next(new for old, new in OTHERS.items() if re.fullmatch(old, value))
        changed = OPERATIVE.splitlines()
        changed[number] = f"{name} = {other}"
        assert lines_and_losses(tmp_path, "\n".join(changed)) != found, line


def lines_and_losses(folder: Path, text: str) -> tuple[str, set[str]]:
    made = translation(folder, text)
    return made.text, {f"{loss.text} {loss.meaning}" for loss in made.losses}


OTHERS = {
    r"'[a-z].*'": "'another'", "''": "'x'", "True": "False", "False": "True", "None": "3", r"0\.0|0": "0.25",
    r"%\w+|[\d.e-]+": "7", r"\(.*": "('tokens_per_batch', 99)", r"\{.*": "{'inputs': 3}", r"\[\]": "'a:2'",
    r"\[@.*": "[@other]", "@.*": "@other",
}  # fmt: skip

WITHOUT_EFFECT = {
    "encoder/Unitransformer.label_smoothing", "encoder/Unitransformer.shared_embedding_and_softmax_weights",
    "encoder/Unitransformer.z_loss", "make_layer_stack.block_scope", "SelfAttention.combine_dims", "run.autostack",
    "run.iterations_per_loop", "rewrite_stack_variables.max_combined_variable_size", "sublayer_rms_norm.name",
}  # fmt: skip
"""What changes no result in Mesh TensorFlow."""


def test_included_files_count_where_they_are_included(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "base.gin").write_text(f"{SIZES}DenseReluDense.use_bias = True\nunused = 1\n")
    large = tmp_path / "models" / "large.gin"
    large.write_text("include 'models/base.gin'\nd_model = 64\ninclude 'models/large.gin'\n")
    made = translated(read_source(large), "large.gin")
    lines = lines_of(made)
    assert (lines["d_model"], lines["d_ff"], lines["FeedForward.use_bias"]) == ("64", "64", "True")
    unused, circle = map(str, made.losses)
    assert unused.startswith("base.gin, line 10: unused = 1\n")
    assert circle == "line 3: include 'models/large.gin'\n    the file includes itself"


def test_defaults_of_mesh_tensorflow_that_are_others_here_are_named(tmp_path: Path) -> None:
    positions, relative = map(str, translation(tmp_path, "d_model = 64\n").losses)
    assert positions.startswith("not given: Unitransformer.positional_embedding\n    Mesh TensorFlow then has a table")
    assert relative.startswith("not given: SelfAttention.relative_attention_type\n")
