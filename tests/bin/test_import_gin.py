"""The program that translates gin of Mesh TensorFlow."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshtf.bin import import_gin
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


def test_other_models_and_no_files_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "lm.gin"
    source.write_text("run.model_type = 'lm'")
    for path, words in ((source, "an encoder and a decoder"), (tmp_path / "absent.gin", "No such file")):
        assert import_gin.main([import_gin.PROGRAM, str(path)]) == ExitStatus.BAD_CONFIGURATION
        assert words in capsys.readouterr().err
    assert import_gin.main([import_gin.PROGRAM]) == ExitStatus.BAD_CONFIGURATION
    assert "--source is needed" in capsys.readouterr().err
