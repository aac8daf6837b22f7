"""Plans published trainings on their own meshes. Prints the seconds to plan, and each core's memory and bytes sent.

    python -m benchmarks.published.trainings
    python -m benchmarks.published.trainings --only lingvo_128b

Peaks are compared with the memory of a core of the original machine. Nothing runs, and no device is needed.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections.abc import Iterator
from typing import Any

import gin

import meshtf as mtf
import meshtf.models.encoder_decoder
import meshtf.models.resnet
import meshtf.models.transformer_lm
import meshtf.train.data
from benchmarks.measuring.machine import machine
from meshtf.layers.transformer import Residual, TokenEmbedding
from meshtf.lowering.report.report import Report
from meshtf.train.configuration import find_gin_file, read_configuration
from meshtf.train.step_programs import training_step
from meshtf.train.training import configured_training

GIB, GB = 1 << 30, 10**9


@gin.configurable(module="benchmarks")
@dataclasses.dataclass(frozen=True)
class SplitResidual(Residual):
    """A residual connection with a layout of its own: what sublayers give is brought to it (Xu et al. 2021)."""

    layout: str = ""

    def after(self, x: mtf.Tensor, y: mtf.Tensor, *, is_training: bool, depth: mtf.Tensor | None = None) -> mtf.Tensor:
        return super().after(x, mtf.with_layout(y, self.layout), is_training=is_training, depth=depth)


@gin.configurable(module="benchmarks")
@dataclasses.dataclass(frozen=True)
class SplitEmbedding(TokenEmbedding):
    """Embedded tokens in the layout of the residual connections."""

    layout: str = ""

    def __call__(self, *arguments: Any, **named: Any) -> mtf.Tensor:
        return mtf.with_layout(super().__call__(*arguments, **named), self.layout)


@dataclasses.dataclass(frozen=True)
class Training:
    """A training as it was published.

    Attributes:
      name: the name of its row.
      mesh_shape, layout: the mesh's shape and the layout on it.
      batch_size: the number of sequences, or of images.
      length: the tokens of each sequence; 0 for images.
      files: gin files of the model.
      bindings: gin bindings that follow these.
      gibibytes: the memory of one core of its machine.
    """

    name: str
    mesh_shape: str
    layout: str
    batch_size: int
    length: int
    files: tuple[str, ...]
    bindings: tuple[str, ...]
    gibibytes: int = 16

    def report(self) -> Report:
        """The report of one step, planned like meshtf-plan."""
        read_configuration([find_gin_file(name) for name in self.files], [*self.all_bindings()])
        training = configured_training()
        mesh_impl = mtf.PlanMeshImpl(training.mesh_shape, training.layout, options=training.mesh_options)
        return training_step(training, mesh_impl).report()

    def with_plain_attention(self) -> Training:
        """The training with whole matrices of scores, as was usual then."""
        sublayers = ("SelfAttention", "CrossAttention")[: 2 if _PAIRS[0] in self.bindings else 1]
        plain = (f"{name}.algorithm = 'plain'" for name in sublayers)
        return dataclasses.replace(self, bindings=(*self.bindings, *plain))

    def all_bindings(self) -> Iterator[str]:
        yield from _TEXT if self.length else ()
        if self.length:
            yield f"TextTask.length = {self.length}"
        yield f"Training.mesh_shape = '{self.mesh_shape}'"
        yield f"Training.layout = '{self.layout}'"
        yield f"Training.batch_size = {self.batch_size}"
        yield "Training.num_steps = 1"
        yield from self.bindings


def _lines(text: str) -> tuple[str, ...]:
    return tuple(line.strip() for line in text.strip().splitlines())


_TEXT = _lines("""
    Training.task = @TextTask()
    TextTask.source = @python_library()
    TextTask.vocabulary = @ByteVocabulary()
