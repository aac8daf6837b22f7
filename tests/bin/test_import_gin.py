"""The program that translates gin of Mesh TensorFlow."""

from __future__ import annotations

import resource
from pathlib import Path

import gin
import pytest

from meshtf.bin import import_gin
from meshtf.models import EncoderDecoder
from meshtf.train.configuration import read_configuration
from meshtf_programs.exit_status import ExitStatus

CONFIG = """\
from __gin__ import dynamic_registration
import mesh_tensorflow.transformer.utils

# Macros:
d_ff = 1024
d_kv = 64
d_model = 512
dropout_rate = 0.1
num_heads = 6
num_layers = 8

mesh_tensorflow.transformer.transformer_layers.DenseReluDense.activation = ['gelu', 'linear']
DenseReluDense.dropout_rate = %dropout_rate
decoder/mesh_tensorflow.transformer.transformer.Unitransformer.shared_embedding_and_softmax_weights = False
encoder/SelfAttention.num_heads = %num_heads
Unitransformer.z_loss = 0.0001
mesh_tensorflow.transformer.utils.run.batch_size = ('tokens_per_batch', 65536)
utils.run.sequence_length = {'inputs': 512, 'targets': 114}
utils.run.train_steps = 524288
utils.run.learning_rate_schedule = \\
    @learning_rate_schedules.learning_rate_schedule_noam
learning_rate_schedule_noam.warmup_steps = 10000
utils.run.model_type = 'bitransformer'
utils.run.mesh_shape = 'model:2,batch:4'
utils.run.layout_rules = 'ensemble:ensemble,batch:batch,d_ff:model,heads:model,vocab:model,experts:batch'
serialize_num_microbatches.tokens_per_microbatch_per_replica = 8192
SelfAttention.relative_attention_type = 'contextual'
"""


