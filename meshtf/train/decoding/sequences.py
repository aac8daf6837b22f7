"""The result of decoding."""

from __future__ import annotations

import dataclasses

import meshtf as mtf


@dataclasses.dataclass(frozen=True)
class Sequences:
    """Sequences, best first along `ranks` if there are several of a prompt.

    Attributes:
      ids: int32 [batch, (ranks), length]: the prompt, the added tokens with the one that stopped it, and zeros.
      lengths: int32 [batch, (ranks)], without the zeros.
      log_likelihoods: float32 [batch, (ranks)], of the added tokens.
      scores: float32 [batch, (ranks)], the order of the ranks: the log-likelihood over the length, or over a power of
        it. -inf if beam search has found fewer sequences.
    """

    ids: mtf.Tensor
    lengths: mtf.Tensor
    log_likelihoods: mtf.Tensor
    scores: mtf.Tensor

    def by_name(self) -> dict[str, mtf.Tensor]:
        """Returns the fields by name, as the result of a program."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
