"""SSD, a detector that predicts the classes and the offsets of default boxes in one pass."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import gin
import numpy as np
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import ShapeError
from meshtf.field_checks import check_kinds, check_not_negative, check_shares, check_sizes
from meshtf.layers.class_ids import class_ids
from meshtf.models._features import feature
from meshtf.models.detection.average_precision import detection_counts, mean_average_precision
from meshtf.models.detection.boxes import COORDINATES, decoded, encoded
from meshtf.models.detection.default_boxes import DefaultBoxes
from meshtf.models.detection.matching import matched_objects
from meshtf.models.detection.multibox_loss import multibox_loss
from meshtf.models.detection.suppression import Detections, best_detections
from meshtf.models.resnet import ResNet

COUNTS = "detection_counts"

_SMALL = ("small_height", "small_width")


@gin.configurable(module="meshtf.models")
@dataclasses.dataclass(frozen=True)
class SSD:
    """A single-shot detector (Liu et al. 2016) on a residual network, by default that of MLPerf: SSD-ResNet-34.

    The features are `images` [batch, height, width, channels], `boxes` [batch, objects, coordinates], and `labels`
    [batch, objects]. A box is left, top, right and bottom, in shares of the image. Label 0 is the background: it stands
    for no object.

    You may split `batch`, `height` and `width`, and `filters` for the weights. Sizes need not divide. Small maps are
    made from maps that are not split: their dimensions are `small_height` and `small_width`. The boxes of all maps are
    concatenated, so that an image's boxes can be sorted.

    Attributes:
      num_classes: the classes of objects, and one for the background.
      backbone: the residual network that makes the first feature map. Its classifier is left out.
      default_boxes: the boxes of each cell.
      further_maps: the filters of a 1x1 and of a 3x3 convolution, and the stride of the latter, for each feature map
        after the first. With stride 1 there is no padding, and the map becomes smaller by 2.
      small_size: feature maps that are made from one of at most this height or width are small.
      least_overlap: default boxes match objects that they overlap by more than this intersection over union.
      negatives_per_positive: how many default boxes without an object count in the loss, for each with one.
      num_candidates: how many boxes of each class are considered.
      num_detections: how many boxes of an image are returned.
      least_score: detections of at most this probability are dropped.
      max_overlap: the largest intersection over union of two detections of a class.
    """

    num_classes: int
    backbone: ResNet
    default_boxes: DefaultBoxes = dataclasses.field(default_factory=DefaultBoxes)
    further_maps: Sequence[tuple[int, int, int]] = (
        (256, 512, 2),
        (256, 512, 2),
        (128, 256, 2),
        (128, 256, 1),
        (128, 256, 1),
    )
    small_size: int = 20
    least_overlap: float = 0.5
    negatives_per_positive: float = 3.0
    num_candidates: int = 200
    num_detections: int = 100
    least_score: float = 0.05
    max_overlap: float = 0.5

    def __post_init__(self) -> None:
        check_kinds(self)
        check_sizes(self, "num_classes", "small_size", "num_candidates", "num_detections")
        check_not_negative(self, "negatives_per_positive")
        check_shares(self, "least_overlap", "least_score", "max_overlap")
        if len(self.further_maps) + 1 != len(self.default_boxes.steps):
            raise ValueError(
                f"SSD: there are {len(self.further_maps) + 1} feature maps, with the backbone's, but default_boxes are "
                f"for {len(self.default_boxes.steps)}; give steps, scales and aspect_ratios for each"
            )

    @property
    def classes(self) -> mtf.Dimension:
        return mtf.Dimension("classes", self.num_classes)

    def outputs(self, images: mtf.Tensor, is_training: bool) -> tuple[mtf.Tensor, mtf.Tensor, mtf.Tensor]:
        """The logits [batch, anchors, classes], the offsets [batch, anchors, coordinates], and the anchors, in float32.

        Raises:
          ShapeError: the images do not have the size of the default boxes, or are too small for the feature maps.
        """
        size = self.default_boxes.image_size
        if any(dim.size != size for dim in images.shape[-3:-1]):
            raise ShapeError(
                f"SSD: images [{images.shape}] are not of {size} x {size}, for which the default boxes are made; "
                f"resize the images, or set DefaultBoxes.image_size"
            )
        logits, offsets, sizes = list[mtf.Tensor](), list[mtf.Tensor](), list[tuple[int, int]]()
        per_cell = self.default_boxes.boxes_per_cell
        for number, x in enumerate(self._maps(images, is_training)):
            height, width = (dim.size for dim in x.shape[-3:-1])
            sizes.append((height, width))
            with mtf.variable_scope(f"head_{number}"):
                logits.append(_head(x, per_cell[number], self.classes))
                offsets.append(_head(x, per_cell[number], COORDINATES))
        anchors = self.default_boxes.corners(sizes)
        where = mtf.Shape([("anchors", len(anchors)), COORDINATES])
        return (
            mtf.concat(logits, "anchors"),
            mtf.concat(offsets, "anchors"),
            mtf.constant(images.mesh, anchors, where),
        )

    def metrics(
        self, features: Mapping[str, mtf.Tensor], is_training: bool
    ) -> dict[str, mtf.Tensor | tuple[mtf.Tensor, mtf.Tensor]]:
        """The "loss" [batch]. An evaluation also has the counts of detections, for `held_out_metrics`."""
        logits, offsets, anchors = self.outputs(feature(features, "images"), is_training)
        boxes, labels = mtf.cast(feature(features, "boxes"), tf.float32), class_ids(feature(features, "labels"))
        found, own = matched_objects(anchors, boxes, labels, least_overlap=self.least_overlap)
        of_anchors = mtf.transpose(mtf.gather(boxes, found, labels.shape[-1]), offsets.shape)
        wanted = encoded(mtf.where(mtf.greater(own, 0), of_anchors, anchors), anchors)
        own = mtf.transpose(own, offsets.shape[:-1])
        loss = multibox_loss(logits, offsets, own, wanted, negatives_per_positive=self.negatives_per_positive)
        if is_training:
            return {"loss": loss}
        counts = detection_counts(self._detections(logits, offsets, anchors), boxes, labels, self.classes)
        return {"loss": loss, COUNTS: counts}

    def held_out_metrics(self, vectors: dict[str, np.ndarray]) -> dict[str, float]:
        """Removes the counts of all held-out images from `vectors`, and returns the average precisions from them."""
        return mean_average_precision(vectors.pop(COUNTS), self.num_classes)

    def predict(self, features: Mapping[str, mtf.Tensor]) -> dict[str, mtf.Tensor]:
        """The "boxes" [batch, detections, coordinates], "classes" and "scores" [batch, detections], best first.

        A score of 0 stands for no detection.
        """
        found = self._detections(*self.outputs(feature(features, "images"), is_training=False))
        return {"boxes": found.boxes, "classes": found.classes, "scores": found.scores}

    def _detections(self, logits: mtf.Tensor, offsets: mtf.Tensor, anchors: mtf.Tensor) -> Detections:
        return best_detections(
            decoded(offsets, anchors),
            logits.softmax(self.classes),
            num_candidates=self.num_candidates,
            num_detections=self.num_detections,
            least_score=self.least_score,
            max_overlap=self.max_overlap,
        )

    def _maps(self, images: mtf.Tensor, is_training: bool) -> Iterator[mtf.Tensor]:
        """Yields the feature maps, [batch, height, width, filters]."""
        with mtf.variable_scope("backbone"):
            x = self.backbone.feature_map(images, is_training)
        yield x
        for number, (narrow, filters, stride) in enumerate(self.further_maps, 1):
            padding = "SAME" if stride > 1 else "VALID"
            if padding == "VALID" and min(dim.size for dim in x.shape[-3:-1]) < 3:
                raise ShapeError(
                    f"SSD: images [{images.shape}] are too small: feature map {number} needs 3 rows and columns"
                )
            with mtf.variable_scope(f"map_{number}"):
                x = self._unsplit_if_small(_convolved(x, narrow, 1, 1, "SAME", name="narrow"))
                x = _convolved(x, filters, 3, stride, padding, name="convolve")
            yield x

    def _unsplit_if_small(self, x: mtf.Tensor) -> mtf.Tensor:
        height, width = x.shape[-3:-1]
        if min(height.size, width.size) > self.small_size or height.name == _SMALL[0]:
            return x
        return mtf.rename_dimension(mtf.rename_dimension(x, height, _SMALL[0]), width, _SMALL[1])


def _convolved(x: mtf.Tensor, filters: int, size: int, stride: int, padding: str, *, name: str) -> mtf.Tensor:
    dim = mtf.Dimension("filters", filters)
    return mtf.layers.conv2d(x, dim, size, stride, padding, name=name, use_bias=True, activation="relu")


def _head(x: mtf.Tensor, boxes_per_cell: int, dim: mtf.Dimension) -> mtf.Tensor:
    """The predictions of a 3x3 convolution for each box, in float32: [batch, anchors, dim]."""
    height, width = x.shape[-3:-1]
    y = mtf.layers.conv2d(x, ("predictions", boxes_per_cell * dim.size), 3, 1, name=dim.name, use_bias=True)
    anchors = ("anchors", height.size * width.size * boxes_per_cell)
    return mtf.cast(mtf.reshape(y, [*x.shape.dims[:-3], anchors, dim]), tf.float32)
