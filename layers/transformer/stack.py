"""A Transformer's layers: residual connections around a list of sublayers, run as a scan, unrolled, or as a
pipeline.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

import gin
import tensorflow as tf

import meshtf as mtf
from meshtf.call_sites import language_function
from meshtf.errors import nearest
from meshtf.field_checks import check_fractions, check_kinds, check_sizes, what_it_lacks
from meshtf.layers.attention import AttentionConfig, LinearBias, PositionBias, RelativePositionBias
from meshtf.layers.attention.caches.pages import PAGED_LENGTH, PageView, paged
from meshtf.layers.pipeline_schedule import PipelineSchedule
from meshtf.layers.transformer._pipelined import pipelined_layers, sequences_together
from meshtf.layers.transformer.context import Context, DecodingSpace
from meshtf.layers.transformer.dropout import dropped
from meshtf.layers.transformer.norms import Norm, RmsNorm
from meshtf.layers.transformer.observations import Observations
from meshtf.layers.transformer.sublayer import ObservedSublayer, Sublayer

Tallies: TypeAlias = "dict[str, mtf.Tensor]"
Layer: TypeAlias = "Callable[[list[mtf.Tensor], list[mtf.Tensor]], tuple[list[mtf.Tensor], list[mtf.Tensor]]]"
Run: TypeAlias = "Callable[[Sublayer, mtf.Tensor, list[mtf.Tensor]], tuple[mtf.Tensor, list[mtf.Tensor]]]"
Recompute: TypeAlias = "mtf.RecomputePolicy | str | bool | None"

_OF_SCANS = mtf.RecomputePolicy("costly", only_in_loops=True)


class StackBias(Protocol):
    """Makes a bias from positions, one for all self-attention of a stack."""

    def make(self, mesh: mtf.Mesh, *, is_bidirectional: bool) -> PositionBias:
        """The bias for one program. `is_bidirectional` says whether tokens see tokens ahead of them."""
        ...


@gin.configurable(module="meshtf.layers")
@dataclasses.dataclass(frozen=True)
class DistanceBias:
    """ALiBi; see `meshtf.layers.LinearBias`.

    Attributes:
      config: the self-attention's sizes. Only its heads matter.
    """

    config: AttentionConfig

    def __post_init__(self) -> None:
        check_kinds(self)

    def make(self, mesh: mtf.Mesh, *, is_bidirectional: bool) -> LinearBias:
        return LinearBias.make(mesh, self.config)


@gin.configurable(module="meshtf.layers")
@dataclasses.dataclass(frozen=True)
class RelativeBias:
    """T5's relative position bias, one for all layers of a stack (Raffel et al. 2020)."""

    config: AttentionConfig
    num_buckets: int = 32
    max_distance: int = 128

    def __post_init__(self) -> None:
        check_kinds(self)
        check_sizes(self, "num_buckets", "max_distance")

    def make(self, mesh: mtf.Mesh, *, is_bidirectional: bool) -> RelativePositionBias:
        return RelativePositionBias.make(
            mesh, self.config, self.num_buckets, self.max_distance, is_bidirectional=is_bidirectional
        )