def test_a_configuration_of_t5(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is written is a configuration that meshtf reads; what is lost is named with its line."""
    source, output = tmp_path / "operative_config.gin", tmp_path / "own.gin"
    source.write_text(CONFIG)
    assert import_gin.main([import_gin.PROGRAM, str(source), f"--output={output}"]) == ExitStatus.DONE
    told = capsys.readouterr()
    read_configuration([output], [])
    written = dict(line.split(" = ") for line in output.read_text().splitlines() if " = " in line)
    assert written["d_model"] == "512"
    assert written["num_layers"] == "8"
    assert written["FeedForward.activation"] == '("gelu", "linear")'
    assert written["EncoderDecoder.output"] == "@output/VocabularyEmbedding()"
    assert written["Training.batch_size"] == "128"
    assert written["Training.num_steps"] == "524288"
    assert written["Training.mesh_shape"] == '"model:2;batch:4"'
    assert written["Training.layout"] == '"batch:batch;d_ff:model;heads:model;vocab:model"'
    assert written["AdafactorOptimizer.learning_rate"] == "@NoamSchedule()"
    assert written["NoamSchedule.total_steps"] == "524288"
    assert "line 26: serialize_num_microbatches.tokens_per_microbatch_per_replica = 8192" in told.err
    assert "set Training.num_microbatches" in told.err
    assert "line 27: SelfAttention.relative_attention_type = 'contextual'\n    positions are relative here" in told.err
    assert "DenseReluDense.dropout_rate" not in told.err
    assert import_gin.main([import_gin.PROGRAM, str(source), f"--output={output}"]) == ExitStatus.BAD_CONFIGURATION
    assert "is there already" in capsys.readouterr().err


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


def imported(folder: Path, text: str, *flags: str) -> tuple[str, int]:
    """What is written, and the status."""
    source, output = folder / "operative_config.gin", folder / "own.gin"
    source.write_text(text)
    output.unlink(missing_ok=True)
    status = import_gin.main([import_gin.PROGRAM, str(source), f"--output={output}", *flags])
    return output.read_text() if output.exists() else "", status


def model_of(folder: Path, text: str) -> EncoderDecoder:
    written, status = imported(folder, text)
    assert status == ExitStatus.DONE
    read_configuration([folder / "own.gin"], [])
    model = EncoderDecoder()
    gin.clear_config()
    assert written
    return model


def test_encoder_and_decoder_may_differ_in_all_that_they_have_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A scope's value goes to its side, whether the other has one of its own, or that of no scope, before or after."""
    text = f"""
{SIZES}
encoder/transformer.make_layer_stack.num_layers = 5
transformer.make_layer_stack.num_layers = %num_layers
encoder/SelfAttention.num_heads = 2
encoder/SelfAttention.key_value_size = 16
decoder/DenseReluDense.hidden_size = 128
decoder/DenseReluDense.activation = ['swish', 'linear']
DenseReluDense.activation = 'gelu'
DenseReluDense.dropout_rate = %dropout_rate
encoder/DenseReluDense.dropout_rate = 0.2
decoder/SelfAttention.relative_attention_num_buckets = 16
decoder/SelfAttention.dropout_rate = 0.3
sublayer_dropout.dropout_rate = 0.4
decoder/SelfAttention.num_memory_heads = 1
"""
    model = model_of(tmp_path, text)
    assert capsys.readouterr().err == ""
    assert (model.encoder.num_layers, model.decoder.num_layers) == (5, 2)
    (attention, feed_forward), (own, cross, last) = model.encoder.sublayers, model.decoder.sublayers
    assert (attention.config.num_heads, attention.config.d_kv) == (2, 16)
    assert attention.config.initializers.q.scale == 1 / 16
    assert (own.config.num_heads, own.config.d_kv, cross.config.num_heads) == (4, 8, 4)
    assert (attention.config.num_kv_heads, own.config.num_kv_heads, cross.config.num_kv_heads) == (None, 1, 1)
    assert (feed_forward.d_ff, last.d_ff) == (64, 128)
    assert (feed_forward.activation, last.activation) == ("gelu", ("swish", "linear"))
    assert (feed_forward.dropout_rate, last.dropout_rate) == (0.2, 0.1)
    assert (attention.options.dropout_rate, own.options.dropout_rate, cross.options.dropout_rate) == (0.1, 0.3, 0.3)
    assert (model.encoder.bias.num_buckets, model.decoder.bias.num_buckets) == (32, 16)
    assert model.encoder.bias.config.num_heads == 2
    assert (model.encoder.residual.dropout_rate, model.embedding.dropout_rate) == (0.4, 0.4)


def test_strict_writes_nothing_where_a_line_has_no_counterpart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f"{SIZES}SelfAttention.shared_kv = True\n"
    assert imported(tmp_path, text)[1] == ExitStatus.DONE
    lenient = capsys.readouterr().err
    assert "1 line has no counterpart:\n  line 9: SelfAttention.shared_kv = True\n    keys and values have" in lenient
    assert imported(tmp_path, text, "--strict") == ("", ExitStatus.BAD_CONFIGURATION)
    strict = capsys.readouterr().err
    assert lenient in strict
    assert "Nothing was written. Without --strict the other lines are written." in strict
    assert imported(tmp_path, SIZES, "--strict")[1] == ExitStatus.DONE
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("lengths", "size", "words"),
    [
        ("{'inputs': 0, 'targets': 0}", "('tokens_per_batch', 64)", "the sequences have no length"),
        ("{}", "('tokens_per_batch', 64)", "the sequences have no length"),
        ("{'inputs': 8}", "('tokens_per_batch',)", "no number of sequences or of tokens"),
        ("{'inputs': 8}", "('tokens_per_replica', 64)", "tokens_per_replica depends on the number of cores"),
    ],
)
def test_a_batch_of_no_size_is_a_line_that_is_lost(
    lengths: str, size: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "operative_config.gin"
    source.write_text(f"run.model_type = 'bitransformer'\nrun.batch_size = {size}\nrun.sequence_length = {lengths}\n")
    assert import_gin.main([import_gin.PROGRAM, str(source)]) == ExitStatus.DONE
    told = capsys.readouterr().err
    assert words in told
    assert told.startswith("2 lines have no counterpart:")
    source.write_text("run.model_type = 'bitransformer'\nrun.batch_size = ('tokens_per_batch', 64)\n")
    assert import_gin.main([import_gin.PROGRAM, str(source)]) == ExitStatus.DONE
    assert capsys.readouterr().err.startswith("1 line has no counterpart:\n  line 2: run.batch_size")


def test_a_full_disk_leaves_no_half_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same command would refuse to write over it."""
    source, output = tmp_path / "operative_config.gin", tmp_path / "own.gin"
    source.write_text(CONFIG)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        status = import_gin.main([import_gin.PROGRAM, str(source), f"--output={output}"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (status, "File too large" in capsys.readouterr().err) == (ExitStatus.BAD_FILE, True)
    assert list(tmp_path.iterdir()) == [source]


def test_other_models_and_no_files_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "lm.gin"
    source.write_text("run.model_type = 'lm'")
    for path, words in ((source, "an encoder with a decoder"), (tmp_path / "absent.gin", "No such file")):
        assert import_gin.main([import_gin.PROGRAM, str(path)]) == ExitStatus.BAD_CONFIGURATION
        assert words in capsys.readouterr().err
    output = tmp_path / "own.gin"
    for text in ("Training.num_steps = 3\nAdamWOptimizer.learning_rate = 0.1\n", "plain words\n", ""):
        source.write_text(text)
        given = [import_gin.PROGRAM, str(source), f"--output={output}"]
        assert import_gin.main(given) == ExitStatus.BAD_CONFIGURATION
        assert "lm.gin has no line with a counterpart in meshtf" in capsys.readouterr().err
        assert not output.exists()
    assert import_gin.main([import_gin.PROGRAM]) == ExitStatus.BAD_CONFIGURATION
    assert "--source is needed" in capsys.readouterr().err
