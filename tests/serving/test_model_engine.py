"""The engine against the program of meshtf-decode: joining, leaving and sharing pages change no token."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
import threading
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import ClusterError
from meshtf.serving.engine import (
    EngineBusyError,
    EngineClosedError,
    EngineFailedError,
    Finish,
    GenerationRequest,
    RequestError,
)
from meshtf.serving.engine_options import EngineOptions
from meshtf.serving.engine_programs import EnginePrograms
from meshtf.serving.model_engine import ModelEngine
from meshtf.serving.step_program import StepSizes, step_program
from meshtf.testing import assert_close
from meshtf.train import RunFolder, Training
from meshtf.train.decoding import Decoding
from meshtf.train.decoding.forms.constraints import Constraint
from meshtf.train.decoding.prompt_text import PromptText
from meshtf.train.decoding.text_decoder import ContinuedTexts, ScoredTexts
from meshtf.train.trainer import mesh_of
from tests.train.decoding.small_run import write_small_run

OPTIONS = EngineOptions(
    num_rows=4, num_prompt_tokens=4, page_size=4, num_pages=16, num_lengths=2, queue_length=16, max_likeliest=3
)
SAMPLED = {"temperature": 0.9, "top_k": 40, "top_p": 0.9, "min_p": 0.01}
PENALIZED = {"repetition_penalty": 1.3, "presence_penalty": 0.4, "frequency_penalty": 0.2, "min_new_tokens": 3}
WAYS: list[dict[str, Any]] = [{}, {"temperature": 1.0}, SAMPLED, {**SAMPLED, **PENALIZED}]
PROMPTS = ["the same beginning a", "the same beginning b", "x", "", "the same beginning"]
PATIENCE = 120.0
TERMS = 5000
"""Roundings of a layer of attention, a feed-forward layer, and the logits of a byte."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Training, RunFolder]:
    path: Path = tmp_path_factory.mktemp("run")
    training = write_small_run(path, 'Training.mesh_shape = "rows:1"', 'Training.layout = ""')
    return training, RunFolder(path)


@pytest.fixture(scope="module")
def engine(run: tuple[Training, RunFolder]) -> Any:
    training, folder = run
    programs = EnginePrograms(training, mesh_of(training), OPTIONS)
    assert programs.restore(folder) == 3
    made = ModelEngine(programs)
    made.start()
    yield made
    made.close()


def request(training: Training, prompt: str, **options: Any) -> GenerationRequest:
    ids = tuple(training.task.vocabulary.encode(prompt))
    return GenerationRequest(ids, **{"max_new_tokens": 24 - len(ids), **options})


def submitted(engine: ModelEngine, asked: GenerationRequest, listener: Any) -> Any:
    engine.submit(asked, listener)
    return listener


def test_requests_that_join_and_leave_get_what_each_gets_alone(
    run: tuple[Training, RunFolder], engine: ModelEngine, heard: Any
) -> None:
    """Whatever their ways to choose are, and although they share pages. One is compared with `meshtf-decode`."""
    training, folder = run
    stop, before = training.task.vocabulary.end_id, engine.status()
    asked = [
        request(training, PROMPTS[n % 5], stop_ids=(stop,), seed=seed, num_likeliest=2, client=str(n % 2), **way)
        for n in range(2)
        for seed, way in enumerate(WAYS)
    ]
    alone = [submitted(engine, each, heard()).wait() for each in asked]
    together = [submitted(engine, each, heard()) for each in asked]
    for one, other in zip(together, alone, strict=True):
        assert one.wait().ids == other.ids
        assert one.reason is other.reason is (Finish.STOP if one.ids[-1] == stop else Finish.LENGTH)
    after = engine.status()
    assert after.num_shared_tokens > before.num_shared_tokens, "the prompts begin alike"
    assert after.num_steps - before.num_steps < sum(len(each.ids) for each in [*alone, *together])
    assert after.num_free_pages == after.num_pages == OPTIONS.num_pages
    assert list(engine.programs.steps) == ["decode 2", "decode 6", "read 2", "read 6"]
    decoding = Decoding("sample", seed=3, logprobs=2, **WAYS[3])
    work = ContinuedTexts(training, mesh_of(training), decoding, [PromptText(PROMPTS[0], "a prompt")])
    work.restore(folder)
    ((expected,),), found = list(work), alone[3]
    assert found.ids == list(expected.ids)
    tokens = expected.tokens or ()
    likelihoods = np.array([token.log_likelihood for token in tokens], np.float32)
    assert_close(np.array([x.log_likelihood for x in found.tokens], np.float32), likelihoods, terms=TERMS)
    assert [[i for i, _ in x.likeliest] for x in found.tokens] == [[t.id for t in x.likeliest] for x in tokens]


