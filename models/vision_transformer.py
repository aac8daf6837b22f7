"""A Transformer that predicts the class of an image."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import gin

import meshtf as mtf
from meshtf.errors import ShapeError
from meshtf.field_checks import check_choice, check_fractions, check_kinds, check_shares, check_sizes
from meshtf.layers.attention import AttentionMask, Tokens
from meshtf.layers.dense import dense
from meshtf.layers.initializers import DenseInitializer, ZerosInitializer
from meshtf.layers.transformer import ChainedStacks, Context, LayerNorm, Norm, Observations, TransformerStack
from meshtf.layers.transformer.dropout import dropped
from meshtf.layers.transformer.token_loss import TokenMetrics
from meshtf.models._activations import in_activation_dtype
from meshtf.models._classification import class_metrics, class_predictions
from meshtf.models._features import feature

LENGTH = "length"
POOLINGS = ("class_token", "mean")


@gin.configurable(module="meshtf.models")
@dataclasses.dataclass(frozen=True)
class VisionTransformer:
    """An encoder of an image's patches, and a class for each image (Dosovitskiy et al. 2021).

    A dense layer turns each patch into a vector, and the vector of its position is added. The class token, if there is
    one, comes before the patches. After the stack comes one norm, so that the stack needs no final norm of its own.

    The tokens are along `length`, as in every Transformer here. Before that, the rows and columns of patches keep the
    names of the image's own dimensions, so that a layout may split an image's `height` or `width`.

    Attributes:
      num_classes: size of the dimension `classes`.
      d_model: the size of the vectors.
      patch_size: the pixels on each side of a patch.
      stack: layers of self-attention and feed-forward; or several stacks, one after the other.
      norm: the norm of the vectors after the stack, before pooling.
      pooling: "class_token" takes the class token's vector, "mean" the mean over all patches, without a class token.
      dropout_rate: the share of the embedded tokens that is dropped.
      kernel_initializer: the initializer of the patches' dense layer.
      head_initializer: the initializer of the classifier's kernel, by default zeros.
      label_smoothing: the share of each label that the loss divides equally among all classes.
      check_labels: whether a label that is no class raises IndexRangeError; if not, its loss is 0.
      image_shape: the height, width and channels of the images. If given, images of other sizes raise ShapeError.
    """

    num_classes: int
    d_model: int
    patch_size: int
    stack: TransformerStack | ChainedStacks
    norm: Norm = dataclasses.field(default_factory=LayerNorm)
    pooling: str = "class_token"
    dropout_rate: float = 0.0
    kernel_initializer: DenseInitializer | None = None
    head_initializer: DenseInitializer = dataclasses.field(default_factory=ZerosInitializer)
    label_smoothing: float = 0.0
    check_labels: bool = True
    image_shape: Sequence[int] | None = None

    def __post_init__(self) -> None:
        check_kinds(self)
        check_sizes(self, "num_classes", "d_model", "patch_size")
        check_choice(self, "pooling", POOLINGS)
        check_fractions(self, "dropout_rate")
        check_shares(self, "label_smoothing")
        shape = self.image_shape
        is_shape = isinstance(shape, list | tuple) and len(shape) == 3 and all(isinstance(n, int) for n in shape)
        if shape is not None and not is_shape:
            raise ValueError(
                f"VisionTransformer: image_shape must be three integers, (height, width, channels), or None, and is "
                f"{shape!r}"
            )

    @property
    def classes(self) -> mtf.Dimension:
        return mtf.Dimension("classes", self.num_classes)

    def logits(self, images: mtf.Tensor, is_training: bool) -> mtf.Tensor:
        """The logits: [batch, height, width, channels] -> [batch, classes].

        Raises:
          ShapeError: the images have too few dimensions, or sides that are not multiples of `patch_size`.
        """
        return self._observed(images, is_training)[0]

    def metrics(self, features: Mapping[str, mtf.Tensor], is_training: bool) -> TokenMetrics:
        """The "loss" and "accuracy" [batch], from `images` [batch, height, width, channels] and `labels`.

        Labels are integers [batch], or floating [batch, classes], a distribution for each image.
        """
        logits, observations = self._observed(feature(features, "images"), is_training)
        found = class_metrics(
            logits,
            feature(features, "labels"),
            self.classes,
            is_training=is_training,
            label_smoothing=self.label_smoothing,
            check_labels=self.check_labels,
        )
        counted = {name: (x, mtf.ones_like(x)) for name, x in found.items()}
        return observations.added_to(counted, is_training=is_training)

    def predict(self, features: Mapping[str, mtf.Tensor]) -> dict[str, mtf.Tensor]:
        """The likeliest "classes" [batch] and "probabilities" [batch, classes] of `images`."""
        return class_predictions(self.logits(feature(features, "images"), is_training=False), self.classes)

    def _observed(self, images: mtf.Tensor, is_training: bool) -> tuple[mtf.Tensor, Observations]:
        """The logits, and the layers' observations."""
        x = dropped(self._embedded(images), self.dropout_rate, (), is_training=is_training)
        with mtf.variable_scope("encoder"):
            x, observations = self.stack.observed(x, Context(AttentionMask(), Tokens(), is_training=is_training))
        if self.pooling == "class_token":
            x = x[LENGTH, 0]
        with mtf.variable_scope("head"):
            x = self.norm(x, x.shape[-1])
        if self.pooling == "mean":
            x = x.mean(LENGTH)
        return dense(x, [self.classes], kernel_initializer=self.head_initializer, name="logits"), observations

    def _embedded(self, images: mtf.Tensor) -> mtf.Tensor:
        """The vectors of the tokens: [..., height, width, channels] -> [..., length, d_model]."""
        with mtf.variable_scope("embedding"):
            x = self._patches(in_activation_dtype(images))
            if self.pooling == "class_token":
                x = mtf.pad(x, [1, 0], LENGTH)
            places = mtf.get_variable("positions", x.shape[-2:], initializer=mtf.RandomNormal(stddev=0.02))
            if self.pooling == "class_token":
                # A tensor with a `length` of 1 could not be split. So the token is added to the padding.
                token = mtf.get_variable("class_token", x.shape[-1:], initializer=mtf.RandomNormal(stddev=0.02))
                is_first = mtf.equal(mtf.range(x.shape[LENGTH]), 0)
                places += token * is_first.astype(token.dtype)
            return x + places.astype(x.dtype)

    def _patches(self, images: mtf.Tensor) -> mtf.Tensor:
        """The vectors of the patches, row by row: [..., height, width, channels] -> [..., length, d_model]."""
        size, (height, width, channels) = self.patch_size, self._image_dims(images)
        rows, columns = (mtf.Dimension(dim.name, dim.size // size) for dim in (height, width))
        patch = mtf.Shape([("patch_height", size), ("patch_width", size), channels])
        batch = images.shape[:-3]
        x = images.reshape([*batch, rows, patch[0], columns, patch[1], channels])
        d_model = mtf.Dimension("d_model", self.d_model)
        x = dense(x, [d_model], patch, kernel_initializer=self.kernel_initializer, name="patches")
        return x.reshape([*batch, (LENGTH, rows.size * columns.size), d_model])

    def _image_dims(self, images: mtf.Tensor) -> mtf.Shape:
        """The dimensions [height, width, channels]."""
        dims, size = images.shape[-3:], self.patch_size
        if len(dims) < 3 or any(dim.size % size for dim in dims[:2]):
            raise ShapeError(
                f"VisionTransformer: images [{images.shape}] must be [.., height, width, channels], with sides that "
                f"are multiples of patch_size, {size}; resize or pad them, or choose another patch_size"
            )
        if self.image_shape is not None and dims.to_integer_list != list(self.image_shape):
            raise ShapeError(
                f"VisionTransformer: images [{images.shape}] do not have the sizes of image_shape, "
                f"{tuple(self.image_shape)}, for which its positions were made; resize the images"
            )
        return dims
