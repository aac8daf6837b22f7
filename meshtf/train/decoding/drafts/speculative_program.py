"""The program that continues prompts with a draft."""

from __future__ import annotations

import meshtf as mtf
from meshtf.mesh_impl.mesh_impl import MeshImpl
from meshtf.train.decoding.begun_prompts import BegunPrompts
from meshtf.train.decoding.drafts.draft_model import Draft, decoder_within
from meshtf.train.decoding.drafts.speculation import Speculated, speculate
from meshtf.train.decoding.options import Decoding
from meshtf.train.decoding.programs import (
    GENERATE,
    TARGETS,
    TARGETS_START,
    Sizes,
    exporting_program,
    generation_inputs,
    text_model,
    vocabulary_of,
)
from meshtf.train.decoding.prompts import Prompts
from meshtf.train.decoding.step_decoder import PromptStarter
from meshtf.train.training import Training


def speculative_program(
    training: Training,
    draft: Draft,
    mesh_impl: MeshImpl,
    sizes: Sizes,
    decoding: Decoding,
    variables: mtf.VariableStore | None = None,
) -> mtf.Function:
    """Builds a program that continues prompts with a draft. It returns the fields of `Speculated`, by name.

    Its inputs are those of `generation_program`. It has the variables of both models, and the draft computes in the
    dtype of the model's activations.

    Raises:
      ConfigurationError: if the draft does not go with the model or with an option.
    """
    draft.check_goes_with(training, decoding)
    stops = decoding.stops(vocabulary_of(training))

    def continued(**given: mtf.Tensor) -> dict[str, mtf.Tensor]:
        prompts = Prompts(given.pop(TARGETS), given.pop("lengths"), given.pop("ends"), sizes.prompts)
        model = text_model(training)
        begun = None
        if isinstance(model, PromptStarter) and not model.starts_prompts:
            begun = BegunPrompts.of(prompts, model.start_id)
            given[TARGETS_START], prompts = begun.start, begun.rest
        found = speculate(
            decoder_within(model, given, training.kept_weights),
            draft.decoder(given),
            prompts,
            decoding.sampling,
            stops,
            num_drafted=draft.num_tokens,
        )
        if begun is not None:
            found = Speculated(begun.whole(found.sequences), found.steps, found.accepted)
        return found.by_name()

    return exporting_program(
        continued,
        mesh_impl,
        generation_inputs(sizes),
        variable_dtype=training.variable_dtype,
        name=GENERATE,
        variables=variables,
        seed=decoding.seed,
    )
