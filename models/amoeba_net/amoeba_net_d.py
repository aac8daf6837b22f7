"""AmoebaNet-D, an image classifier whose cells were found by evolution, as GPipe used it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import gin

import meshtf as mtf
from meshtf.errors import ShapeError
from meshtf.layers import PipelineSchedule, pipeline_with_sums
from meshtf.models._classification import class_metrics, class_predictions
from meshtf.models._settings import check_parts, check_size
from meshtf.models.amoeba_net.cells import NORMAL, REDUCTION, Cell
from meshtf.models.amoeba_net.operations import Normalization, convolution

_ENTRIES = 2  # normal cells of a group that read results of other numbers of filters, and so differ from the rest
_GROUPS = 3

_FEW_LAYERS = """\
AmoebaNetD: num_layers must be a multiple of 3, at least 9, and is {0!r}: there are three groups of normal cells, and \
the first two cells of each differ from the rest"""


@gin.configurable(module="meshtf.models")
@dataclasses.dataclass(frozen=True)
class AmoebaNetD:
    """AmoebaNet-D (L, D) (Real et al. 2018; Huang et al. 2018, GPipe, table 1).

    There are three groups of L / 3 normal cells, with D, 2 D and 4 D filters, and a reduction cell between two groups.
    The stem is a 3x3 convolution with a stride of 2, with D / 4 filters, and two reduction cells, with D / 2 and D.
    So images of 224 x 224 become 7 x 7. This stem gives GPipe's numbers of parameters. The papers do not describe it.

    With a `pipeline`, the stages hold the normal cells but the first two of each group, which differ from the rest. The
    other cells stand between the pipelines. A layout such as "stage:stages;batch:stages;microbatch:stages" splits the
    batch for them over the same cores, and what waits to enter a pipeline. Inside of it the batch is called
    `piped_batch`. There a micro-batch has statistics of its own, and the moving averages take their mean (GPipe,
    section 2.1).

    You may split `height` and `width`, and `filters` for the weights.

    Attributes:
      num_classes: size of the dimension `classes`.
      num_layers: L, the number of normal cells.
      num_filters: D, the filters of a state in the first group.
      pipeline: the stages and micro-batches of each group; None: one cell after the other.
      recompute: what the gradient keeps of each cell, or of each step of a pipeline; see `mtf.layer_stack`.
      batch_norm_momentum: the share of the moving averages that a step leaves in them.
      batch_norm_epsilon: the number added to variances.
      label_smoothing: the share of a label that all classes get alike in the loss.
      check_labels: whether a step with a label that is no class raises IndexRangeError; else its loss is 0.
    """

    num_classes: int
    num_layers: int = 18
    num_filters: int = 208
    pipeline: PipelineSchedule | None = None
    recompute: str | None = None
    batch_norm_momentum: float = 0.9
    batch_norm_epsilon: float = 1e-3
    label_smoothing: float = 0.0
    check_labels: bool = True

    def __post_init__(self) -> None:
        for name in ("num_classes", "num_layers", "num_filters"):
            check_size(self, name)
        check_parts(self, may_be_none=("pipeline",), pipeline=PipelineSchedule)
        if self.num_layers % _GROUPS or self.num_layers < _GROUPS * (_ENTRIES + 1):
            raise ValueError(_FEW_LAYERS.format(self.num_layers))
        if self.num_filters % 4:
            raise ValueError(f"AmoebaNetD: num_filters must be a multiple of 4, and is {self.num_filters!r}")

    @property
    def classes(self) -> mtf.Dimension:
        return mtf.Dimension("classes", self.num_classes)

    def logits(self, images: mtf.Tensor, is_training: bool) -> mtf.Tensor:
        """The logits: [batch, height, width, channels] -> [batch, classes].

        Raises:
          ShapeError: the images have other dimensions.
        """
        if images.shape.ndims != 4:
            raise ShapeError(f"AmoebaNetD: images [{images.shape}] must be [batch, height, width, channels]")
        normalize = Normalization(is_training, self.batch_norm_epsilon, images.shape[0].name)
        filters = self.num_filters
        with mtf.variable_scope("stem"):
            before = x = normalize(convolution(images, filters // 4, (3, 3), (2, 2)))
        self._averaged(normalize)
        for number, scale in enumerate((0.5, 1)):
            before, x = x, self._single(f"stem_{number}", REDUCTION, x, before, int(filters * scale), normalize)
        for group in range(_GROUPS):
            if group:
                filters *= 2
                before, x = x, self._single(f"reduction_{group}", REDUCTION, x, before, filters, normalize)
            with mtf.variable_scope(f"group_{group}"):
                for number in range(_ENTRIES):
                    before, x = x, self._single(f"entry_{number}", NORMAL, x, before, filters, normalize)
                x, before = self._alike(x, before, filters, normalize)
        x = mtf.relu(x)
        return mtf.layers.dense(x.mean(x.shape[-3:-1]), [self.classes], name="logits")

    def metrics(self, features: Mapping[str, mtf.Tensor], is_training: bool) -> dict[str, mtf.Tensor]:
        """The "loss" and "accuracy" [batch], from `images` [batch, height, width, channels] and `labels` [batch]."""
        return class_metrics(
            self.logits(features["images"], is_training),
            features["labels"],
            self.classes,
            is_training=is_training,
            label_smoothing=self.label_smoothing,
            check_labels=self.check_labels,
        )

    def predict(self, features: Mapping[str, mtf.Tensor]) -> dict[str, mtf.Tensor]:
        """The likeliest "classes" [batch] and "probabilities" [batch, classes] of `images`."""
        return class_predictions(self.logits(features["images"], is_training=False), self.classes)

    def _single(
        self, name: str, cell: Cell, x: mtf.Tensor, before: mtf.Tensor, filters: int, normalize: Normalization
    ) -> mtf.Tensor:
        """The result of one cell, whose gradient computes it again if `recompute` says so."""

        def made(x: mtf.Tensor, before: mtf.Tensor) -> list[mtf.Tensor]:
            y = cell(x, before, filters, normalize)
            return [y, *(value for _, value in normalize.moments)]

        with mtf.variable_scope(name):
            recompute = self.recompute if normalize.is_training else None
            y, *values = made(x, before) if recompute is None else mtf.recompute_grad(made, [x, before], recompute)
        names = [name for name, _ in normalize.moments]
        normalize.moments[:] = zip(names, values, strict=True)
        self._averaged(normalize)
        return y

    def _alike(
        self, x: mtf.Tensor, before: mtf.Tensor, filters: int, normalize: Normalization
    ) -> tuple[mtf.Tensor, mtf.Tensor]:
        """The results of a group's last cell and of the cell before it."""
        names = list[str]()

        def layer(carried: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
            inside = dataclasses.replace(normalize, batch=self._inside(normalize.batch), moments=[])
            y = NORMAL(carried[0], carried[1], filters, inside)
            names[:] = [name for name, _ in inside.moments]
            return [y, carried[0]], [value for _, value in inside.moments]

        run = self._stacked if self.pipeline is None else self._piped
        count = mtf.Dimension("cells", self.num_layers // _GROUPS - _ENTRIES)
        carried, values = run(layer, [x, before], count, normalize)
        normalize.moments[:] = zip(names, values, strict=True)
        self._averaged(normalize)
        return carried[0], carried[1]

    def _inside(self, batch: str) -> str:
        return batch if self.pipeline is None else f"piped_{batch}"

    def _stacked(
        self, layer: Callable[..., tuple], xs: list[mtf.Tensor], count: mtf.Dimension, normalize: Normalization
    ) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
        recompute = self.recompute if normalize.is_training else None
        return mtf.layer_stack(lambda carried, _: layer(carried), xs, count, recompute=recompute, name="cell")

    def _piped(
        self, layer: Callable[..., tuple], xs: list[mtf.Tensor], count: mtf.Dimension, normalize: Normalization
    ) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
        """The same in stages. Statistics are means over the micro-batches."""
        assert self.pipeline is not None
        batch, inside = normalize.batch, self._inside(normalize.batch)
        ys, sums = pipeline_with_sums(
            lambda carried, _: layer(carried),
            [mtf.rename_dimension(x, batch, inside) for x in xs],
            count,
            self.pipeline,
            batch_names=(inside,),
            recompute=self.recompute if normalize.is_training else None,
            name="cell",
        )
        means = [total / float(self.pipeline.num_microbatches) for total in sums]
        return [mtf.rename_dimension(y, inside, batch) for y in ys], means

    def _averaged(self, normalize: Normalization) -> None:
        """Moves the averages towards the statistics that were recorded, and forgets these."""
        share = 1.0 - self.batch_norm_momentum
        for name, value in normalize.moments:
            variable = value.graph.variables[name]
            assert isinstance(variable, mtf.Variable)
            step = (value.reshape(variable.shape) - mtf.read_variable(variable)) * share
            mtf.assign_add(variable, step)
        normalize.moments.clear()