""")
_LANGUAGE = ("TextTask.objective = @LanguageModel()", "Training.model = @TransformerLM()")
_PAIRS = ("TextTask.objective = @TextPairs()", "TextTask.arrangement = @Pad()", "Training.model = @EncoderDecoder()")
_ADAFACTOR = ("Training.optimizer = @AdafactorOptimizer()",)
_ADAM = ("Training.optimizer = @AdamOptimizer()", "AdamOptimizer.learning_rate = 1e-3")
_BFLOAT16 = ("Training.activation_dtype = 'bfloat16'",)
_RECOMPUTED = ("TransformerStack.recompute = 'nothing'",)


def _language_model(d_model: int, d_ff: int, num_heads: int, num_layers: int) -> tuple[str, ...]:
    """The bindings of Lingvo's language model, with heads of size 128."""
    return _lines(f"""
        TransformerLM.d_model = {d_model}
        TransformerLM.embedding = @TokenEmbedding()
        TransformerLM.stack = @TransformerStack()
        TokenEmbedding.vocabulary = @VocabularyEmbedding()
        VocabularyEmbedding.vocab_size = 32000
        VocabularyEmbedding.scale_logits = True
        TransformerStack.num_layers = {num_layers}
        TransformerStack.sublayers = [@SelfAttention(), @FeedForward()]
        SelfAttention.config = @AttentionConfig()
        AttentionConfig.num_heads = {num_heads}
        AttentionConfig.d_kv = 128
        FeedForward.d_ff = {d_ff}
    """)


_GATED = _lines("""
    FeedForward.activation = ("gelu", "linear")
    TransformerStack.bias = @RelativeBias()
    RelativeBias.config = @AttentionConfig()
""")
_TWO_DIMENSIONAL = _lines("""
    TransformerStack.residual = @SplitResidual()
    SplitResidual.layout = "batch:x;d_model:y"
    TransformerLM.embedding = @SplitEmbedding()
    SplitEmbedding.vocabulary = @VocabularyEmbedding()
    SplitEmbedding.layout = "batch:x;d_model:y"
""")
_PLAIN = _lines("""
    FeedForward.activation = "gelu"
    TokenEmbedding.positions = @SinusoidalPositions()
    SplitEmbedding.positions = @SinusoidalPositions()
""")


@dataclasses.dataclass(frozen=True)
class LingvoModel:
    """A language model of Lingvo, tasks/lm/params/synthetic_packed_input.py, on a mesh [x, y]."""

    name: str
    mesh: tuple[int, int]
    batch_size: int
    length: int
    num_layers: int
    d_model: int = 8192
    d_ff: int = 65536
    num_heads: int = 128
    is_gated: bool = True
    optimizer: tuple[str, ...] = _ADAFACTOR

    def by_rules(self) -> Training:
        return self._training("by rules", ())

    def two_dimensional(self) -> Training:
        return self._training("2-D", _TWO_DIMENSIONAL)

    def _training(self, how: str, more: tuple[str, ...]) -> Training:
        model = _language_model(self.d_model, self.d_ff, self.num_heads, self.num_layers)
        kept = ("Training.parameter_layout = 'd_model:x;heads:y;d_ff:y;vocab:y'",)
        x, y = self.mesh
        return Training(
            f"{self.name} {x}x{y} {how}",
            f"x:{x};y:{y}",
            "batch:x;heads:y;d_ff:y;vocab:y",
            self.batch_size,
            self.length,
            (),
            _LANGUAGE + model + (_GATED if self.is_gated else _PLAIN) + more + kept + _RECOMPUTED + self.optimizer
            + _BFLOAT16,
        )  # fmt: skip


_WIDE = {"d_model": 12288, "d_ff": 49152, "num_heads": 96, "is_gated": False}
LINGVO = (
    LingvoModel("Lingvo 128B", (8, 16), 16, 1024, 64),
    LingvoModel("Lingvo 128B", (16, 32), 128, 1024, 64),
    LingvoModel("Lingvo 128B", (32, 64), 512, 1024, 64),
    LingvoModel("Lingvo 175B", (64, 32), 1024, 2048, 96, **_WIDE),
    LingvoModel("Lingvo 1T", (16, 32), 16, 512, 128, 16384, 131072, 256),
    LingvoModel("Lingvo 41B", (16, 32), 256, 2048, 24, **_WIDE, optimizer=_ADAM),
    LingvoModel("Lingvo 162B", (16, 32), 64, 2048, 96, **_WIDE, optimizer=_ADAM),
    LingvoModel("LaMDA 137B", (32, 64), 256, 1024, 64),
)


def _mesh_tensorflow_lm(size: int, mesh_shape: str) -> Training:
    """Mesh TensorFlow's model: d_ff = 8192 n, heads = 8 n, with n = 2^size (Shazeer et al. 2018)."""
    n = 2**size
    sizes = (f"d_ff = {int(8192 * n)}", f"num_heads = {int(8 * n)}")
    model = _LANGUAGE + sizes + _ADAFACTOR + _BFLOAT16
    layout = ";".join(
        rule
        for rule in ("batch:batch", "heads:model", "d_ff:model", "vocab:model")
        if "model" in mesh_shape or ":batch" in rule
    )
    billions = {-1: 0.14, 0: 0.22, 1: 0.37, 2: 0.67, 3: 1.28, 4: 2.48, 5: 4.9}[size]
    name = f"Mesh-TensorFlow LM {billions}B"
    return Training(name, mesh_shape, layout, 256, 256, ("mesh_tensorflow_lm_5b.gin",), model, gibibytes=8)


