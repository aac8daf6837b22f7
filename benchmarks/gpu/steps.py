"""The meshtf programs that are measured on a GPU: each on any mesh, at full or tiny sizes.

The sizes of a benchmark are constants of its module. `Sized` changes them in a process that measures one program.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Mapping

import gin
import numpy as np
import tensorflow as tf

import meshtf as mtf
import meshtf.models  # the gin files need it
from meshtf.layers.attention import AttentionConfig
from meshtf.layers.transformer import FeedForward, LayerNorm, Residual, SelfAttention, TransformerStack
from meshtf.mesh_impl.mesh_impl import MeshImpl
from meshtf.models.vision_transformer import VisionTransformer
from meshtf.train.configuration import find_gin_file, read_configuration
from meshtf.train.data import TextTask
from meshtf.train.gin_files.bindings import Parameter
from meshtf.train.step_programs import training_step
from meshtf.train.training import configured_training

_BFLOAT16 = tf.bfloat16.as_numpy_dtype

Feeds = Mapping[str, np.ndarray]
Made = tuple[mtf.Function, Feeds]
"""A step, and its input arrays."""

_TINY_GPT2 = ("vocab_size=261", "max_length=16", "d_model=16", "d_ff=32", "num_layers=2", "num_heads=2", "d_kv=8")


@dataclasses.dataclass(frozen=True)
class WindowsOfText(TextTask):
    """Text in windows, each a single example that attends to all of itself, as in GPT-2's training."""

    @classmethod
    def of(cls, task: TextTask) -> WindowsOfText:
        return cls(**{field.name: getattr(task, field.name) for field in dataclasses.fields(task)})

    def inputs(self, batch: mtf.Dimension) -> dict[str, mtf.TensorSpec]:
        own = super().inputs(batch)
        return {name: spec for name, spec in own.items() if not name.endswith(("_segmentation", "_position"))}


@dataclasses.dataclass(frozen=True)
class Gpt2:
    """Sizes of a training step of GPT-2 124M, without dropout: the batch, the length and the dtype of activations.

    Attributes:
      is_packed: whether a row has several examples, which do not attend to one another.
      blocks: the number of blocks in which logits and loss are computed.
      bindings: additional gin bindings.
    """

    batch: int
    length: int = 1024
    dtype: str = "bfloat16"
    is_packed: bool = False
    blocks: int = 1
    bindings: tuple[str, ...] = ()

    @property
    def has_twin_in_jax(self) -> bool:
        """Whether the hand-written program matches: it has one example per row, and computes all logits at once."""
        return not self.is_packed and self.blocks == 1

    def made(self, mesh_impl: MeshImpl) -> Made:
        own = (
            f"Training.batch_size={self.batch}",
            f"TextTask.length={self.length}",
            f"Training.activation_dtype='{self.dtype}'",
            "dropout_rate=0.0",
            "SelfAttention.rotary=None",
            "Training.check_gradients=False",
            "Training.mesh_shape='all:1'",
            "Training.layout=''",
            f"TokenLoss.blocks={self.blocks}",
            *self.bindings,
        )
        files = [find_gin_file(f"{name}.gin") for name in ("lm_tiny", "gpt2")]
        read_configuration(files, [Parameter("", x) for x in own])
        try:
            training = configured_training()
            if not self.is_packed:
                assert isinstance(training.task, TextTask)
                training = dataclasses.replace(training, task=WindowsOfText.of(training.task))
            return training_step(training, mesh_impl), gpt2_feeds(training.task.inputs(training.batch))
        finally:
            gin.clear_config()


def tiny_gpt2() -> Gpt2:
    """GPT-2 with two small layers."""
    return Gpt2(2, 16, bindings=_TINY_GPT2)


def gpt2_feeds(inputs: Mapping[str, mtf.TensorSpec]) -> Feeds:
    """Random tokens, with one example per sequence."""
    generator, found = np.random.default_rng(0), dict[str, np.ndarray]()
    for name, spec in inputs.items():
        sizes = spec.shape.to_integer_list
        if name.endswith("_position"):
            found[name] = np.tile(np.arange(sizes[1], dtype=np.int32), (sizes[0], 1))
        elif name.endswith(("_segmentation", "_weights")):
            found[name] = np.ones(sizes, spec.dtype.as_numpy_dtype)
        else:
            found[name] = generator.integers(2, 200, sizes).astype(np.int32)
    return found


