"""U-Net, which gives each pixel or voxel a class."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import gin
import numpy as np
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import ShapeError
from meshtf.field_checks import check_kinds, check_sizes
from meshtf.layers import VarianceScalingInitializer
from meshtf.layers.class_ids import are_right, likeliest_classes
from meshtf.models._activations import in_activation_dtype
from meshtf.models._features import feature

SHARED = "intersection_over_union"

_HE = VarianceScalingInitializer(scale=2.0, mode="fan_in", distribution="untruncated_normal")


@gin.configurable(module="meshtf.models")
@dataclasses.dataclass(frozen=True)
class UNet:
    """U-Net (Ronneberger et al. 2015) for images, and for volumes (Çiçek et al. 2016), with windows that keep sizes.

    Each level down has a pooling by 2, except the first, and two 3x3 convolutions with twice the filters. Each level up
    has a transposed convolution by 2, whose result is concatenated with that of the same level down, and two 3x3
    convolutions. You may split `batch`, and each spatial dimension if every core has a row of the lowest level. Sizes
    need not divide.

    The features are `images` [batch, height, width, channels] and `labels` [batch, height, width], or, with
    `num_spatial` 3, both with `depth` before `height`. You choose the names of the dimensions.

    Attributes:
      num_classes: size of the dimension `classes`.
      width: the filters of the first level.
      num_levels: the number of levels. Each spatial size must be a multiple of 2^(num_levels - 1).
      num_spatial: 2 for images, 3 for volumes.
      batch_norm: whether each 3x3 convolution has batch normalization instead of a bias. The paper has none.
      check_labels: whether a label that is no class raises IndexRangeError; if not, no metric counts its pixel, as for
        the unlabelled borders (255) of Pascal VOC.
    """

    num_classes: int
    width: int = 64
    num_levels: int = 5
    num_spatial: int = 2
    batch_norm: bool = False
    check_labels: bool = True

    def __post_init__(self) -> None:
        check_kinds(self)
        check_sizes(self, "num_classes", "width", "num_levels")
        if self.num_spatial not in (2, 3):
            raise ValueError(f"UNet: num_spatial is 2 for images or 3 for volumes, not {self.num_spatial!r}")

    @property
    def classes(self) -> mtf.Dimension:
        return mtf.Dimension("classes", self.num_classes)

    def logits(self, images: mtf.Tensor, is_training: bool) -> mtf.Tensor:
        """The logits: [batch, spatial dimensions, channels] -> [batch, spatial dimensions, classes].

        Raises:
          ShapeError: the images have other dimensions, or sizes that the levels do not divide.
        """
        self._check(images)
        x, before = in_activation_dtype(images), list[mtf.Tensor]()
        for level in range(self.num_levels):
            if level:
                x = mtf.max_pool(x, {dim.name: 2 for dim in self._spatial(x)}, 2)
            with mtf.variable_scope(f"down_{level}"):
                x = self._convolved_twice(x, self.width * 2**level, is_training)
            before.append(x)
        for level in reversed(range(self.num_levels - 1)):
            with mtf.variable_scope(f"up_{level}"):
                x = self._enlarged(x, self.width * 2**level)
                x = mtf.concat([before[level], x], "filters")
                x = self._convolved_twice(x, self.width * 2**level, is_training)
        return self._convolve(x, self.classes, 1, name="logits", use_bias=True)

    def metrics(
        self, features: Mapping[str, mtf.Tensor], is_training: bool
    ) -> dict[str, mtf.Tensor | tuple[mtf.Tensor, mtf.Tensor]]:
        """The "loss" and the "accuracy" of all pixels [batch, spatial dimensions].

        Labels may also be floating, with a last dimension `classes`: a distribution for each pixel, whose likeliest
        class is the right one.

        Without `check_labels`, both have weights: 0 for a pixel without a class, and 1 for all others.

        An evaluation also has the intersection over union of each class, [classes], for `held_out_metrics`.
        """
        logits, labels = self.logits(feature(features, "images"), is_training), feature(features, "labels")
        loss = mtf.layers.softmax_cross_entropy_with_logits(
            logits, labels, self.classes, check_targets=self.check_labels
        )
        found, labels = logits.argmax(self.classes), likeliest_classes(labels, self.classes)
        is_right = are_right(found, labels)
        metrics: dict[str, mtf.Tensor | tuple[mtf.Tensor, mtf.Tensor]] = {"loss": loss, "accuracy": is_right}
        if not self.check_labels:
            is_class = mtf.logical_and(mtf.greater_equal(labels, 0), mtf.less(labels, self.num_classes))
            found = mtf.where(is_class, found, -1)
            weights = is_class.astype(tf.float32)
            metrics = {"loss": (loss, weights), "accuracy": (is_right, weights)}
        if not is_training:
            metrics[SHARED] = self._shared(found, labels)
        return metrics

    def held_out_metrics(self, vectors: dict[str, np.ndarray]) -> dict[str, float]:
        """The "mean_intersection_over_union" of the classes that occur, over all held-out pixels together."""
        found = vectors[SHARED]
        return {} if np.isnan(found).all() else {f"mean_{SHARED}": float(np.nanmean(found))}

    def predict(self, features: Mapping[str, mtf.Tensor]) -> dict[str, mtf.Tensor]:
        """The likeliest "classes" [batch, spatial dimensions] of `images`."""
        return {"classes": self.logits(feature(features, "images"), is_training=False).argmax(self.classes)}

    def _shared(self, found: mtf.Tensor, labels: mtf.Tensor) -> tuple[mtf.Tensor, mtf.Tensor]:
        """The intersection over union of each class [classes], and its weight, the pixels of the union per image."""
        own = [mtf.one_hot(x, self.classes, dtype=tf.float32) for x in (found, labels)]
        shape = mtf.Shape([self.classes])
        both = mtf.reduce_sum(own[0] * own[1], output_shape=shape)
        union = mtf.reduce_sum(mtf.maximum(own[0], own[1]), output_shape=shape)
        return both / mtf.maximum(union, 1.0), union / float(labels.shape[0].size)

    def _spatial(self, x: mtf.Tensor) -> list[mtf.Dimension]:
        return list(x.shape[-1 - self.num_spatial : -1])

    def _convolved_twice(self, x: mtf.Tensor, filters: int, is_training: bool) -> mtf.Tensor:
        for number in range(2):
            with mtf.variable_scope(f"convolve_{number}"):
                dim = mtf.Dimension("filters", filters)
                x = self._convolve(x, dim, 3, name="conv", use_bias=not self.batch_norm)
                if self.batch_norm:
                    x = mtf.layers.batch_norm(x, is_training, 0.9, 1e-5, name="batch_norm")
                x = mtf.relu(x)
        return x

    def _convolve(self, x: mtf.Tensor, dim: mtf.Dimension, size: int, *, name: str, use_bias: bool) -> mtf.Tensor:
        layer = mtf.layers.conv2d if self.num_spatial == 2 else mtf.layers.conv3d
        return layer(x, dim, size, 1, filter_initializer=_HE, name=name, use_bias=use_bias)

    def _enlarged(self, x: mtf.Tensor, filters: int) -> mtf.Tensor:
        layer = mtf.layers.conv2d_transpose if self.num_spatial == 2 else mtf.layers.conv3d_transpose
        return layer(x, mtf.Dimension("filters", filters), 2, 2, name="enlarge", use_bias=True)

    def _check(self, images: mtf.Tensor) -> None:
        factor = 2 ** (self.num_levels - 1)
        if images.shape.ndims <= self.num_spatial + 1 or any(dim.size % factor for dim in self._spatial(images)):
            raise ShapeError(
                f"UNet: images [{images.shape}] must have a batch, {self.num_spatial} spatial dimensions and channels, "
                f"and each spatial size must be a multiple of {factor}, for {self.num_levels} levels; pad or crop them"
            )