def test_requests_end_early_wait_and_are_refused(
    run: tuple[Training, RunFolder], engine: ModelEngine, heard: Any
) -> None:
    training, _ = run
    long = request(training, "x", client="a")
    late = submitted(engine, request(training, "x", deadline_seconds=0.0), heard())
    assert late.wait().reason is Finish.TIMED_OUT
    listeners = [heard() for _ in range(6)]
    numbers = [engine.submit(long, listener) for listener in listeners]
    engine.cancel(numbers[-1])
    assert listeners[-1].wait().reason is Finish.CANCELLED
    assert all(one.wait().reason is Finish.LENGTH for one in listeners[:-1])  # six texts of six pages, of which 16 are
    engine.cancel(numbers[0])
    beyond = dataclasses.replace(long, stop_ids=(1, 999999), min_new_tokens=2, max_new_tokens=2)
    assert submitted(engine, beyond, heard()).wait().reason is Finish.LENGTH, "an end beyond the vocabulary never comes"
    for change, message in (
        ({"prompt": (999999,)}, "id 999999 at place 0 of the prompt is not one of the"),
        ({"max_new_tokens": 99}, "the prompt has 1 token, and 99 more are asked for; together they may be 24"),
        ({"stop_ids": (-1,)}, r"stop_ids must be ids, and is \[-1\]"),
        ({"temperature": -1.0}, "temperature must be a number, 0 or more, and is -1.0"),
        ({"num_likeliest": 4}, "num_likeliest must be an integer from 0 to 3, or None, and is 4"),
    ):
        with pytest.raises(RequestError, match=message):
            engine.submit(dataclasses.replace(long, **change), heard())
    with pytest.raises(RequestError, match="the text has 25 tokens, and may have 24 at most"):
        engine.score(tuple(range(25)))


