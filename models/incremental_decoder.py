"""Decoding token by token: the work of a model's decoder in each step, with the state that it carries.

state = decoder.start(mesh, batch_dims, max_length, dtype)
logits, state = decoder.step(tokens, zero, zero, state)        # the logits of token 0, from `start_id`
logits, state = decoder.step(tokens, one, one, state)          # the logits of token 1, from token 0
"""

from __future__ import annotations

import dataclasses

import tensorflow as tf

import meshtf as mtf
from meshtf.errors import GraphError, ShapeError, counted
from meshtf.layers.attention import AttentionMask, BeamSlots, ScalingByLength, Tokens
from meshtf.layers.attention.caches.pages import PageView
from meshtf.layers.embedding import VocabularyEmbedding
from meshtf.layers.transformer import (
    ChainedStacks,
    Context,
    DecodingSpace,
    Memory,
    TokenEmbedding,
    TransformerStack,
)
from meshtf.models._token_sequence import shifted_right


@dataclasses.dataclass(frozen=True)
class IncrementalDecoder:
    """A decoder in one program.

    At position i, the decoder gets the token of position i - 1 (`start_id` at the start), and returns the logits of
    position i. Its state is a list of tensors over [layers, batch dimensions, ..], which a loop carries.

    Attributes:
      embedding: the tokens' embedding.
      output: makes logits.
      stack: the layers.
      d_model: the dimension of the layers' vectors.
      scope: the scope of the stack's variables.
      mask: who sees whom. With `sees_prefix`, the tokens of a prompt all see each other.
      memory: the memory of cross-attention.
      start_id: the id before the first token: one for all sequences, or int32 [batch], one for each.
      beam: the batch dimension of a beam search. The search reorders the tensors of the state that have it. Keys and
        values may have `beam_slots` instead, and the state ends with the table of `BeamSlots`.
    """

    embedding: TokenEmbedding
    output: VocabularyEmbedding
    stack: TransformerStack | ChainedStacks
    d_model: mtf.Dimension
    scope: str
    mask: AttentionMask
    memory: Memory | None = None
    start_id: int | mtf.Tensor = 0
    beam: mtf.Dimension | None = None

    @property
    def vocab(self) -> mtf.Dimension:
        """The padded dimension of logits. Logits of padding are too low ever to be chosen."""
        return self.output.vocab

    @property
    def reads_several_tokens(self) -> bool:
        """Whether `step` takes several tokens of each sequence."""
        return self.beam is None

    def with_beam(self, beam: mtf.Dimension) -> IncrementalDecoder:
        """The same decoder for a beam search over this dimension.

        No step copies keys and values unless that is quicker.
        """
        return dataclasses.replace(self, beam=beam)

    def start(self, mesh: mtf.Mesh, batch_dims: mtf.Shape, max_length: int, dtype: tf.DType) -> list[mtf.Tensor]:
        """The state before the first token.

        Args:
          mesh: the program's mesh.
          batch_dims: the sequences' dimensions, such as [batch], or [batch, beam].
          max_length: the length of the longest sequence, in tokens.
          dtype: the dtype of activations.

        Raises:
          ShapeError: the model has fewer positions.
        """
        self._check_length(max_length)
        context = Context(self.mask, Tokens(), memory=self.memory)
        with mtf.variable_scope(self.scope):
            state = self.stack.start(DecodingSpace(mesh, batch_dims, max_length, dtype, self.beam), context)
        return [*state, *self._table(mesh, batch_dims, max_length)]

    def fill(self, prompts: mtf.Tensor, prompt_lengths: mtf.Tensor, max_length: int | None = None) -> list[mtf.Tensor]:
        """The state after the prompts, from one pass over all of their tokens. It lacks the beam, if there is one.

        Args:
          prompts: int32 [batch dimensions, length], as long as the longest prompt. Ids after the end of a prompt have
            no effect.
          prompt_lengths: int32 [batch dimensions].
          max_length: the length of the longest sequence, prompts included; by default the length of `prompts`.

        Raises:
          ShapeError: the model has fewer positions.
        """
        length = prompts.shape["length"]
        max_length = length.size if max_length is None else max_length
        self._check_length(max_length)
        places = mtf.range(prompts.mesh, length)
        is_prompt = prompt_lengths > places  # [batch dimensions, length], as the prompts
        is_prefix = is_prompt.astype(tf.int32) if self.mask.sees_prefix else None
        tokens = Tokens(places, is_prefix=is_prefix)
        # The first step reads the last token of each prompt, because `start_id` stands before the first.
        lengths = prompt_lengths + 1
        context = Context(self.mask, tokens, places, memory=self.memory, max_length=max_length, lengths=lengths)
        self.embedding.vocabulary.checked(prompts, is_prompt)
        ids = shifted_right(prompts, self.start_id)
        x = self.embedding(ids, places, self.d_model, is_training=False, are_checked=True)
        with mtf.variable_scope(self.scope):
            state = self.stack.fill(x, context)[1]
        return [*state, *self._table(prompts.mesh, prompts.shape - [length], max_length)]

    def step(
        self, tokens: mtf.Tensor, position: mtf.Tensor, writes_at: mtf.Tensor, state: list[mtf.Tensor]
    ) -> tuple[mtf.Tensor, list[mtf.Tensor]]:
        """Makes one step of all sequences.

        If `tokens`, `position` and `writes_at` have one dimension more than the batch dimensions, a step takes several
        consecutive tokens of each sequence. Each token sees itself and the ones before it. The state must then come
        from `fill`, and there must be no beam.

        Args:
          tokens: int32 [batch dimensions], the tokens before `position`. At position 0, it must be 0 if
            `start_id` is 0, and may be any id otherwise.
          position: int32 scalar; or [batch dimensions] or fewer, if sequences are at different positions.
          writes_at: int32 [batch dimensions] or fewer: `position`, or -1 where the state has that position already.
          state: the state of the step before.

        Returns:
          Logits of the tokens at `position`, over the dimensions of `tokens` and [vocab], and the new state.
        """
        slots = None
        if self.beam is not None:
            *state, holders = state
            slots = BeamSlots(holders, self.beam).written(writes_at)
        context = Context(self.mask, Tokens(position), position, memory=self.memory, slots=slots)
        if not isinstance(self.start_id, int) or self.start_id:
            tokens = mtf.where(mtf.equal(position, 0), self.start_id, tokens, output_shape=tokens.shape)
        # The model chose these tokens, or they were checked when prompts were read.
        x = self.embedding(tokens, position, self.d_model, is_training=False, are_checked=True)
        with mtf.variable_scope(self.scope):
            x, state = self.stack.step(x, context, writes_at, state)
        if slots is not None:
            state = [*state, slots.holders]
        return self.output.hidden_to_logits(x, self.d_model), state

    def start_pages(self, mesh: mtf.Mesh, num_positions: int, dtype: tf.DType) -> list[mtf.Tensor]:
        """The state of all sequences together, in the pages of one cache, before anything is written.

        Args:
          mesh: the program's mesh.
          num_positions: the number of positions of all pages. Each layer has as many.
          dtype: the dtype of activations.

        Raises:
          GraphError: the model cannot read its prompts in parts, or the program keeps its caches in int8. The message
            says why.
        """
        self._check_is_paged()
        context = Context(self.mask, Tokens())
        space = DecodingSpace(mesh, mtf.Shape([]), num_positions, dtype, is_paged=True)
        with mtf.variable_scope(self.scope):
            return self.stack.start(space, context)

    def step_in_pages(
        self, tokens: mtf.Tensor, position: mtf.Tensor, pages: PageView, state: list[mtf.Tensor], wanted: mtf.Tensor
    ) -> tuple[mtf.Tensor, list[mtf.Tensor]]:
        """Reads one token in each row, at its own position. Several rows may be tokens of one sequence.

        Args:
          tokens: int32 [batch], the tokens to read: `start_id` at position 0, and at each later position the token
            before it.
          position: int32 [batch], negative in rows that are not used.
          pages: the rows' places in the cache.
          state: the state of the step before, or of `start_pages`.
          wanted: int32 [batch], perhaps of another size: the rows whose logits are wanted, or -1 for none.

        Returns:
          Logits [batch, vocab] of the wanted rows, and the new state.
        """
        at = mtf.maximum(position, 0)
        context = Context(self.mask, Tokens(position), at, pages=pages)
        x = self.embedding(tokens, at, self.d_model, is_training=False, are_checked=True)
        with mtf.variable_scope(self.scope):
            x, state = self.stack.step(x, context, position, state)
        rows = x.rename({tokens.shape[0].name: "rows_read"})
        return self.output.hidden_to_logits(mtf.gather(rows, wanted, "rows_read"), self.d_model), state

    def _check_is_paged(self) -> None:
        if mtf.quantization.keeps_int8_cache():
            raise GraphError('a cache in pages keeps the dtype of activations; leave out Quantization.cache = "int8"')
        if self.memory is not None:
            raise GraphError("a model with an encoder cannot keep a cache in pages: its decoder attends to the inputs")
        if self.mask.sees_prefix:
            raise GraphError(
                "sees_prefix lets the tokens of a prompt see each other, so a prompt cannot be read in parts"
            )
        stacks = self.stack.stacks if isinstance(self.stack, ChainedStacks) else [self.stack]
        for sublayer in (sublayer for stack in stacks for sublayer in stack.sublayers):
            scaling = getattr(getattr(sublayer, "rotary", None), "scaling", None)
            if isinstance(scaling, ScalingByLength):
                raise GraphError(
                    f"{type(scaling).__name__} rotates keys by the length of their prompt, but a cache in pages reads "
                    f"a prompt in parts, and shares keys between prompts of different lengths"
                )

    def _table(self, mesh: mtf.Mesh, batch_dims: mtf.Shape, max_length: int) -> list[mtf.Tensor]:
        """The table of hypotheses' keys and values while all beams are equal; empty without a beam."""
        return [] if self.beam is None else [BeamSlots.start(mesh, batch_dims, max_length, self.beam).holders]

    def _check_length(self, length: int) -> None:
        limit = self.embedding.max_length
        if limit is not None and length > limit:
            raise ShapeError(
                f"sequences of {counted(length, 'token')} are longer than the model's {counted(limit, 'position')}"
            )
