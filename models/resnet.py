"""The residual network with 50 layers, for images."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import gin
import tensorflow as tf

import meshtf as mtf
from meshtf.layers import VarianceScalingInitializer

EXPANSION = 4
"""The factor by which a block's output has more filters than its 3x3 convolution."""

_HE = VarianceScalingInitializer(scale=2.0, mode="fan_out", distribution="untruncated_normal")


@gin.configurable(module="meshtf.models")
@dataclasses.dataclass(frozen=True)
class ResNet50:
    """Bottleneck blocks (He et al. 2016), "version 1.5": a block that halves the image does so in its 3x3 convolution.

    The training is that of Goyal et al. (2017): the last scale of each block starts at zero, and weights follow He et
    al. (2015). The classifier's have a standard deviation of 0.01. Batch normalization takes its statistics over the
    whole batch, on all of the mesh, unless `batch_norm_group_size` says otherwise.

    You may split `height` and `width`. The last stage has a 32nd of each, so that 256 can be split over 8 cores, and
    224 over 7. Channels between the layers are called `filters`, so that a rule may split them and not the images'
    channels. Windows are padded as "SAME".

    Attributes:
      num_classes: size of the dimension `classes`.
      stage_sizes: the blocks in each stage. Every stage but the first halves the image, and doubles the filters.
      width: the filters of the stem and of the first stage's 3x3 convolutions.
      batch_norm_momentum: the share of the moving averages that a step leaves in them.
      batch_norm_epsilon: the number added to variances.
      batch_norm_group_size: the number of images that have statistics together; None: all of the batch. See
        `mtf.layers.batch_norm` for the rules of a layout that keep a group's sums on few cores.
      label_smoothing: the share of a label that all classes get alike in the loss.
      check_labels: whether a step with a label that is no class raises IndexRangeError; else its loss is 0.
    """

    num_classes: int
    stage_sizes: Sequence[int] = (3, 4, 6, 3)
    width: int = 64
    batch_norm_momentum: float = 0.9
    batch_norm_epsilon: float = 1e-5
    batch_norm_group_size: int | None = None
    label_smoothing: float = 0.0
    check_labels: bool = True

    def __post_init__(self) -> None:
        sizes = self.stage_sizes if isinstance(self.stage_sizes, list | tuple) and self.stage_sizes else [None]
        if not all(isinstance(size, int) and size > 0 for size in [self.num_classes, self.width, *sizes]):
            raise ValueError(
                f"ResNet50: num_classes and width must be positive integers and stage_sizes a sequence of them, such "
                f"as (3, 4, 6, 3); they are {self.num_classes!r}, {self.width!r} and {self.stage_sizes!r}"
            )

    @property
    def classes(self) -> mtf.Dimension:
        return mtf.Dimension("classes", self.num_classes)

    def logits(self, images: mtf.Tensor, is_training: bool) -> mtf.Tensor:
        """The logits: [batch, height, width, channels] -> [batch, classes]."""
        x = self._convolved(images, self.width, 7, 2, is_training, name="stem")
        height, width = x.shape[-3:-1]
        x = mtf.max_pool(mtf.relu(x), {height.name: 3, width.name: 3}, 2, "SAME")
        for stage, num_blocks in enumerate(self.stage_sizes):
            for block in range(num_blocks):
                stride = 2 if stage and not block else 1
                with mtf.variable_scope(f"stage_{stage}/block_{block}"):
                    x = self._block(x, self.width * 2**stage, stride, is_training)
        pooled = x.mean(x.shape[-3:-1])
        initializer = mtf.layers.NormalInitializer(stddev=0.01)
        return mtf.layers.dense(pooled, [self.classes], kernel_initializer=initializer, name="logits")

    def metrics(self, features: Mapping[str, mtf.Tensor], is_training: bool) -> dict[str, mtf.Tensor]:
        """The "loss" and "accuracy" [batch], from `images` [batch, height, width, channels] and `labels` [batch]."""
        logits, labels = self.logits(features["images"], is_training), features["labels"]
        loss = mtf.layers.softmax_cross_entropy_with_logits(
            logits,
            labels,
            self.classes,
            label_smoothing=self.label_smoothing if is_training else 0.0,
            check_targets=self.check_labels,
        )
        is_right = mtf.equal(logits.argmax("classes"), labels)
        return {"loss": loss, "accuracy": is_right.astype(tf.float32)}

    def predict(self, features: Mapping[str, mtf.Tensor]) -> dict[str, mtf.Tensor]:
        """The likeliest "classes" [batch] and "probabilities" [batch, classes] of `images`."""
        logits = self.logits(features["images"], is_training=False)
        probabilities = logits.astype(tf.float32).softmax("classes")
        return {"classes": logits.argmax("classes"), "probabilities": probabilities}

    def _block(self, x: mtf.Tensor, width: int, stride: int, is_training: bool) -> mtf.Tensor:
        """A bottleneck block: [..., height, width, filters] -> [..., height / stride, width / stride, 4 · width
        filters].
        """
        outer = EXPANSION * width
        y = mtf.relu(self._convolved(x, width, 1, 1, is_training, name="reduce"))
        y = mtf.relu(self._convolved(y, width, 3, stride, is_training, name="convolve"))
        y = self._convolved(y, outer, 1, 1, is_training, name="expand", init_zero=True)
        if stride != 1 or x.shape[-1].size != outer:
            x = self._convolved(x, outer, 1, stride, is_training, name="shortcut")
        return mtf.relu(x + y)

    def _convolved(
        self,
        x: mtf.Tensor,
        filters: int,
        filter_size: int,
        stride: int,
        is_training: bool,
        *,
        name: str,
        init_zero: bool = False,
    ) -> mtf.Tensor:
        """A normalised convolution without a bias."""
        output_dim = mtf.Dimension("filters", filters)
        with mtf.variable_scope(name):
            y = mtf.layers.conv2d(x, output_dim, filter_size, stride, filter_initializer=_HE, name="conv2d")
            return mtf.layers.batch_norm(
                y,
                is_training,
                self.batch_norm_momentum,
                self.batch_norm_epsilon,
                init_zero=init_zero,
                name="batch_norm",
                group_size=self.batch_norm_group_size,
            )
