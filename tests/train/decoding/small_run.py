"""The folder of a run of a small language model, as its variables start."""

from __future__ import annotations

from pathlib import Path

import gin

from meshtf.train import RunFolder, Training
from meshtf.train.configuration import find_gin_file
from meshtf.train.decoding.options import keep_decoding
from meshtf.train.decoding.programs import greatest_sizes, scoring_program
from meshtf.train.trainer import mesh_of

LENGTH = 24
BINDINGS = (
    'Training.mesh_shape = "rows:2"',
    'Training.layout = "batch:rows"',
    "Training.batch_size = 4",
    f"TextTask.length = {LENGTH}",
    "TextTask.source = @TextFiles()",
    'TextFiles.patterns = "nowhere/*.txt"',
    "d_model = 16",
    "TransformerStack.num_layers = 1",
    "AttentionConfig.num_heads = 2",
    "AttentionConfig.d_kv = 8",
    "FeedForward.d_ff = 16",
    "NormalInitializer.stddev = 0.5",
)


def write_small_run(path: Path, *bindings: str) -> Training:
    """Writes its configuration and a checkpoint of step 3; the text that it would be trained on is nowhere."""
    gin.clear_config()
    folder = RunFolder(path)
    gin.parse_config_files_and_bindings([str(find_gin_file("lm_tiny.gin"))], [*BINDINGS, *bindings])
    folder.operative_config.write_text(gin.config_str())
    training = folder.read_training()
    keep_decoding()
    folder.operative_config.write_text(gin.operative_config_str())
    program = scoring_program(training, mesh_of(training), greatest_sizes(training))
    program.initialize()
    folder.checkpoints().save(3, program.variables, {})
    gin.clear_config()
    return training
