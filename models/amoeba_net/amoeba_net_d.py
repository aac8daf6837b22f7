"""AmoebaNet-D, an image classifier whose cells were found by evolution, as GPipe used it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import gin

import meshtf as mtf
from meshtf.errors import ShapeError
from meshtf.field_checks import check_choice, check_kinds, check_not_negative, check_shares, check_sizes
from meshtf.layers import PipelineSchedule, pipeline_with_sums
from meshtf.models._activations import in_activation_dtype
from meshtf.models._classification import ImageClassifier
from meshtf.models.amoeba_net.cells import NORMAL, REDUCTION, Cell
from meshtf.models.amoeba_net.operations import Normalization, convolution

_ENTRIES = 2  # normal cells of a group that read results of other numbers of filters, and so differ from the rest
_GROUPS = 3

STEMS = ("reduced", "plain")
NESTED = "nested"

_FEW_LAYERS = """\
AmoebaNetD: num_layers must be a multiple of 3, at least 9, and is {0!r}: there are three groups of normal cells, and \
the first two cells of each differ from the rest"""


@gin.configurable(module="meshtf.models")
@dataclasses.dataclass(frozen=True)
class AmoebaNetD(ImageClassifier):
    """AmoebaNet-D (L, D) (Real et al. 2018; Huang et al. 2018, GPipe, table 1).

    There are three groups of L / 3 normal cells, with D, 2 D and 4 D filters, and a reduction cell between two groups.
    The stem is a 3x3 convolution with a stride of 2, with D / 4 filters, and two reduction cells, with D / 2 and D.
    So images of 224 x 224 become 7 x 7. This stem gives GPipe's numbers of parameters. The papers do not describe it.
    Small images may have a plain stem, as CIFAR's have in Real et al.

    With a `pipeline`, the stages hold the normal cells, except the first two of each group, which differ from the rest.
    The other cells run between the pipelines. A layout such as "stage:stages;batch:stages;microbatch:stages" splits
    their batch, and the micro-batches that wait to enter a pipeline, over the same cores. Inside a pipeline the batch
    is called `piped_batch`. Each micro-batch has its own statistics there, and the moving averages take their mean
    (GPipe, section 2.1).

    You may split `height` and `width`, and `filters` for the weights.

    Attributes:
      num_classes: size of the dimension `classes`.
      num_layers: L, the number of normal cells.
      num_filters: D, the filters of a state in the first group.
      pipeline: the stages and micro-batches of each group; None: one cell after the other.
      recompute: what the gradient keeps of each cell, or of each step of a pipeline; see `mtf.layer_stack`. "nested"
        keeps the inputs of each pipeline. It keeps no other values of the cells between two pipelines than the
        inputs of the first, and computes these cells again twice.
      batch_norm_momentum: the share of the moving averages that each step keeps.
      batch_norm_epsilon: the number added to variances.
      label_smoothing: the share of each label that the loss divides equally among all classes.
      check_labels: whether a label that is no class raises IndexRangeError; if not, its loss is 0.
      stem: "reduced", which makes the image eight times smaller; or "plain", a 3x3 convolution with D filters that
        leaves small images as large as they are.
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
    stem: str = "reduced"

    def __post_init__(self) -> None:
        check_kinds(self)
        check_sizes(self, "num_classes", "num_layers", "num_filters")
        check_shares(self, "batch_norm_momentum", "label_smoothing")
        check_not_negative(self, "batch_norm_epsilon")
        check_choice(self, "stem", STEMS)
        if self.num_layers % _GROUPS or self.num_layers < _GROUPS * (_ENTRIES + 1):
            raise ValueError(_FEW_LAYERS.format(self.num_layers))
        if self.num_filters % 4:
            raise ValueError(f"AmoebaNetD: num_filters must be a multiple of 4, and is {self.num_filters!r}")

    def logits(self, images: mtf.Tensor, is_training: bool) -> mtf.Tensor:
        """The logits: [batch, height, width, channels] -> [batch, classes].

        Raises:
          ShapeError: the images have other dimensions.
        """
        if images.shape.ndims != 4:
            raise ShapeError(f"AmoebaNetD: images [{images.shape}] must be [batch, height, width, channels]")
        normalize = Normalization(is_training, self.batch_norm_epsilon, images.shape[0].name)
        x = before = in_activation_dtype(images)
        for group in range(_GROUPS):
            filters = self.num_filters * 2**group
            reduction = [(f"reduction_{group}", REDUCTION, filters)] if group else []
            entries = [(f"group_{group}/entry_{number}", NORMAL, filters) for number in range(_ENTRIES)]
            x, before = self._between([*reduction, *entries], x, before, normalize, begins=group == 0)
            with mtf.variable_scope(f"group_{group}"):
                x, before = self._alike(x, before, filters, normalize)
        x = mtf.relu(x)
        return mtf.layers.dense(x.mean(x.shape[-3:-1]), [self.classes], name="logits")

    def _between(
        self,
        cells: Sequence[tuple[str, Cell, int]],
        x: mtf.Tensor,
        before: mtf.Tensor,
        normalize: Normalization,
        *,
        begins: bool,
    ) -> tuple[mtf.Tensor, mtf.Tensor]:
        """The last two results of the cells before a group's stack, given by name, kind and filters.

        Args:
          cells: the cells.
          x: the images if the network `begins` here, else the result of the last cell.
          before: the result of the cell before.
          normalize: normalizes.
          begins: whether the stem comes first.
        """
        inside = dataclasses.replace(normalize, moments=[])

        def made(x: mtf.Tensor, before: mtf.Tensor) -> list[mtf.Tensor]:
            inside.moments.clear()
            if begins:
                x, before = self._begun(x, inside)
            for name, cell, filters in cells:
                before, x = x, self._single(name, cell, x, before, filters, inside)
            return [x, before, *(value for _, value in inside.moments)]

        is_nested = self.recompute == NESTED and normalize.is_training
        x, before, *values = mtf.recompute_grad(made, [x, before], "nothing") if is_nested else made(x, before)
        _averaged([name for name, _ in inside.moments], values, self.batch_norm_momentum)
        return x, before

    def _begun(self, images: mtf.Tensor, normalize: Normalization) -> tuple[mtf.Tensor, mtf.Tensor]:
        """The stem's last two results."""
        is_plain, filters = self.stem == "plain", self.num_filters
        with mtf.variable_scope("stem"):
            stride = 1 if is_plain else 2
            x = normalize(convolution(images, filters if is_plain else filters // 4, (3, 3), (stride, stride)))
        before = x
        for number, divisor in enumerate(() if is_plain else (2, 1)):
            before, x = x, self._single(f"stem_{number}", REDUCTION, x, before, filters // divisor, normalize)
        return x, before

    def _single(
        self, name: str, cell: Cell, x: mtf.Tensor, before: mtf.Tensor, filters: int, normalize: Normalization
    ) -> mtf.Tensor:
        """The result of one cell, whose gradient computes it again if `recompute` is set."""
        inside = dataclasses.replace(normalize, moments=[])

        def made(x: mtf.Tensor, before: mtf.Tensor) -> list[mtf.Tensor]:
            inside.moments.clear()
            y = cell(x, before, filters, inside)
            return [y, *(value for _, value in inside.moments)]

        with mtf.variable_scope(name):
            policy = self._policy(normalize)
            y, *values = made(x, before) if policy is None else mtf.recompute_grad(made, [x, before], policy)
        normalize.moments += zip([name for name, _ in inside.moments], values, strict=True)
        return y

    def _policy(self, normalize: Normalization) -> str | None:
        """Returns the recomputation policy of a cell, or of each step of a pipeline."""
        if not normalize.is_training:
            return None
        return "nothing" if self.recompute == NESTED else self.recompute

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
        _averaged(names, values, self.batch_norm_momentum)
        return carried[0], carried[1]

    def _inside(self, batch: str) -> str:
        return batch if self.pipeline is None else f"piped_{batch}"

    def _stacked(
        self, layer: Callable[..., tuple], xs: list[mtf.Tensor], count: mtf.Dimension, normalize: Normalization
    ) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
        policy = self._policy(normalize)
        return mtf.layer_stack(lambda carried, _: layer(carried), xs, count, recompute=policy, name="cell")

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
            recompute=self._policy(normalize),
            name="cell",
        )
        means = [total / float(self.pipeline.num_microbatches) for total in sums]
        return [mtf.rename_dimension(y, inside, batch) for y in ys], means


def _averaged(names: Sequence[str], values: Sequence[mtf.Tensor], momentum: float) -> None:
    """Moves the averages of these names towards the batch's values of them."""
    for name, value in zip(names, values, strict=True):
        variable = value.graph.variables[name]
        assert isinstance(variable, mtf.Variable)
        mtf.assign_add(variable, (value.reshape(variable.shape) - mtf.read_variable(variable)) * (1.0 - momentum))
