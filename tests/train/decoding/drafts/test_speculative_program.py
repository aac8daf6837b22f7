"""The program of a model and its draft: each has its own variables, in the form in which its own run keeps them."""

from __future__ import annotations

import dataclasses

import pytest

import meshtf as mtf
from meshtf.models import EncoderDecoder, TransformerLM
from meshtf.quantization import Quantization
from meshtf.train.configuration import ConfigurationError
from meshtf.train.decoding import Decoding
from meshtf.train.decoding.drafts.draft_model import Draft
from meshtf.train.decoding.drafts.speculative_program import speculative_program
from meshtf.train.decoding.programs import greatest_sizes
from meshtf.train.decoding.prompt_text import PromptText
from meshtf.train.decoding.text_decoder import ContinuedTexts
from tests.train.decoding.drafts.test_draft_model import training_of


def test_a_quantized_model_may_have_a_draft_that_is_not(lm: TransformerLM) -> None:
    """And the other way round, on models that begin with the prompt's own first token."""
    training = training_of(dataclasses.replace(lm, starts_prompts=False))
    quantized = dataclasses.replace(training, quantization=Quantization())
    for model, draft in ((quantized, training), (training, quantized)):
        program = speculative_program(
            model, Draft.of(draft, 2), mtf.PlanMeshImpl("rows:1", ""), greatest_sizes(model), Decoding()
        )
        names = list(program.graph.variables)
        drafts = [name for name in names if name.startswith("draft/")]
        assert 0 < len(drafts) < len(names)
        for own, is_quantized in ((drafts, draft is quantized), (set(names) - set(drafts), model is quantized)):
            assert any(name.endswith("/int8") for name in own) == is_quantized


def test_a_draft_of_another_kind_is_refused_before_its_own_program_is_built(
    lm: TransformerLM, encoder_decoder: EncoderDecoder
) -> None:
    training, draft = training_of(lm), Draft.of(training_of(encoder_decoder), 2)
    prompts = [PromptText("ab", "a prompt")]
    with pytest.raises(ConfigurationError, match="do not have the same inputs"):
        ContinuedTexts(training, mtf.SpmdMeshImpl("rows:1", ""), Decoding(), prompts, draft=draft)
