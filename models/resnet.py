"""Residual networks with 18 to 152 layers, for images."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import gin

import meshtf as mtf
from meshtf.errors import ShapeError, counted
from meshtf.field_checks import check_choice, check_kinds, check_not_negative, check_shares, check_sizes
from meshtf.layers import VarianceScalingInitializer
from meshtf.models._activations import in_activation_dtype
from meshtf.models._classification import ImageClassifier

EXPANSIONS = {"basic": 1, "bottleneck": 4}
"""The factor by which a block's output has more filters than its 3x3 convolutions, for each kind of block."""

VERSIONS = ("1", "1.5")
PADDINGS = ("SAME", "SYMMETRIC")

STEMS = ("pooled", "plain")

_HE = VarianceScalingInitializer(scale=2.0, mode="fan_out", distribution="untruncated_normal")


@gin.configurable(module="meshtf.models")
@dataclasses.dataclass(frozen=True)
class ResNet(ImageClassifier):
    """A residual network (He et al. 2016) for images.

    | layers | `block` | `stage_sizes` |
    |---|---|---|
    | 18 | "basic" | (2, 2, 2, 2) |
    | 34 | "basic" | (3, 4, 6, 3) |
    | 50 | "bottleneck" | (3, 4, 6, 3) |
    | 101 | "bottleneck" | (3, 4, 23, 3) |
    | 152 | "bottleneck" | (3, 8, 36, 3) |

    A basic block has two 3x3 convolutions. A bottleneck block has one, between two 1x1 convolutions. In "version 1.5"
    a bottleneck block that halves the image does so in its 3x3 convolution. In version 1 the first 1x1 convolution
    does so. Basic blocks are the same in both.

    The training is that of Goyal et al. (2017): the last scale of each block starts at zero, and weights follow He et
    al. (2015). The classifier's weights have a standard deviation of 0.01. Batch normalization takes its statistics
    over the whole batch, on all cores, unless you set `batch_norm_group_size`.

    You may split `height` and `width`. The last stage has a 32nd of each, so that 256 can be split over 8 cores, and
    224 over 7. Channels between the layers are called `filters`, so that a rule may split them and not the images'
    channels.

    Attributes:
      num_classes: size of the dimension `classes`.
      stage_sizes: the blocks in each stage. Every stage but the first halves the image, and doubles the filters.
      stage_strides: how many times smaller each stage makes the image; by default 1 in the first stage, and 2 after it.
      width: the filters of the stem and of the first stage's 3x3 convolutions.
      batch_norm_momentum: the share of the moving averages that each step keeps.
      batch_norm_epsilon: the number added to variances.
      batch_norm_group_size: the number of images that share statistics; None: the whole batch. See
        `mtf.layers.batch_norm` for layout rules that keep a group's sums on few cores.
      label_smoothing: the share of each label that the loss divides equally among all classes.
      check_labels: whether a label that is no class raises IndexRangeError; if not, its loss is 0.
      block: the kind of block, "basic" or "bottleneck".
      version: "1.5" or "1".
      stem: "pooled", a 7x7 convolution and a pooling that make the image four times smaller; or "plain", a 3x3
        convolution that leaves small images as large as they are (section 4.2 of He et al. 2016).
      num_channels: the number of channels of the images. If given, images with another number raise ShapeError.
      padding: the padding of windows, "SAME" as in TensorFlow, or "SYMMETRIC" as in the published weights of PyTorch.
    """

    num_classes: int
    stage_sizes: Sequence[int] = (3, 4, 6, 3)
    width: int = 64
    batch_norm_momentum: float = 0.9
    batch_norm_epsilon: float = 1e-5
    batch_norm_group_size: int | None = None
    label_smoothing: float = 0.0
    check_labels: bool = True
    block: str = "bottleneck"
    version: str = "1.5"
    stem: str = "pooled"
    padding: str = "SAME"
    num_channels: int | None = None
    stage_strides: Sequence[int] | None = None

    def __post_init__(self) -> None:
        check_kinds(self)
        check_shares(self, "batch_norm_momentum", "label_smoothing")
        check_not_negative(self, "batch_norm_epsilon")
        check_sizes(self, "batch_norm_group_size", "num_channels")
        options = {"block": EXPANSIONS, "version": VERSIONS, "stem": STEMS, "padding": PADDINGS}
        for field, choices in options.items():
            check_choice(self, field, choices)
        name = type(self).__name__
        sizes = self.stage_sizes if isinstance(self.stage_sizes, list | tuple) and self.stage_sizes else [None]
        if not all(isinstance(size, int) and size > 0 for size in [self.num_classes, self.width, *sizes]):
            raise ValueError(
                f"{name}: num_classes and width must be positive integers and stage_sizes a sequence of them, such "
                f"as (3, 4, 6, 3); they are {self.num_classes!r}, {self.width!r} and {self.stage_sizes!r}"
            )

        strides = self.strides
        if len(strides) != len(sizes) or not all(isinstance(stride, int) and stride > 0 for stride in strides):
            raise ValueError(
                f"{name}: stage_strides must be {len(sizes)} positive integers, one for each stage of stage_sizes, and "
                f"is {self.stage_strides!r}"
            )

    @property
    def strides(self) -> Sequence[int]:
        """The stride of each stage's first block."""
        if self.stage_strides is None:
            return (1, *(2 for _ in self.stage_sizes[1:]))
        return self.stage_strides if isinstance(self.stage_strides, list | tuple) else ()

    def logits(self, images: mtf.Tensor, is_training: bool) -> mtf.Tensor:
        """The logits: [batch, height, width, channels] -> [batch, classes].

        Raises:
          ShapeError: the images have other channels than `num_channels`.
        """
        x = self.feature_map(images, is_training)
        initializer = mtf.layers.NormalInitializer(stddev=0.01)
        return mtf.layers.dense(x.mean(x.shape[-3:-1]), [self.classes], kernel_initializer=initializer, name="logits")

    def feature_map(self, images: mtf.Tensor, is_training: bool) -> mtf.Tensor:
        """The result of the last stage: [batch, height, width, channels] -> [batch, height, width, filters], smaller.

        Raises:
          ShapeError: the images have other channels than `num_channels`.
        """
        if self.num_channels is not None and images.shape[-1].size != self.num_channels:
            raise ShapeError(
                f"{type(self).__name__}: the first convolution takes {counted(self.num_channels, 'channel')}, but the "
                f"images are [{images.shape}]; convert them, or set num_channels"
            )
        x = self._begun(in_activation_dtype(images), is_training)
        for stage, (num_blocks, stride) in enumerate(zip(self.stage_sizes, self.strides, strict=True)):
            for block in range(num_blocks):
                with mtf.variable_scope(f"stage_{stage}/block_{block}"):
                    x = self._block(x, self.width * 2**stage, 1 if block else stride, is_training)
        return x

    def _begun(self, images: mtf.Tensor, is_training: bool) -> mtf.Tensor:
        """The stem: [batch, height, width, channels] -> [batch, height / 4, width / 4, filters], or of full size."""
        if self.stem == "plain":
            return mtf.relu(self._convolved(images, self.width, 3, 1, is_training, name="stem"))
        x = mtf.relu(self._convolved(images, self.width, 7, 2, is_training, name="stem"))
        height, width = x.shape[-3:-1]
        return mtf.max_pool(x, {height.name: 3, width.name: 3}, 2, self.padding)

    def _block(self, x: mtf.Tensor, width: int, stride: int, is_training: bool) -> mtf.Tensor:
        """A block: [..., height, width, filters] -> [..., height / stride, width / stride, outer filters]."""
        outer = EXPANSIONS[self.block] * width
        make = self._basic if self.block == "basic" else self._bottleneck
        y = make(x, width, stride, is_training)
        if stride != 1 or x.shape[-1].size != outer:
            x = self._convolved(x, outer, 1, stride, is_training, name="shortcut")
        return mtf.relu(x + y)

    def _basic(self, x: mtf.Tensor, width: int, stride: int, is_training: bool) -> mtf.Tensor:
        """The term that a basic block adds."""
        y = mtf.relu(self._convolved(x, width, 3, stride, is_training, name="convolve_0"))
        return self._convolved(y, width, 3, 1, is_training, name="convolve_1", init_zero=True)

    def _bottleneck(self, x: mtf.Tensor, width: int, stride: int, is_training: bool) -> mtf.Tensor:
        """The term that a bottleneck block adds."""
        first, second = (stride, 1) if self.version == "1" else (1, stride)
        y = mtf.relu(self._convolved(x, width, 1, first, is_training, name="reduce"))
        y = mtf.relu(self._convolved(y, width, 3, second, is_training, name="convolve"))
        outer = EXPANSIONS[self.block] * width
        return self._convolved(y, outer, 1, 1, is_training, name="expand", init_zero=True)

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
            y = mtf.layers.conv2d(x, output_dim, filter_size, stride, self.padding, _HE, name="conv2d")
            return mtf.layers.batch_norm(
                y,
                is_training,
                self.batch_norm_momentum,
                self.batch_norm_epsilon,
                init_zero=init_zero,
                name="batch_norm",
                group_size=self.batch_norm_group_size,
            )


@gin.configurable(module="meshtf.models")
@dataclasses.dataclass(frozen=True)
class ResNet50(ResNet):
    """The `ResNet` with 50 layers, whose blocks are the default.

    Its variables have the same names as those of a `ResNet`.

    The attributes are those of a `ResNet`: `mtf.models.ResNet` describes them.
    """