def test_a_flood_of_one_client_leaves_room_and_turns_to_others(
    run: tuple[Training, RunFolder], engine: ModelEngine, heard: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For generations, of which two run at a time here, and for scores. The first step waits until all have asked."""
    training, _ = run
    asked = request(training, "", client="many")
    ended, may_run, whole = list[str](), threading.Event(), engine.programs.run

    class Named(heard):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def finished(self, reason: Finish) -> None:
            ended.append(self.name)
            super().finished(reason)

    def run_later(name: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        assert may_run.wait(PATIENCE)
        return whole(name, arrays)

    def score(client: str) -> None:
        engine.score((5, 6), client).add_done_callback(lambda _: ended.append(f"score of {client}"))

    monkeypatch.setattr(engine.programs, "run", run_later)
    numbers, listeners = list[int](), [Named("many") for _ in range(20)]
    own = "the queue has no room for another request of this client: 8 of its requests and 0 of others wait in 16"
    with pytest.raises(EngineBusyError, match=own):
        numbers.extend(engine.submit(asked, listener) for listener in listeners)
    with pytest.raises(EngineBusyError, match=own):
        deque(map(score, ["many"] * 20), maxlen=0)
    late = Named("one")
    engine.submit(dataclasses.replace(asked, client="one"), late)
    score("one")
    may_run.set()
    late.wait()
    for number, listener in zip(numbers, listeners, strict=False):
        engine.cancel(number)
        assert listener.wait().reason in (Finish.CANCELLED, Finish.LENGTH)
    assert ended[ended.index("one") :].count("many") >= 6, "eight waited; two may have been beside it"
    assert engine.score((5, 6)).result(PATIENCE)
    scores = [name for name in ended if name.startswith("score")]
    assert scores.index("score of one") <= engine.programs.num_scores + 1, "the pass that had begun, and one turn"
    assert engine.status().num_free_pages == OPTIONS.num_pages


def test_forms_go_with_other_requests_and_are_those_of_meshtf_decode(
    run: tuple[Training, RunFolder], engine: ModelEngine, heard: Any
) -> None:
    """In one batch with a text of any form, and one whose form asks for more than penalties and bans leave."""
    training, folder = run
    plain, letters = request(training, "x", seed=5, **SAMPLED), {"regex": "[a-d]{2,8}e"}
    formed = dataclasses.replace(plain, constraint=Constraint("regex", letters["regex"]), presence_penalty=0.5)
    forced = dataclasses.replace(formed, constraint=Constraint("regex", "no"), min_new_tokens=5, stop_ids=(1,))
    alone = submitted(engine, plain, heard()).wait()
    together = [submitted(engine, each, heard()) for each in (formed, plain, forced)]
    assert together[1].wait().ids == alone.ids
    assert together[2].wait().ids == [*training.task.vocabulary.encode("no"), 1]
    assert together[2].reason is Finish.STOP
    decoding = Decoding("sample", seed=5, presence_penalty=0.5, **SAMPLED, **letters)
    work = ContinuedTexts(training, mesh_of(training), decoding, [PromptText("x", "a prompt")])
    work.restore(folder)
    ((expected,),) = work
    assert re.fullmatch("[a-d]{2,8}e", expected.text)
    assert together[0].wait().ids == list(expected.ids)
    with pytest.raises(RequestError, match=r"^constraint cannot be used: Invalid type: objekt"):
        engine.submit(dataclasses.replace(plain, constraint=Constraint("json_schema", '{"type": "objekt"}')), heard())


def test_a_score_is_the_one_of_meshtf_decode(run: tuple[Training, RunFolder], engine: ModelEngine) -> None:
    training, folder = run
    work = ScoredTexts(training, mesh_of(training), Decoding(), [PromptText("some text", "a text")])
    work.restore(folder)
    (expected,) = work
    ids = tuple(training.task.vocabulary.encode("some text"))
    gone = engine.score(ids)
    gone.cancel()
    found = engine.score(ids).result(PATIENCE)
    assert_close(np.float32(sum(found)), np.float32(expected.log_likelihood), terms=TERMS)


def test_a_token_that_nothing_predicts_has_no_score(run: tuple[Training, RunFolder], engine: ModelEngine) -> None:
    training, _ = run
    own = dataclasses.replace(training, model=dataclasses.replace(training.model, starts_prompts=False))
    found = {"log_likelihoods": np.array([[0.0, -1.5, -2.0], [0.0, 0.0, 0.0]], np.float32)}
    programs = EnginePrograms(own, mesh_of(own), dataclasses.replace(OPTIONS, num_lengths=1))
    assert programs.scores_in(found, [(5, 6), ()]) == [[None, -1.5], []]
    assert engine.programs.scores_in(found, [(5, 6), ()]) == [[0.0, -1.5], []]


def test_a_mesh_changes_no_token(run: tuple[Training, RunFolder], engine: ModelEngine, heard: Any) -> None:
    training, folder = run
    mesh_impl = mtf.SpmdMeshImpl("rows:2;cols:2", "batch:rows;heads:cols;d_ff:cols;vocab:cols")
    asked = [request(training, prompt, seed=3, **SAMPLED, **PENALIZED) for prompt in PROMPTS[:3]]
    expected = [submitted(engine, each, heard()).wait().ids for each in asked]
    programs = EnginePrograms(training, mesh_impl, dataclasses.replace(OPTIONS, num_lengths=1))
    programs.restore(folder)
    split = ModelEngine(programs)
    split.start()
    found = [submitted(split, each, heard()) for each in asked]
    running = submitted(split, dataclasses.replace(asked[0], prompt=(), max_new_tokens=24), heard())
    scores = [split.score(asked[0].prompt) for _ in range(8)]
    assert split.drain(PATIENCE), "what was taken comes to its end"
    assert [one.wait().ids for one in found] == expected
    assert running.reason is Finish.LENGTH
    assert len({tuple(score.result(0)) for score in scores}) == 1, "rows of one pass, and the next pass"
    with pytest.raises(EngineClosedError, match="takes no more requests"):
        split.submit(asked[0], heard())
    split.close()


@pytest.mark.long
def test_random_requests_and_cancels_lose_no_page(
    run: tuple[Training, RunFolder], engine: ModelEngine, heard: Any
) -> None:
    training, _ = run
    rng, listeners = np.random.default_rng(0), []
    for _ in range(400):
        prompt = "".join(rng.choice(list("ab"), size=rng.integers(0, 12)))
        way = WAYS[rng.integers(4)]
        asked = request(training, prompt, max_new_tokens=int(rng.integers(1, 12)), client=str(rng.integers(3)), **way)
        try:
            listeners.append((asked, heard()))
            number = engine.submit(asked, listeners[-1][1])
        except EngineBusyError:
            listeners.pop()[1].finished(Finish.CANCELLED)
            listeners[0][1].wait()
            continue
        if rng.random() < 0.2:
            engine.cancel(number)
    for asked, one in listeners:
        if one.wait().reason is Finish.LENGTH:
            assert len(one.ids) == asked.max_new_tokens
        else:
            assert one.reason is Finish.CANCELLED
    assert engine.status().num_free_pages == OPTIONS.num_pages
    for asked, one in listeners[::20]:
        if one.reason is Finish.LENGTH:
            assert submitted(engine, asked, heard()).wait().ids == one.ids


def test_a_fault_in_one_request_harms_no_other(
    run: tuple[Training, RunFolder], engine: ModelEngine, heard: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step that fails once ends nothing. A token with which every step fails ends its own request alone, and other
    requests that were in its steps get the tokens that they get alone."""
    training, _ = run
    asked = [request(training, prompt, seed=seed, **SAMPLED) for seed, prompt in enumerate(PROMPTS[:3])]
    alone = [submitted(engine, each, heard()).wait().ids for each in asked]
    fatal = next(i for i in range(200, 258) if i not in {i for ids in alone for i in ids})
    whole, calls = engine.programs.run, list[str]()

    def run_of_faults(name: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        calls.append(name)
        if len(calls) == 3 or fatal in arrays["tokens"]:
            raise RuntimeError("no memory\nat a place")
        return whole(name, arrays)

    monkeypatch.setattr(engine.programs, "run", run_of_faults)
    assert [one.wait().ids for one in [submitted(engine, each, heard()) for each in asked]] == alone
    first = submitted(engine, asked[0], heard())
    faulty = submitted(engine, GenerationRequest((5, fatal), 4), heard())
    others = [submitted(engine, each, heard()) for each in asked[1:]]
    assert faulty.wait().message == "the step of the model failed: no memory"
    assert [one.wait().ids for one in (first, *others)] == alone
    assert engine.status().num_free_pages == OPTIONS.num_pages


def test_a_panic_in_the_engines_thread_ends_the_engine(
    engine: ModelEngine, heard: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise its requests would wait for ever. A panic of a library in Rust is no `Exception`."""
    panicking, told = ModelEngine(engine.programs), list[str]()
    panicking.when_failed(told.append)

    def panic(_: object) -> str:
        raise BaseException("called `Option::unwrap()` on a `None` value")

    monkeypatch.setattr(engine.programs, "step_for", panic)
    panicking.start()
    message = "the engine's own code failed: called `Option::unwrap()` on a `None` value"
    assert submitted(panicking, GenerationRequest((5,), 4), heard()).wait().message == message
    panicking.close()
    assert told == [message]


def test_failures_with_a_success_between_them_are_not_in_a_row(
    engine: ModelEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, calls = engine.programs.run, itertools.count()

    def run_two_of_three_fail(name: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        if next(calls) % 3:
            raise RuntimeError("no memory")
        return whole(name, arrays)

    monkeypatch.setattr(engine.programs, "run", run_two_of_three_fail)
    faults = [engine.score((5,)).exception(PATIENCE) for _ in range(9)]
    assert [fault is None for fault in faults] == [True, False, False] * 3
    assert len(engine.score((5,)).result(PATIENCE)) == 1


def test_few_pages_bound_texts_and_no_scores(run: tuple[Training, RunFolder]) -> None:
    training, _ = run
    options = dataclasses.replace(OPTIONS, num_pages=3, num_lengths=1)
    limits = EnginePrograms(training, mesh_of(training), options).limits
    assert (limits.max_length, limits.max_scored) == (12, 24)


def test_pages_do_not_have_the_int8_cache_of_decoding(tmp_path: Path) -> None:
    """Each layer has two sublayers with a state, which an engine divides between them."""
    training = write_small_run(
        tmp_path,
        "TransformerStack.sublayers = [@SelfAttention(), @FeedForward(), @SelfAttention()]",
        "Training.quantization = @Quantization()",
        'Quantization.cache = "int8"',
    )
    sizes = StepSizes(4, 4, length=4, pages=1, page_size=4, num_pages=4, num_likeliest=1, vocab_size=258)
    variables = step_program(training, mtf.PlanMeshImpl("rows:1", ""), sizes).graph.variables
    assert [v.slice_dtype for name, v in variables.items() if name.startswith("pages/")] == [tf.float32] * 4


def test_a_program_that_only_another_process_has_is_an_error(engine: ModelEngine) -> None:
    with pytest.raises(ClusterError, match='process 0 runs the program "read 9", and this process has score, decode 2'):
        engine.programs.inputs("read 9")


def test_steps_that_all_fail_end_the_engine(
    run: tuple[Training, RunFolder], engine: ModelEngine, heard: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last test: nothing more runs. Everybody hears of it, also who waits in the queue."""
    training, _ = run
    asked, told = request(training, "x"), list[str]()

    def fail(name: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        raise RuntimeError("no memory")

    engine.when_failed(told.append)
    monkeypatch.setattr(engine.programs, "run", fail)
    with pytest.raises(EngineFailedError, match="the score of the model failed: no memory"):
        engine.score(asked.prompt).result(PATIENCE)
    listeners = [submitted(engine, asked, heard()) for _ in range(5)]
    for_good = "5 steps of the model failed in a row: no memory"
    assert {one.wait().message for one in listeners} == {"the step of the model failed: no memory", for_good}
    formed = dataclasses.replace(asked, constraint=Constraint("regex", "("))  # which would be an error if it was read
    submit = [functools.partial(engine.submit, each, heard()) for each in (asked, formed)]
    for call in (*submit, functools.partial(engine.score, asked.prompt)):
        with pytest.raises(EngineClosedError, match=for_good):
            call()
    engine.when_failed(told.append)
    assert engine.drain(PATIENCE)
    assert told == [for_good] * 2