@dataclasses.dataclass(frozen=True)
class Vit:
    """Sizes of a training step of a Vision Transformer in bfloat16. Images are sent from the host each time.

    Attributes:
      batch: the number of images.
      side: their height and width.
      d_model, num_layers, num_heads: sizes of the model, by default those of ViT-S/16.
    """

    batch: int
    side: int = 224
    d_model: int = 384
    num_layers: int = 12
    num_heads: int = 6
    patch_size: int = 16
    num_classes: int = 1000

    def made(self, mesh_impl: MeshImpl) -> Made:
        attention = SelfAttention(AttentionConfig(self.num_heads, self.d_model // self.num_heads, use_bias=True))
        feed_forward = FeedForward(4 * self.d_model, activation="gelu", use_bias=True)
        stack = TransformerStack(
            sublayers=[attention, feed_forward],
            num_layers=self.num_layers,
            residual=Residual(norm=LayerNorm()),
            use_final_norm=False,
        )
        model = VisionTransformer(self.num_classes, self.d_model, self.patch_size, stack)
        images, labels = self.examples()

        def train_step(images: mtf.Tensor, labels: mtf.Tensor) -> mtf.Tensor:
            loss = mtf.reduce_mean(model.metrics({"images": images, "labels": labels}, is_training=True)["loss"][0])
            mtf.optimize.AdamWOptimizer(1e-4).minimize(loss)
            return loss

        names = ("batch", "height", "width", "channels")
        given = mtf.Shape([*zip(names, images.shape, strict=True)])
        inputs = {"images": mtf.TensorSpec(given, tf.bfloat16), "labels": mtf.TensorSpec(given[:1], tf.int32)}
        policy = mtf.VariableDType(tf.float32, activation_dtype=tf.bfloat16)
        step = mtf.function(train_step, mesh_impl, inputs=inputs, variable_dtype=policy)
        return step, {"images": images, "labels": labels}

    def examples(self) -> tuple[np.ndarray, np.ndarray]:
        """Random images in bfloat16, and labels."""
        generator = np.random.default_rng(0)
        images = generator.normal(size=[self.batch, self.side, self.side, 3]).astype(_BFLOAT16)
        return images, generator.integers(0, self.num_classes, [self.batch]).astype(np.int32)


@dataclasses.dataclass(frozen=True)
class Sized:
    """A benchmark with different sizes than on virtual CPUs.

    Attributes:
      module: the module of its sizes.
      sizes: new values for constants of the module, set before modules that read them are imported.
      make: makes the step, with its weights, and its feeds.
    """

    module: str
    sizes: Mapping[str, object]
    make: Callable[[MeshImpl], Made]

    def made(self, mesh_impl: MeshImpl) -> Made:
        self.set_sizes()
        return self.make(mesh_impl)

    def set_sizes(self) -> None:
        """Changes the constants in this process. The JAX programs read the same constants."""
        module = importlib.import_module(self.module)
        for name, value in self.sizes.items():
            assert hasattr(module, name), name
            setattr(module, name, value)


def resnet(mesh_impl: MeshImpl) -> Made:
    """ResNet-50's step, with its initial weights."""
    from benchmarks.workloads import resnet as workload  # reads the sizes
    from benchmarks.workloads import resnet_sizes

    step = workload.resnet_step(mesh_impl)
    if mesh_impl.devices:
        step.initialize(resnet_sizes.initial_weights())
    images, labels = resnet_sizes.examples()
    return step, {"images": images, "labels": labels}


def experts(mesh_impl: MeshImpl) -> Made:
    """The step of a layer of experts, with its initial weights."""
    from benchmarks.workloads import experts as workload  # reads the sizes
    from benchmarks.workloads import experts_sizes

    step = workload.experts_step(mesh_impl)
    return workload.with_weights(step) if mesh_impl.devices else step, {"x": experts_sizes.examples()}


def small_transformer(mesh_impl: MeshImpl) -> Made:
    """The small Transformer's step, with its initial weights."""
    from benchmarks.transformer_step import examples, meshtf_step, with_weights

    inputs, targets = examples()
    step = meshtf_step(mesh_impl)
    return with_weights(step) if mesh_impl.devices else step, {"inputs": inputs, "targets": targets}


def decoding(mesh_impl: MeshImpl) -> Made:
    """Decoding of 64 tokens for each of 16 prompts by `lm_tiny`'s model, with random weights."""
    from benchmarks.decoding import program_on, prompts

    return program_on(mesh_impl), prompts()


PROGRAMS: Mapping[str, Gpt2 | Sized | Vit] = {
    "GPT-2 124M, bfloat16, 16 x 1024": Gpt2(16),
    "the small Transformer": Sized("benchmarks.transformer_step", {}, small_transformer),
    "decoding, 16 prompts, 64 tokens": Sized("benchmarks.decoding", {}, decoding),
    "16 experts of 1024 x 4096, 16 x 1024 tokens": Sized(
        "benchmarks.workloads.experts_sizes",
        {"BATCH": 16, "LENGTH": 1024, "D_MODEL": 1024, "D_FF": 4096, "EXPERTS": 16, "CAPACITY": 128},
        experts,
    ),
    "ViT-S, bfloat16, 128 images of 224 x 224": Vit(128),
    "ResNet-50, 64 images of 224 x 224": Sized(
        "benchmarks.workloads.resnet_sizes", {"BATCH": 64, "SIDE": 224, "CLASSES": 1000, "DTYPE": np.float32}, resnet
    ),
    "ResNet-50, bfloat16, 64 images of 224 x 224": Sized(
        "benchmarks.workloads.resnet_sizes", {"BATCH": 64, "SIDE": 224, "CLASSES": 1000, "DTYPE": _BFLOAT16}, resnet
    ),
    "GPT-2 124M, bfloat16, 8 x 1024": Gpt2(8),
    "GPT-2 124M, bfloat16, 16 x 1024, several examples to a row": Gpt2(16, is_packed=True),
    "GPT-2 124M, bfloat16, 16 x 1024, the loss in 8 blocks": Gpt2(16, blocks=8),
    "GPT-2 124M, float32, 8 x 1024": Gpt2(8, dtype="float32"),
}
"""The measured programs by name, in the order of measuring. Programs that compile longest are last."""

TINY: Mapping[str, Gpt2 | Sized | Vit] = {
    "GPT-2 of two small layers": tiny_gpt2(),
    "ViT of two small layers": Vit(2, 8, 16, 2, 2, 4, 10),
    "ResNet of one block, bfloat16": Sized(
        "benchmarks.workloads.resnet_sizes",
        {"BATCH": 4, "SIDE": 16, "CLASSES": 10, "STAGES": (1,), "DTYPE": _BFLOAT16},
        resnet,
    ),
    "2 experts of 8 x 16, 2 x 8 tokens": Sized(
        "benchmarks.workloads.experts_sizes",
        {"BATCH": 2, "LENGTH": 8, "D_MODEL": 8, "D_FF": 16, "EXPERTS": 2, "CAPACITY": 8},
        experts,
    ),
}
"""Programs for a trial without a GPU."""