@gin.configurable(module="meshtf.layers")
@dataclasses.dataclass(frozen=True)
class Residual:
    """The residual connection around each sublayer: x + dropout(sublayer(norm(x))), or norm(x + dropout(sublayer(x))).

    With `norms_output`, the result of a sublayer also has a norm, in the scope `output`, before dropout (Gemma 2).
    Without `norms_input`, this is the only norm (OLMo 2).

    With `is_parallel`, all sublayers of a layer get the same x, and their results are all added to it.

    Attributes:
      norm: the norm of each sublayer.
      is_post_norm: whether it has the second form (Vaswani et al. 2017, BERT).
      is_parallel: whether the sublayers of a layer run in parallel (GPT-NeoX). It needs the first form.
      norms_output: whether the result of a sublayer has a norm.
      norms_input: whether the input of a sublayer has a norm, in the first form.
      scale: the factor of a sublayer's result (Granite).
      shares_norm: whether parallel sublayers have one norm, in the layer's scope (GPT-J).
      dropout_rate: the share of a sublayer's result that is dropped.
      dropout_grows: whether the rate grows evenly, from 0 in the first layer to `dropout_rate` in the last (stochastic
        depth, Huang et al. 2016).
      dropout_broadcast_dims: names of dimensions along which elements are dropped together, such as ("length",).
    """

    norm: Norm = dataclasses.field(default_factory=RmsNorm)
    is_post_norm: bool = False
    is_parallel: bool = False
    shares_norm: bool = False
    norms_output: bool = False
    norms_input: bool = True
    scale: float = 1.0
    dropout_rate: float = 0.0
    dropout_broadcast_dims: Sequence[str] = ()
    dropout_grows: bool = False

    def __post_init__(self) -> None:
        check_kinds(self)
        check_fractions(self, "dropout_rate")
        if self.is_parallel and self.is_post_norm:
            raise ValueError("Residual: parallel sublayers have norms before them, so is_post_norm must be False")
        if not self.norms_input and (self.is_parallel or self.is_post_norm):
            raise ValueError(
                "Residual: norms_input = False needs sublayers one after the other, with norms of their outputs; "
                f"is_parallel is {self.is_parallel} and is_post_norm {self.is_post_norm}"
            )
        if self.shares_norm and not self.is_parallel:
            raise ValueError("Residual: shares_norm needs parallel sublayers, but is_parallel is False")

    def entry(self, x: mtf.Tensor) -> list[mtf.Tensor]:
        """The common input of all sublayers of a layer at x, if they are parallel; otherwise an empty list."""
        if not self.is_parallel:
            return []
        return [self.norm(x, x.shape[-1]) if self.shares_norm else x]

    def before(self, x: mtf.Tensor, *entry: mtf.Tensor, norms_input: bool = True) -> mtf.Tensor:
        """The input of a sublayer; without a norm if `norms_input` is False."""
        if self.shares_norm:
            return entry[0]
        given = entry[0] if entry else x
        is_normed = norms_input and self.norms_input and not self.is_post_norm
        return self.norm(given, given.shape[-1]) if is_normed else given

    def after(self, x: mtf.Tensor, y: mtf.Tensor, *, is_training: bool, depth: mtf.Tensor | None = None) -> mtf.Tensor:
        """x with the sublayer's result. `depth` [] is 0 in the first layer and 1 in the last."""
        if self.norms_output:
            with mtf.variable_scope("output"):
                y = self.norm(y, y.shape[-1])
        y = y if self.scale == 1.0 else y * self.scale
        y = x + self.dropped(y, is_training=is_training, depth=depth)
        return self.norm(y, y.shape[-1]) if self.is_post_norm else y

    def dropped(self, x: mtf.Tensor, *, is_training: bool, depth: mtf.Tensor | None = None) -> mtf.Tensor:
        return dropped(x, self.dropout_rate, self.dropout_broadcast_dims, is_training=is_training, depth=depth)