MESH_TENSORFLOW = (
    _mesh_tensorflow_lm(-1, "batch:32"),
    _mesh_tensorflow_lm(0, "batch:32"),
    _mesh_tensorflow_lm(1, "model:4;batch:8"),
    _mesh_tensorflow_lm(2, "model:4;batch:8"),
    _mesh_tensorflow_lm(3, "model:8;batch:16"),
    _mesh_tensorflow_lm(4, "batch:16;model:32"),
    _mesh_tensorflow_lm(5, "batch:16;model:32"),
)


def _gshard(experts: int, layers: int, name: str, million_tokens: int, length: int = 1024) -> Training:
    """A training of Lepikhin et al. 2020. The batch counts the tokens of source and target together."""
    policy = _RECOMPUTED if layers == 36 else ()
    sequences = million_tokens * 2**20 // length // 2
    bindings = _PAIRS + _ADAFACTOR + policy + (f"group_size = {sequences * length // experts}",)
    return Training(
        f"GShard {experts}E {layers}L", f"all:{experts}", "batch:all;experts:all", sequences, length, (name,), bindings
    )


GSHARD = (
    _gshard(2048, 36, "gshard_600b.gin", 4),
    _gshard(2048, 12, "gshard_200b.gin", 4),
    _gshard(512, 36, "gshard_150b.gin", 1),
    _gshard(512, 12, "gshard_50b.gin", 1),
    _gshard(128, 36, "gshard_37b.gin", 1),
    _gshard(128, 12, "gshard_12b.gin", 1),
)


def _gpipe(stages: int, layers: int, microbatches: int = 32) -> Training:
    """Huang et al. 2019, table 1: a Transformer with as many layers as fit, in float32, with 12 bytes per weight."""
    schedule = _lines(f"""
        TransformerStack.pipeline = @PipelineSchedule()
        PipelineSchedule.num_stages = {stages}
        PipelineSchedule.num_microbatches = {microbatches}
    """)
    model = _LANGUAGE + _language_model(2048, 8192, 32, layers) + ("AttentionConfig.d_kv = 64",)
    if stages == 1:
        schedule = (f"Training.num_microbatches = {microbatches}",)
    bindings = model + schedule + _RECOMPUTED + _ADAM + ("FeedForward.activation = 'relu'",)
    return Training(
        f"GPipe K={stages}",
        f"stages:{stages}",
        "stage:stages;vocab:stages" if stages > 1 else "",
        32,
        1024,
        (),
        bindings,
    )


GPIPE = (_gpipe(1, 13), _gpipe(8, 103), _gpipe(32, 415), _gpipe(128, 1663))

RESNET = (
    Training(
        "ResNet-50, batch 32k",
        "rows:2048",
        "batch:rows;batch_groups:rows.0;batch_group:rows.1",
        32768,
        0,
        ("resnet50.gin",),
        ("Training.task = @images_on_paper()", "images_on_paper.size = 224", "Training.optimizer = @LarsOptimizer()",
         "LarsOptimizer.learning_rate = 29.0", "ResNet50.batch_norm_group_size = 64",
         "Training.axis_parts = 'rows:512x4'") + _BFLOAT16,
    ),
)  # fmt: skip

TRAININGS = (
    *MESH_TENSORFLOW,
    *GSHARD,
    *(training for own in LINGVO for training in (own.by_rules(), own.two_dimensional())),
    *GPIPE,
    *RESNET,
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="rows whose names have this text")
    arguments = parser.parse_args()
    print(machine())
    print(f"{'training':36} {'seconds':>8} {'peak GiB':>9} {'of':>4} {'sent GB':>9}")
    for training in TRAININGS:
        if arguments.only.lower() in training.name.lower():
            began = time.perf_counter()
            report = training.report()
            seconds = time.perf_counter() - began
            peak, sent = report.memory.peak / GIB, report.bytes_sent_per_core / GB
            print(f"{training.name:36} {seconds:8.1f} {peak:9.2f} {training.gibibytes:4} {sent:9.3f}", flush=True)


if __name__ == "__main__":
    main()
