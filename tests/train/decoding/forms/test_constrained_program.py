"""Text under a constraint, against an account that tries each allowed token by whole passes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meshtf as mtf
from meshtf.train import RunFolder, Training
from meshtf.train.configuration import ConfigurationError
from meshtf.train.decoding.forms.constrained_program import ConstrainedProgram
from meshtf.train.decoding.options import Decoding
from meshtf.train.decoding.programs import generation_program, greatest_sizes
from meshtf.train.decoding.prompt_text import PromptText
from meshtf.train.decoding.text_decoder import ContinuedTexts
from meshtf.train.trainer import mesh_of
from tests.train.decoding.small_run import LENGTH, write_small_run

PROMPTS = [PromptText(text, f"prompt {text}") for text in ("x", "hello", "de", "f(x)")]
BYTE, END = 2, 1


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunFolder, Training]:
    path = tmp_path_factory.mktemp("run")
    training = write_small_run(path, 'Training.mesh_shape = "rows:1"', 'Training.layout = ""')
    return RunFolder(path), training


def work_of(
    run: tuple[RunFolder, Training], mesh_impl: mtf.SpmdMeshImpl | None = None, **options: Any
) -> ContinuedTexts:
    folder, training = run
    work = ContinuedTexts(training, mesh_impl or mesh_of(training), Decoding(**options), PROMPTS)
    work.restore(folder)
    return work


def test_greedy_tokens_are_the_likeliest_of_those_that_are_allowed(run: tuple[RunFolder, Training]) -> None:
    work = work_of(run, regex="[ab]{2}[0-9]")
    assert [program.name for program in work.programs] == ["fill", "generate"]
    for prompt, (found,) in zip(PROMPTS, work, strict=True):
        assert re.fullmatch("[ab]{2}[0-9]", found.text)
        assert found.is_stopped
        ids, total = [BYTE + b for b in prompt.text.encode()], 0.0
        for allowed in (b"ab", b"ab", b"0123456789", None):
            choices = [END] if allowed is None else [BYTE + b for b in allowed]
            likelihoods = [_likelihood(work, [*ids, choice]) for choice in choices]
            ids.append(choices[int(np.argmax(likelihoods))])
            total += max(likelihoods)
        assert found.ids == ids[len(prompt.text) :]
        # Four log-likelihoods of some nats, each of a pass of about a hundred float32 roundings.
        assert found.log_likelihood == pytest.approx(total, abs=4 * 10 * 100 * 2**-24)


def test_the_vocabularys_end_is_an_end_though_others_are_named(run: tuple[RunFolder, Training]) -> None:
    """Padding is the only end that is named. The form overrides the ban on both, since nothing else may come."""
    for (found,) in work_of(run, regex="[ab]{2}[0-9]?", end_ids=(0,), min_new_tokens=5):
        assert re.fullmatch("[ab]{2}[0-9]", found.text), "no end comes before the digit"
        assert (len(found.ids), found.is_stopped) == (4, True)


def _likelihood(work: ContinuedTexts, ids: list[int]) -> float:
    length = work.forward.graph.operations[0].outputs[0].shape.get_dim_by_name("length").size
    targets = np.zeros([4, length], np.int32)
    targets[:, : len(ids)] = ids
    weights = (np.arange(targets.shape[1]) < len(ids)).astype(np.float32) * np.ones([4, 1], np.float32)
    results = work.forward(targets=targets, targets_weights=weights)
    return float(results["log_likelihoods"].numpy()[0, len(ids) - 1])


def test_penalties_stops_and_likelihoods_go_with_a_constraint(run: tuple[RunFolder, Training]) -> None:
    """A penalty beyond all differences of logits makes letters come equally often. The stop is within the form."""
    work = work_of(run, regex="[ab]{6}cab", frequency_penalty=1000.0, stop_texts=("ca",), min_new_tokens=1, logprobs=2)
    for prompt, (found,) in zip(PROMPTS, work, strict=True):
        assert (sorted(found.text), found.is_stopped) == (list("aaabbb"), True)
        assert found.ids == [BYTE + b for b in f"{found.text}ca".encode()]
        assert found.tokens is not None
        assert [token.id for token in found.tokens] == found.ids
        assert found.log_likelihood == pytest.approx(sum(token.log_likelihood for token in found.tokens), rel=2**-18)
        first = [BYTE + b for b in prompt.text.encode()]
        for told in (found.tokens[0], *found.tokens[0].likeliest):
            assert told.log_likelihood == pytest.approx(_likelihood(work, [*first, told.id]), abs=10 * 100 * 2**-24)
        one, two = (told.log_likelihood for told in found.tokens[0].likeliest)
        assert one >= two


def test_draws_depend_on_the_prompts_number_alone_and_the_form_wins_over_bans(run: tuple[RunFolder, Training]) -> None:
    """And not on the mesh. No letter comes twice. The text ends when the form is whole, although it is to have more
    tokens."""
    options = {"method": "sample", "regex": "[a-zA-Z]{5}", "no_repeat_ngram_size": 1, "min_new_tokens": 9, "seed": 2}
    together = list(work_of(run, batch_size=4, **options))
    alone = list(work_of(run, mtf.SpmdMeshImpl("rows:2", "batch:rows"), batch_size=2, **options))
    assert [found.ids for (found,) in together] == [found.ids for (found,) in alone]
    for prompt, (found,) in zip(PROMPTS, together, strict=True):
        assert re.fullmatch("[a-zA-Z]{5}", found.text)
        assert len({*prompt.text, *found.text}) == len(set(prompt.text)) + 5
        assert (len(found.ids), found.is_stopped) == (6, True)
    assert len({found.text for (found,) in together}) == len(PROMPTS)


@pytest.mark.long
@pytest.mark.parametrize("method", ["greedy", "sample"])
def test_every_text_that_ends_is_json_of_the_schema(
    method: str, run: tuple[RunFolder, Training], tmp_path: Path
) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9}}}
    schema |= {"required": ["n"], "additionalProperties": False, "x-guidance": {"whitespace_flexible": False}}
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    work = work_of(run, method=method, json_schema=str(tmp_path / "schema.json"), max_new_tokens=LENGTH - 6)
    for (found,) in work:
        assert found.is_stopped
        assert list(json.loads(found.text)) == ["n"]
    (tmp_path / "yes.lark").write_text('start: "yes" | "no"')
    assert {found.text for (found,) in work_of(run, grammar=str(tmp_path / "yes.lark"))} <= {"yes", "no"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"regex": "a("}, "Decoding.regex cannot be used: at 1"),
        ({"regex": "a", "method": "beam"}, "Decoding.regex is for greedy and sample, and Decoding.method is beam"),
        ({"regex": "a", "grammar": "b"}, "Decoding has grammar and regex"),
        ({"grammar": "gone.lark"}, "the file of Decoding.grammar, gone.lark, cannot be read"),
    ],
)
def test_mistakes(options: dict[str, Any], message: str, run: tuple[RunFolder, Training]) -> None:
    with pytest.raises(ConfigurationError) as raised:
        work_of(run, **options)
    assert message in str(raised.value)


def test_programs_of_one_loop_and_models_with_an_own_start_are_refused(
    run: tuple[RunFolder, Training], tmp_path: Path
) -> None:
    _, training = run
    sizes, mesh_impl, decoding = greatest_sizes(training), mesh_of(training), Decoding(regex="a")
    with pytest.raises(ConfigurationError, match=r"Decoding\.regex works only in meshtf-decode"):
        generation_program(training, mesh_impl, sizes, decoding)
    own = write_small_run(tmp_path, "TransformerLM.starts_prompts = False")
    with pytest.raises(ConfigurationError, match=r"TransformerLM begins with the prompt's own first token"):
        ConstrainedProgram(own, mesh_impl, sizes, decoding, mtf.VariableStore())
