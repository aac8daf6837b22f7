"""A step of an engine writes to its cache in the memory where it is."""

from __future__ import annotations

import gc
import re
from pathlib import Path

import numpy as np
import pytest

import meshtf as mtf
from meshtf.layers import AttentionConfig, VocabularyEmbedding
from meshtf.layers.transformer import CrossAttention, SelfAttention, TokenEmbedding, TransformerStack
from meshtf.mesh_impl.pjrt.pjrt import Executable
from meshtf.models import EncoderDecoder
from meshtf.serving.engine_options import EngineOptions
from meshtf.serving.engine_programs import EnginePrograms
from meshtf.train import RunFolder
from meshtf.train.configuration import ConfigurationError
from tests.train.decoding.drafts.test_draft_model import training_of
from tests.train.decoding.small_run import write_small_run

LAYERS, PAGES, PAGE = 2, 37, 4
POSITIONS = LAYERS * PAGES * PAGE


@pytest.mark.long
def test_an_accelerators_step_makes_no_copy_of_its_cache(tmp_path: Path) -> None:
    """Each cache [paged_length:296 heads:2 d_kv:8] is given as a parameter whose memory is the result's. What the
    compiled program makes of its size is written there, and no other."""
    training = write_small_run(tmp_path, f"TransformerStack.num_layers = {LAYERS}")
    options = EngineOptions(num_rows=4, num_prompt_tokens=4, page_size=PAGE, num_pages=PAGES, num_lengths=1)
    programs = EnginePrograms(training, mtf.GpuMeshImpl("all:1", ""), options)
    programs.restore(RunFolder(tmp_path))
    earlier = {id(x) for x in gc.get_objects() if isinstance(x, Executable)}
    (name, *_) = programs.steps
    arrays = programs.inputs(name)
    programs.run(name, arrays)
    (step,) = [x for x in gc.get_objects() if isinstance(x, Executable) and id(x) not in earlier]
    text = "".join(module.to_string() for module in step.program.hlo_modules())
    header = text.splitlines()[0]
    assert len(re.findall(r"may-alias", header)) == 2, "keys and values"
    made = re.findall(rf"= f32\[(?:1,)?{POSITIONS},(?:2,8|16)\]\S* ([a-z-]+)\(", text)
    assert set(made) <= {"parameter", "bitcast", "scatter", "fusion", "get-tuple-element"}, made
    assert made.count("scatter") == 2 * LAYERS
    assert made.count("fusion") <= 2 * LAYERS, "each is one of the scatters"
    kept = programs.forward.variables["pages/0"]
    assert np.array(kept).shape == (POSITIONS, 2, 8)


def test_a_model_with_an_encoder_is_refused() -> None:
    attention = AttentionConfig(num_heads=2, d_kv=4)
    encoder = TransformerStack([SelfAttention(attention)], num_layers=1)
    decoder = TransformerStack([SelfAttention(attention), CrossAttention(attention)], num_layers=1)
    training = training_of(EncoderDecoder(8, TokenEmbedding(VocabularyEmbedding(9)), encoder, decoder))
    with pytest.raises(ConfigurationError, match=r"only language models .* and the model is EncoderDecoder\. meshtf-d"):
        EnginePrograms(training, mtf.PlanMeshImpl("all:1", ""), EngineOptions())
