"""Prompts of different lengths in one batch, and the state of a decoder after them."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

import meshtf as mtf
from meshtf.train.decoding.step_decoder import StepDecoder

_TOO_LONG = "the program reads prompts only up to the longest one that it was built for"


@dataclasses.dataclass(frozen=True)
class Prompts:
    """The beginnings of sequences, and where they end at the latest.

    Attributes:
      ids: int32 [batch, length], for the longest sequence. Ids after a prompt do not matter.
      lengths: int32 [batch], the length of each prompt, which may be 0.
      ends: int32 [batch], from 0 to `length`: the position before which a sequence ends. If that is at most the
        prompt's length, nothing is added.
      longest: a bound on the lengths of prompts. This many positions are read. None stands for `length`.
    """

    ids: mtf.Tensor
    lengths: mtf.Tensor
    ends: mtf.Tensor
    longest: int | None = None

    @property
    def length(self) -> mtf.Dimension:
        return self.ids.shape.get_dim_by_name("length")

    @property
    def batch_dims(self) -> mtf.Shape:
        return self.ids.shape - [self.length]

    def only(self) -> mtf.Tensor:
        """Returns the ids, with 0 after each prompt."""
        is_prompt = mtf.greater(self.lengths, self.places())
        return mtf.where(is_prompt, self.ids, 0, output_shape=self.ids.shape)

    def places(self) -> mtf.Tensor:
        """Returns the positions, int32 [length]."""
        return mtf.range(self.ids.mesh, self.length)

    def at(self, position: mtf.Tensor, ids: mtf.Tensor) -> mtf.Tensor:
        """Returns the ids at a position, from ids [.., length], and 0 before the first one."""
        return mtf.gather(ids, position, self.length)

    def with_token(self, ids: mtf.Tensor, position: mtf.Tensor, token: mtf.Tensor) -> mtf.Tensor:
        """Returns ids [.., length] with other tokens [..] at a position."""
        return mtf.where(mtf.equal(self.places(), position), token, ids, output_shape=ids.shape)

    def state(self, decoder: StepDecoder, beside: mtf.Dimension | None = None) -> list[mtf.Tensor]:
        """Returns the decoder's state after the prompts, from one pass over them.

        If each prompt is continued several times, `beside` is the dimension of the continuations. State that depends on
        the tokens has it after the batch. Other state, such as the keys of an encoder's output, does not have it.
        """
        ids, lengths = self.ids, self.lengths
        if self.longest is not None and self.longest < self.length.size:
            lengths = mtf.check_indices(lengths, self.longest + 1, message="the length of a prompt", advice=_TOO_LONG)
            ids = mtf.slice(ids, 0, self.longest, self.length)
        state = decoder.fill(ids, lengths, max_length=self.length.size)
        if beside is None or not state:
            return state
        like = decoder.start(self.ids.mesh, self.batch_dims + [beside], self.length.size, state[0].dtype)
        return [repeated(x, y.shape) for x, y in zip(state, like, strict=True)]


def repeated(x: mtf.Tensor, like: mtf.Shape) -> mtf.Tensor:
    """Returns x with the dimensions that it lacks, at their places in `like`."""
    dims = x.shape.dims
    for place, dim in enumerate(like):
        if not x.shape.has(dim.name):
            dims = [*dims[:place], dim, *dims[place:]]
    return mtf.broadcast(x, mtf.Shape(dims))


def is_one_of(tokens: mtf.Tensor, ids: tuple[int, ...]) -> mtf.Tensor:
    """Tells which tokens are among some ids: bool, in the shape of the tokens."""
    found = mtf.zeros(tokens.mesh, tokens.shape, tf.bool)
    for token in ids:
        found = mtf.logical_or(found, mtf.equal(tokens, token))
    return found