@gin.configurable(module="meshtf.layers")
@dataclasses.dataclass(frozen=True)
class TransformerStack:
    """Layers with the same list of sublayers, each with its own weights.

    Attributes:
      sublayers: the sublayers of one layer, in order.
      num_layers: the size of the dimension `layers`.
      residual: the residual connection around each sublayer.
      use_final_norm: whether the stack ends with a norm, and dropout. The end has no dropout if the residual connection
        drops whole vectors (stochastic depth): an example without its result would teach nothing.
      bias: by positions, one for all self-attention: `RelativeBias` or `DistanceBias`.
      unroll: whether the program contains each layer separately, instead of one scan over all. Variables, results and
        checkpoints are the same.
      recompute: what the gradient keeps of each layer (see `mtf.recompute_grad`), or, in a pipeline, of each step of a
        stage (see `meshtf.layers.pipeline`). A mapping sets this for each sublayer, by the scope of its variables, such
        as {"self_attention": "nothing"}; sublayers that it does not name keep everything. By default a scan keeps what
        is "costly", and computes norms, activations and dropout again; unrolled layers keep "everything". On a GPU, a
        scan is unrolled, and the compiler keeps what is faster to keep; set "costly" yourself if memory is short.
      pipeline: if given, the stages, micro-batches and rounds in which layers of different stages are computed at once.
        Results and checkpoints are the same. Decoding runs the layers one by one.
    """

    sublayers: Sequence[Sublayer]
    num_layers: int
    residual: Residual = dataclasses.field(default_factory=Residual)
    use_final_norm: bool = True
    bias: StackBias | None = None
    unroll: bool = False
    recompute: Recompute | Mapping[str, Recompute] = None
    pipeline: PipelineSchedule | None = None

    def __post_init__(self) -> None:
        if not self.sublayers or not isinstance(self.sublayers, list | tuple):
            example = "[SelfAttention(..), FeedForward(..)]"
            raise ValueError(f"TransformerStack: sublayers must be a list such as {example}, and is {self.sublayers!r}")
        for number, sublayer in enumerate(self.sublayers):
            if isinstance(sublayer, type) or not isinstance(sublayer, Sublayer):
                raise ValueError(
                    f"TransformerStack: sublayers[{number}] is not a sublayer: {sublayer!r}"
                    f"{what_it_lacks(sublayer, Sublayer)}"
                )
        check_kinds(self)
        check_sizes(self, "num_layers")
        for name in self._recomputed:
            if name not in self._names():
                raise ValueError(
                    f"TransformerStack: recompute names {name!r}, but the sublayers are "
                    f"{', '.join(self._names())}{nearest(name, self._names())}"
                )

    @property
    def layers(self) -> mtf.Dimension:
        return mtf.Dimension("layers", self.num_layers)

    @language_function
    def __call__(self, x: mtf.Tensor, context: Context) -> mtf.Tensor:
        """Applies the layers: [.., length, d_model] -> the same shape."""
        return self.observed(x, context)[0]

    def observed(self, x: mtf.Tensor, context: Context) -> tuple[mtf.Tensor, Observations]:
        """The result of a call, and the sublayers' observations."""
        context = self._with_bias(x.mesh, context)
        y, tallies = self._pipelined(x, context, self.pipeline) if self.pipeline else self._plain(x, context)
        return self.ended(y, context), self._observations(tallies)

    def fill(self, x: mtf.Tensor, context: Context) -> tuple[mtf.Tensor, list[mtf.Tensor]]:
        """The result of a call, and the state from which decoding continues, over [layers, ..]."""
        context = self._with_bias(x.mesh, context)

        def layer(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
            y, state = self._in_turn(carried[0], context, lambda part, y, own: part.fill(y, context), [])
            return [y], state

        (x,), state = self._layers(layer, x, [])
        return self.ended(x, context), state

    def start(self, space: DecodingSpace, context: Context) -> list[mtf.Tensor]:
        """The state from which decoding starts, over [layers, ..]; in pages, the states of layers in order."""
        if space.is_paged:
            of_all = dataclasses.replace(space, max_length=space.max_length * self.layers.size)
            return [paged(x) for sublayer in self.sublayers for x in sublayer.start(of_all, context)]

        def layer(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
            state = []
            for name, sublayer in zip(self._names(), self.sublayers, strict=True):
                with mtf.variable_scope(name):
                    state += sublayer.start(space, context)
            return carried, state

        return self._layers(layer, mtf.zeros(space.mesh, []), [])[1]

    def step(
        self, x: mtf.Tensor, context: Context, position: mtf.Tensor, state: list[mtf.Tensor]
    ) -> tuple[mtf.Tensor, list[mtf.Tensor]]:
        """Processes one token of each sequence: [.., d_model] -> the same shape, and the new state. See
        `Sublayer.step`.
        """
        context = self._with_bias(x.mesh, context)
        if context.pages is not None and state:
            return self._step_in_pages(x, context, context.pages, position, state)
        is_new: list[bool] = []

        def layer(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
            def one(part: Sublayer, y: mtf.Tensor, own: list[mtf.Tensor]) -> tuple[mtf.Tensor, list[mtf.Tensor]]:
                return part.step(y, context, position, own)

            y, after = self._in_turn(carried[0], context, one, parts)
            # Keys and values of an encoder never change. A scan must not write them again in every step.
            is_new[:] = [x is not before for x, before in zip(after, parts, strict=True)]
            return [y], list(itertools.compress(after, is_new))

        (x,), renewed = self._layers(layer, x, state)
        new = iter(renewed)
        return self.ended(x, context), [next(new) if n else old for n, old in zip(is_new, state, strict=True)]

    def _step_in_pages(
        self, x: mtf.Tensor, context: Context, pages: PageView, position: mtf.Tensor, state: list[mtf.Tensor]
    ) -> tuple[mtf.Tensor, list[mtf.Tensor]]:
        """A step of tokens whose keys and values are in pages. It carries and updates the caches of all layers."""
        num_positions = state[0].shape[PAGED_LENGTH].size // self.layers.size

        def layer(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
            y, *pools = carried
            now = dataclasses.replace(context, pages=pages.in_layer(parts[0], num_positions))
            y, pools = self._in_turn(y, now, lambda part, z, held: part.step(z, now, position, held), pools)
            return [y, *pools], []

        (x, *new), _ = self._layers(layer, [x, *state], [mtf.range(x.mesh, self.layers)])
        return self.ended(x, context), new

    def _in_turn(
        self, x: mtf.Tensor, context: Context, run: Run, state: list[mtf.Tensor]
    ) -> tuple[mtf.Tensor, list[mtf.Tensor]]:
        """Runs one layer: calls `run` for each sublayer with its part of the state. Also returns the new states."""
        waiting, states, entry = iter(state), [], self.residual.entry(x)
        for name, sublayer in zip(self._names(), self.sublayers, strict=True):
            # The state of a layer is one flat list, because a scan carries lists of tensors.
            own = list(itertools.islice(waiting, sublayer.num_states))

            def one(
                x: mtf.Tensor, *entry: mtf.Tensor, part: Sublayer = sublayer, own: list[mtf.Tensor] = own
            ) -> list[mtf.Tensor]:
                given = self.residual.before(x, *entry, norms_input=getattr(part, "norms_input", True))
                y, new = run(part, given, own)
                return [self.residual.after(x, y, is_training=context.is_training, depth=context.depth), *new]

            with mtf.variable_scope(name):
                is_recomputed = context.is_training and name in self._recomputed
                given = [x, *entry]
                x, *new = mtf.recompute_grad(one, given, self._recomputed[name]) if is_recomputed else one(*given)
            states += new
        return x, states

    def _plain(self, x: mtf.Tensor, context: Context) -> tuple[mtf.Tensor, Tallies]:
        """Runs all layers. Also returns their tallies of the tokens, over [layers, ..]."""
        names: list[str] = []

        def layer(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
            y, tallies = self._tallied(carried[0], dataclasses.replace(context, depth=next(iter(parts), None)))
            names[:] = tallies
            return [y], list(tallies.values())

        depths = self._depths(x.mesh, context)
        (x,), tallies = self._layers(layer, x, [] if depths is None else [depths])
        return x, dict(zip(names, tallies, strict=True))

    def _depths(self, mesh: mtf.Mesh, context: Context) -> mtf.Tensor | None:
        """[layers], from 0 to 1; None where no rate grows."""
        if not (self.residual.dropout_grows and context.is_training):
            return None
        return mtf.range(mesh, self.layers, tf.float32) / max(1, self.num_layers - 1)

    def _pipelined(self, x: mtf.Tensor, context: Context, schedule: PipelineSchedule) -> tuple[mtf.Tensor, Tallies]:
        together = sequences_together(self.sublayers, x.shape, schedule)
        depths, recompute = self._depths(x.mesh, context), self._recompute_of_layers
        return pipelined_layers(self._tallied, x, context, self.layers, schedule, together, recompute, depths)

    def _tallied(self, x: mtf.Tensor, context: Context) -> tuple[mtf.Tensor, Tallies]:
        """Runs one layer. Also returns its tallies of the tokens, keyed by `<sublayer>/<name>`."""
        names, keys = iter(self._names()), []

        def one(part: Sublayer, y: mtf.Tensor, own: list[mtf.Tensor]) -> tuple[mtf.Tensor, list[mtf.Tensor]]:
            name = next(names)
            if not isinstance(part, ObservedSublayer):
                return part(y, context), []
            y, told = part.tallied(y, context)
            keys.extend(f"{name}/{key}" for key in told)
            return y, list(told.values())

        x, tallies = self._in_turn(x, context, one, [])
        return x, dict(zip(keys, tallies, strict=True))

    def _observations(self, tallies: Tallies) -> Observations:
        """The observations made of the tallies of all layers."""
        found: dict[str, mtf.Tensor] = {}
        for name, sublayer in zip(self._names(), self.sublayers, strict=True):
            if isinstance(sublayer, ObservedSublayer):
                own = {key.removeprefix(f"{name}/"): x for key, x in tallies.items() if key.startswith(f"{name}/")}
                found.update({f"{name}/{key}": x for key, x in sublayer.observations(own).items()})
        return Observations(found)

    def _layers(
        self, layer: Layer, x: mtf.Tensor | list[mtf.Tensor], state: list[mtf.Tensor]
    ) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
        return mtf.layer_stack(layer, x, self.layers, state, unroll=self.unroll, recompute=self._recompute_of_layers)

    @property
    def _recompute_of_layers(self) -> Recompute:
        if isinstance(self.recompute, Mapping):
            return None
        return _OF_SCANS if self.recompute is None and not self.unroll else self.recompute

    @property
    def _recomputed(self) -> Mapping[str, Recompute]:
        """The recomputation policy of each sublayer, by its name."""
        return self.recompute if isinstance(self.recompute, Mapping) else {}

    def _with_bias(self, mesh: mtf.Mesh, context: Context) -> Context:
        if self.bias is None:
            return context
        return dataclasses.replace(context, bias=self.bias.make(mesh, is_bidirectional=context.is_bidirectional))

    def ended(self, x: mtf.Tensor, context: Context) -> mtf.Tensor:
        """The stack's result, from x after its last layer: with the final norm and dropout, if `use_final_norm`."""
        if not self.use_final_norm:
            return x
        with mtf.variable_scope("final"):
            x = self.residual.norm(x, x.shape[-1])
        drops_vectors = x.shape[-1].name in self.residual.dropout_broadcast_dims
        return x if drops_vectors else self.residual.dropped(x, is_training=context.is_training)

    def _names(self) -> list[str]:
        """The scope of each sublayer: its name, with a number if a layer has several with the same name."""
        names: list[str] = []
        for sublayer in self.sublayers:
            numbered = (f"{sublayer.name}_{number}" for number in itertools.count(1))
            names.append(next(name for name in itertools.chain([sublayer.name], numbered) if name not in names))
        return names
