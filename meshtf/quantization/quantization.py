"""The quantization policy: the form in which a program stores the weights of a trained model."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence

from meshtf.dimension import Dimension, Shape
from meshtf.errors import DtypeError, GraphError, ShapeError, UsageError, nearest
from meshtf.number_checks import is_integer

INT8, INT4, FLOAT8 = "int8", "int4", "float8_e4m3"
FORMATS = (INT8, INT4, FLOAT8)
DYNAMIC, STATIC = "dynamic", "static"
ACTIVATIONS = (DYNAMIC, STATIC)


@dataclasses.dataclass(frozen=True)
class Quantization:
    """The form in which a program stores kernels, the variables that layers make with a `matrix`.

    Attributes:
      weights: the numbers of a kernel. "int8": -127 to 127. "int4": -7 to 7, two in a byte. "float8_e4m3": floating
        numbers with 4 bits of exponent and 3 of fraction, up to 448. All have float32 scales. Layers read a kernel as
        usual.
      group_size: how many neighbours share a scale, along the last dimension that a layer sums over. If it does not
        divide that dimension, the groups have the size of the greatest divisor below it. None: each output has one
        scale.
      cache: "int8": while it decodes, self-attention stores keys and values in int8, with a scale for each head and
        position. None: it stores them in the dtype of the activations.
      activations: the inputs of products with kernels. "dynamic": 8-bit numbers, with a scale for each row that the
        program computes. "static": 8-bit numbers, with one scale for each kernel, from calibration or training. None:
        floating numbers. The 8-bit numbers are int8, whose products are exact, or float8_e4m3 if the weights are
        float8_e4m3. See `mtf.quantization.quantized_einsum`.
      floating: the scopes of layers that are not quantized, such as ["logits"] or ["decoder/layer/feed_forward"].

    Raises:
      DtypeError: there is no such format, of weights, of the cache or of activations.
      ShapeError: the group size is not 1 or more.
      GraphError: `floating` is not a list of names.

    Examples:
      >>> mtf.quantization.Quantization("int4", group_size=32)
      Quantization(weights='int4', group_size=32, cache=None, activations=None, floating=())
    """

    weights: str = INT8
    group_size: int | None = None
    cache: str | None = None
    activations: str | None = None
    floating: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.weights not in FORMATS:
            raise DtypeError(
                f"Quantization.weights must be one of {', '.join(FORMATS)}, and is {self.weights!r}"
                f"{nearest(str(self.weights), FORMATS)}"
            )
        if self.cache not in (None, INT8):
            raise DtypeError(f"Quantization.cache must be int8 or None, and is {self.cache!r}")
        if self.activations not in (None, *ACTIVATIONS):
            raise DtypeError(
                f"Quantization.activations must be one of {', '.join(ACTIVATIONS)}, or None, and is "
                f"{self.activations!r}{nearest(str(self.activations), ACTIVATIONS)}"
            )
        size = self.group_size
        if size is not None and not is_integer(size, 1):
            raise ShapeError(f"Quantization.group_size must be an integer, 1 or more, or None, and is {size!r}")
        is_list = isinstance(self.floating, Collection) and not isinstance(self.floating, str)
        if not is_list or not all(isinstance(scope, str) and scope for scope in self.floating):
            raise GraphError(f"Quantization.floating must be a list of names of scopes, and is {self.floating!r}")
        object.__setattr__(self, "floating", tuple(self.floating))

    def takes(self, name: str) -> bool:
        """Whether the kernel of this name is quantized."""
        return not any(_is_in(name, scope) for scope in self.floating)

    def check_scopes(self, names: Collection[str]) -> None:
        """Checks that each scope in `floating` contains one of these kernels.

        Raises:
          GraphError: one contains none.
        """
        for scope in self.floating:
            if not any(_is_in(name, scope) for name in names):
                scopes = {part for name in names for part in (name.rpartition("/")[0], *name.split("/"))}
                raise GraphError(
                    f'Quantization.floating has "{scope}", which is not a scope of the kernels {", ".join(names)}'
                    f"{nearest(scope, scopes)}"
                )

    @property
    def input_numbers(self) -> str:
        """The format of the quantized inputs that the kernels' numbers multiply."""
        return FLOAT8 if self.weights == FLOAT8 else INT8

    def scale_shape(self, shape: Shape, summed: tuple[str, ...]) -> Shape:
        """The shape of a kernel's scales.

        Args:
          shape: the kernel's.
          summed: the names of the dimensions that a layer sums over.
        """
        if self.group_size is None or not summed:
            return Shape([d for d in shape if d.name not in summed])
        size = self.size_of_groups(shape, summed)
        return Shape([Dimension(d.name, d.size // size) if d.name == summed[-1] else d for d in shape])

    def size_of_groups(self, shape: Shape, summed: tuple[str, ...]) -> int:
        """The number of neighbours that share a scale of a kernel: `group_size`, or the greatest divisor below."""
        size = shape.dims[shape.axis(summed[-1])].size
        most = min(self.group_size or size, size)
        return next(n for n in range(most, 0, -1) if size % n == 0)


def policy_or_default(quantization: Quantization | None) -> Quantization:
    """The policy, or int8 with a scale for each output if there is none.

    Raises:
      UsageError: something else was given, such as the name of a format.
    """
    if quantization is None or isinstance(quantization, Quantization):
        return quantization or Quantization()
    raise UsageError(
        f"a policy of quantization must be a Quantization, such as Quantization({INT4!r}), or None, and is "
        f"{quantization!r}"
    )


def _is_in(name: str, scope: str) -> bool:
    return f"/{scope.strip('/')}/" in f"/{name}/"
