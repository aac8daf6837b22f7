"""The endpoints, before an engine without a model."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from starlette.testclient import TestClient

from meshtf.serving.http.app import App
from meshtf.serving.http.chat_template import ChatTemplate
from meshtf.serving.http.served_model import ServedModel
from meshtf.serving.http.server_options import ServerOptions
from meshtf.train.data.vocabularies.byte_vocabulary import FIRST_BYTE, ByteVocabulary
from meshtf.train.data.vocabularies.sentencepiece_vocabulary import SentencePieceVocabulary
from meshtf.train.decoding.forms.constraints import Constraint
from meshtf.train.decoding.stops import Stops
from tests.serving.echo_engine import EchoEngine

TEMPLATE = ChatTemplate("{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}ab")
COMPLETIONS, CHATS, SCORE = "/v1/completions", "/v1/chat/completions", "/v1/score"


def client_of(
    engine: EchoEngine,
    options: ServerOptions | None = None,
    *,
    has_template: bool = True,
    stop_texts: Sequence[str] = (),
) -> TestClient:
    stops = Stops((1,), texts=tuple(stop_texts))
    model = ServedModel("tiny", engine, ByteVocabulary(), stops, TEMPLATE if has_template else None)
    return TestClient(App(model, options or ServerOptions()).asgi, base_url="http://127.0.0.1")


@pytest.fixture(scope="module")
def client() -> TestClient:
    return client_of(EchoEngine())


def posted(client: TestClient, path: str, status: int = 200, **body: Any) -> dict[str, Any]:
    reply = client.post(path, json=body)
    assert reply.status_code == status, reply.text
    return reply.json()


def streamed(client: TestClient, path: str, **body: Any) -> list[dict[str, Any]]:
    text = client.post(path, json={**body, "stream": True}).text
    *events, last, end = text.split("\n\n")
    assert (last, end) == ("data: [DONE]", "")
    return [json.loads(event.removeprefix("data: ")) for event in events]


def ids(text: bytes) -> tuple[int, ...]:
    return tuple(byte + FIRST_BYTE for byte in text)


def test_completions_take_every_form_of_prompt_and_option() -> None:
    engine = EchoEngine()
    client = client_of(engine)
    options = {"temperature": 0.5, "top_p": 0.9, "top_k": 7, "min_p": 0.1, "repetition_penalty": 1.5, "seed": 9}
    penalties = {"presence_penalty": -0.5, "frequency_penalty": 0.25, "min_tokens": 2, "user": "me", "best_of": None}
    prompts = ["ab", list(ids(b"x"))]
    reply = posted(client, COMPLETIONS, prompt=prompts, n=2, max_tokens=3, **options, **penalties)
    assert [choice["text"] for choice in reply["choices"]] == ["cde", "cde", "yz{", "yz{"]
    assert [choice["index"] for choice in reply["choices"]] == [0, 1, 2, 3]
    assert reply["usage"] == {"prompt_tokens": 3, "completion_tokens": 12, "total_tokens": 15}
    assert reply["model"] == "tiny"
    assert [(each.prompt, each.seed) for each in engine.requests] == [
        *((ids(b"ab"), 9), (ids(b"ab"), 10)),
        *((ids(b"x"), 9), (ids(b"x"), 10)),
    ]
    one = engine.requests[0]
    assert (one.temperature, one.top_p, one.top_k, one.min_p, one.repetition_penalty) == (0.5, 0.9, 7, 0.1, 1.5)
    assert (one.presence_penalty, one.frequency_penalty, one.min_new_tokens, one.client) == (-0.5, 0.25, 2, "me")
    assert (one.stop_ids, one.max_new_tokens, one.deadline_seconds, one.num_likeliest) == ((1,), 3, 600.0, None)
    posted(client, COMPLETIONS, prompt="ab", response_format={"type": "json_object"})
    assert engine.requests[-1].constraint == Constraint("json_schema", '{"type": "object"}')
    assert (engine.requests[-1].temperature, engine.requests[-1].max_new_tokens) == (1.0, 16)
    assert engine.requests[-1].client == "testclient"


def test_a_stream_has_the_text_of_the_whole(client: TestClient) -> None:
    """With logprobs, an echo, two choices, and a stop of three characters of which two come twice."""
    body = {"prompt": "ab", "max_tokens": 9, "logprobs": 2, "n": 2, "echo": True, "stop": ["hij", "gx"], "seed": 1}
    whole = posted(client, COMPLETIONS, **body)
    *events, usage = streamed(client, COMPLETIONS, **body, stream_options={"include_usage": True})
    assert usage["usage"] == whole["usage"]
    assert usage["choices"] == []
    for index, choice in enumerate(whole["choices"]):
        assert choice["text"] == "abcdefg"
        assert choice["finish_reason"] == "stop"
        own = [event["choices"][0] for event in events if event["choices"][0]["index"] == index]
        assert "".join(each["text"] for each in own) == choice["text"]
        assert [each["finish_reason"] for each in own[:-1]] == [None] * (len(own) - 1)
        for name, values in choice["logprobs"].items():
            assert [x for each in own for x in each["logprobs"][name]] == values, name
    logprobs = whole["choices"][0]["logprobs"]
    assert logprobs["tokens"] == list("abcdefg")
    assert logprobs["token_logprobs"] == [-1.0, -2.0, *[-0.5] * 5]
    assert logprobs["text_offset"] == list(range(7))
    assert logprobs["top_logprobs"][:3] == [None, None, {"c": -0.5, "d": -1.5}]


def test_tokens_have_their_spaces_and_places(tmp_path: Path) -> None:
    """A decoder of pieces drops the space before a text's first word; a character may have several tokens."""
    with (tmp_path / "a.model").open("wb") as model_file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(["the cat sat on a mat"] * 20),
            model_writer=model_file,
            vocab_size=285,
            byte_fallback=True,
            model_type="bpe",
            minloglevel=2,
        )
    vocabulary = SentencePieceVocabulary(str(tmp_path / "a.model"))
    engine = EchoEngine(script=tuple(vocabulary.encode("the \u4f60")))
    engine.limits = dataclasses.replace(engine.limits, vocab_size=vocabulary.size)
    model = ServedModel("tiny", engine, vocabulary, Stops((1,)), TEMPLATE)
    client = TestClient(App(model).asgi, base_url="http://127.0.0.1")
    text, count = "the caf\u00e9 sat", len(engine.script)
    body = {"prompt": text, "echo": True, "logprobs": 0, "max_tokens": count}
    whole = posted(client, COMPLETIONS, **body)["choices"][0]
    assert whole["text"] == f"{text} the \u4f60"
    said = whole["logprobs"]
    ends = [*said["text_offset"][1:], len(whole["text"])]
    for token, first, end in zip(said["tokens"], said["text_offset"], ends, strict=True):
        assert token in (whole["text"][first:end], "\ufffd"), "a byte of a character by itself"
    assert "".join(said["tokens"]).replace("\ufffd", "") == "the caf sat the "
    assert posted(client, SCORE, input=text)["data"][0]["tokens"] == said["tokens"][:-count]
    chat = posted(client, CHATS, messages=[{"role": "user", "content": "a"}], max_tokens=1, logprobs=True)["choices"][0]
    (told,) = chat["logprobs"]["content"]
    assert bytes(told["bytes"]).decode() == told["token"] == chat["message"]["content"] == " the"


def test_chats(client: TestClient) -> None:
    """Parts of text are joined, and what is not asked for is null."""
    parts = [{"type": "text", "text": "h"}, {"type": "text", "text": "i"}]
    body = {"messages": [{"role": "user", "content": parts}], "max_completion_tokens": 2, "model": "tiny"}
    reply = posted(client, CHATS, **body)
    assert reply["choices"] == [
        {
            "index": 0,
            "finish_reason": "length",
            "message": {"role": "assistant", "content": "cd", "refusal": None},
            "logprobs": None,
        }
    ]
    assert reply["usage"]["prompt_tokens"] == len("u:hi;ab")
    events = streamed(client, CHATS, **body, logprobs=True, top_logprobs=1)
    deltas = [event["choices"][0] for event in events]
    assert [each["delta"] for each in deltas] == [{"role": "assistant", "content": "c"}, {"content": "d"}, {}]
    said = {"token": "c", "logprob": -0.5, "bytes": [99]}
    assert deltas[0]["logprobs"]["content"] == [{**said, "top_logprobs": [said]}]
    assert deltas[-1]["finish_reason"] == "length"


def test_the_end_token_is_not_shown_and_characters_come_whole() -> None:
    client = client_of(EchoEngine(script=(*ids("é".encode()), 1)))
    events = streamed(client, COMPLETIONS, prompt="a", logprobs=0)
    assert [event["choices"][0]["text"] for event in events] == ["é", ""]
    assert events[-1]["choices"][0]["finish_reason"] == "stop"
    assert [len(event["choices"][0]["logprobs"]["tokens"]) for event in events] == [2, 0]


def test_scores() -> None:
    """A request tells on whose behalf it asks, or else its address does."""
    engine = EchoEngine()
    client = client_of(engine)
    data = posted(client, SCORE, input=["abc", "!"], user="me")["data"]
    assert [each["token_logprobs"] for each in data] == [[-1.0, -2.0, -3.0], [-9999.0]]
    assert data[0] | {"log_likelihood": -6.0, "num_tokens": 3, "num_bytes": 3, "tokens": ["a", "b", "c"]} == data[0]
    echo = posted(client, COMPLETIONS, prompt="abc", echo=True, logprobs=0, max_tokens=0)["choices"][0]
    assert (echo["text"], echo["logprobs"]["token_logprobs"]) == ("abc", [-1.0, -2.0, -3.0])
    assert engine.clients_of_scores == ["me", "me", "testclient"]
    (begun,) = posted(client, SCORE, input="^bc")["data"]
    assert begun | {"log_likelihood": -5.0, "num_tokens": 2, "num_bytes": 2} == begun
    assert begun["token_logprobs"] == [None, -2.0, -3.0]
    echo = posted(client, COMPLETIONS, prompt="^b", echo=True, logprobs=0, max_tokens=0)["choices"][0]
    assert echo["logprobs"]["token_logprobs"] == [None, -2.0]


WRONG: Mapping[str, tuple[str, bytes, int, str]] = {
    "no JSON": (COMPLETIONS, b"{", 400, "The body is not JSON"),
    "no UTF-8": (COMPLETIONS, b'{"prompt": "\xff"}', 400, "not UTF-8"),
    "a list": (COMPLETIONS, b"[1]", 400, "must be a JSON object, and is a list."),
    "deep": (COMPLETIONS, b"[" * 100_000, 400, "lists or objects that are nested too deeply"),
    "a deep prompt": (
        COMPLETIONS,
        b'{"prompt": ' + b"[" * 800 + b"]" * 800 + b"}",
        400,
        "lists or objects that are nested too deeply",
    ),
    "not a number": (COMPLETIONS, b'{"prompt": "a", "temperature": NaN}', 400, "NaN is not a JSON number"),
    "a huge number": (COMPLETIONS, b'{"prompt": "a", "top_p": 1' + b"0" * 400 + b"}", 400, "top_p must be a number"),
    "a surrogate": (COMPLETIONS, b'{"prompt": "a\\ud800"}', 400, "half of a surrogate pair as character 1"),
    "a surrogate in a name": (COMPLETIONS, b'{"\\ud800": 1}', 400, 'no field "?"'),
    "no prompt": (COMPLETIONS, b"{}", 400, "prompt is missing"),
    "an empty list": (COMPLETIONS, b'{"prompt": []}', 400, "prompt must be a string"),
    "an object": (COMPLETIONS, b'{"prompt": {"a": 1}}', 400, "prompt must be a string"),
    "a foreign id": (COMPLETIONS, b'{"prompt": [2, 258]}', 400, "has the id 258, and the ids of this model go from 0"),
    "too long": (COMPLETIONS, b'{"prompt": "' + b"a" * 64 + b'"}', 400, "has 64 tokens and asks for 16 more"),
    "a wrong name": (COMPLETIONS, b'{"prompt": "a", "temprature": 1}', 400, 'did you mean "temperature"?'),
    "not supported": (COMPLETIONS, b'{"prompt": "a", "best_of": 2}', 400, "does not support best_of; leave it out"),
    "negative": (COMPLETIONS, b'{"prompt": "a", "temperature": -1}', 400, "a number from 0 to 2, and is -1."),
    "a true number": (COMPLETIONS, b'{"prompt": "a", "temperature": true}', 400, "from 0 to 2, and is true."),
    "huge n": (COMPLETIONS, b'{"prompt": "a", "n": 1000000000000}', 400, "n must be an integer from 1 to 128"),
    "many choices": (
        COMPLETIONS,
        b'{"prompt": ["a", "b"], "n": 65}',
        400,
        "are 130 choices; a request has at most 128",
    ),
    "an empty stop": (COMPLETIONS, b'{"prompt": "a", "stop": ["a", ""]}', 400, "stop must be a string, or a list"),
    "many logprobs": (COMPLETIONS, b'{"prompt": "a", "logprobs": 6}', 400, "logprobs must be an integer from 0 to 5"),
    "a stream of text": (COMPLETIONS, b'{"prompt": "a", "stream": "yes"}', 400, "stream must be true or false"),
    "usage unasked": (COMPLETIONS, b'{"prompt": "a", "stream_options": {}}', 400, "stream_options needs stream"),
    "nothing": (COMPLETIONS, b'{"prompt": "a", "max_tokens": 0}', 400, "max_tokens may be 0 only with echo"),
    "another model": (
        COMPLETIONS,
        b'{"prompt": "a", "model": "tinny"}',
        404,
        "no model 'tinny'; did you mean \"tiny\"?",
    ),
    "refused": (COMPLETIONS, b'{"prompt": "a#"}', 400, "The prompt ends in #."),
    "failed": (COMPLETIONS, b'{"prompt": "a!"}', 500, "The generation failed: the prompt ends in !"),
    "a form that ends": (
        COMPLETIONS,
        b'{"prompt": "a!", "response_format": {"type": "json_object"}}',
        400,
        "response_format cannot go on.",
    ),
    "one of n failed": (COMPLETIONS, b'{"prompt": ["a", "a!"]}', 500, "The generation failed"),
    "no messages": (CHATS, b"{}", 400, "messages is missing"),
    "a message of text": (CHATS, b'{"messages": ["hi"]}', 400, "messages[0] must be an object with role and content"),
    "a wrong role": (CHATS, b'{"messages": [{"role": "usr", "content": ""}]}', 400, "messages[0].role must be one of"),
    "no content": (CHATS, b'{"messages": [{"role": "user"}]}', 400, "messages[0].content is missing"),
    "a picture": (CHATS, b'{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}', 400, "text alone"),
    "tools": (CHATS, b'{"messages": [{"role": "user", "content": ""}], "tools": []}', 400, "not support tools"),
    "what others store": (CHATS, b'{"messages": [], "store": true}', 400, "does not support store; leave it out"),
    "noise in streams": (
        COMPLETIONS,
        b'{"prompt": "a", "stream": true, "stream_options": {"include_obfuscation": true}}',
        400,
        "does not support stream_options.include_obfuscation; leave it out",
    ),
    "the reply of a tool": (
        CHATS,
        b'{"messages": [{"role": "tool", "content": "4", "tool_call_id": "x"}]}',
        400,
        "does not support messages[0].tool_call_id; leave it out",
    ),
    "lone logprobs": (
        *(CHATS, b'{"messages": [{"role": "user", "content": ""}], "top_logprobs": 1}', 400),
        "top_logprobs needs logprobs to be true",
    ),
    "a long score": (SCORE, b'{"input": "' + b"a" * 65 + b'"}', 400, "A text has 65 tokens, and this model has room"),
    "a large body": (COMPLETIONS, b'{"prompt": "' + b"a" * (1 << 20) + b'"}', 413, "larger than 1,048,576 bytes"),
    "a surrogate in a stop": (
        COMPLETIONS,
        b'{"prompt": "a", "stop": ["\\udc00"]}',
        400,
        "stop has half of a surrogate",
    ),
    "a surrogate in a name of a user": (COMPLETIONS, b'{"prompt": "a", "user": "\\ud83d"}', 400, "user has half of a"),
    "a surrogate in a model": (COMPLETIONS, b'{"prompt": "a", "model": "\\ud83d"}', 400, "model has half of a"),
    "a surrogate in a chat": (
        CHATS,
        b'{"messages": [{"role": "user", "content": "\\ud800"}]}',
        400,
        "half of a surrogate",
    ),
    "a surrogate in a score": (SCORE, b'{"input": ["a", "\\ud800"]}', 400, "input has half of a surrogate pair"),
    "a count in words": (
        COMPLETIONS,
        b'{"prompt": "a", "max_tokens": "many"}',
        400,
        "an integer from 0 to 2147483647, and",
    ),
    "a count with a part": (COMPLETIONS, b'{"prompt": "a", "max_tokens": 1.5}', 400, "max_tokens must be an integer"),
    "a negative count": (COMPLETIONS, b'{"prompt": "a", "max_tokens": -1}', 400, "max_tokens must be an integer"),
    "no choice": (COMPLETIONS, b'{"prompt": "a", "n": 0}', 400, "n must be an integer from 1 to 128, and is 0."),
    "no probability": (COMPLETIONS, b'{"prompt": "a", "top_p": 0}', 400, "a number above 0 to 1, and is 0."),
    "a list of options": (COMPLETIONS, b'{"prompt": "a", "temperature": [1]}', 400, "temperature must be a number"),
    "a true id": (COMPLETIONS, b'{"prompt": [2, true]}', 400, "prompt must be a string, a list of token ids"),
    "a negative id": (COMPLETIONS, b'{"prompt": [-1]}', 400, "-1"),
    "a negative seed": (COMPLETIONS, b'{"prompt": "a", "seed": -1}', 400, "seed must be an integer from 0"),
    "a user in numbers": (COMPLETIONS, b'{"prompt": "a", "user": 7}', 400, "user must be a string, and is 7."),
    "many stops": (COMPLETIONS, b'{"prompt": "a", "stop": ["a"' + b', "a"' * 16 + b"]}", 400, "at most 16 strings"),
    "an object of messages": (CHATS, b'{"messages": {"role": "user"}}', 400, "messages must be"),
    "an object to score": (SCORE, b'{"input": {}}', 400, "input must be a string"),
    "a score that fails": (SCORE, b'{"input": ["a", "a#"]}', 500, "The text ends in #."),
    "a form in a word": (COMPLETIONS, b'{"prompt": "a", "response_format": "json"}', 400, "must be an object, and is"),
    "no such path": ("/v1/completion", b"{}", 404, 'did you mean "/v1/completions"?'),
    "a wrong method": ("/v1/models", b"{}", 405, "/v1/models does not take POST."),
}


@pytest.mark.parametrize("name", list(WRONG))
def test_what_is_wrong_gets_one_sentence(client: TestClient, name: str) -> None:
    path, body, status, message = WRONG[name]
    reply = client.post(path, content=body, headers={"Content-Type": "application/json"})
    assert (reply.status_code, message in reply.json()["error"]["message"]) == (status, True), reply.text
    assert reply.json()["error"].keys() == {"message", "type", "param", "code"}


def test_every_character_of_unicode_is_taken(client: TestClient) -> None:
    """NUL, right-to-left text, emoji of several characters, and what is no letter: the prompt comes back as it was."""
    for text in ("a\0b", "שלום", "\u202eabc", "👩‍👩‍👧", "\ufeff", "\uffff", "e\u0301", "\U0010ffff"):
        body = {"prompt": text, "max_tokens": 1, "echo": True}
        assert posted(client, COMPLETIONS, **body)["choices"][0]["text"].startswith(text)
        events = streamed(client, COMPLETIONS, **body)
        assert "".join(event["choices"][0]["text"] for event in events).startswith(text)
        assert posted(client, SCORE, input=text)["data"][0]["num_tokens"] == len(text.encode())


def test_scores_end_with_their_time_and_are_refused_by_a_full_queue() -> None:
    engine = EchoEngine(most=2)
    client = client_of(engine, ServerOptions(request_seconds=0.01))
    said = posted(client, SCORE, 503, input="a~")
    assert said["error"]["message"] == "The reply was not ready within 0.01 s; send less at once."
    assert engine.scores[0].cancelled()
    reply = client.post(SCORE, json={"input": ["a~", "b"]})
    assert (reply.status_code, reply.headers["retry-after"]) == (429, "1")
    assert engine.scores[1].cancelled(), "the first of a request that is refused is not computed"


def test_a_model_without_a_template_has_no_chats() -> None:
    client = client_of(EchoEngine(), has_template=False)
    said = posted(client, CHATS, 400, messages=[{"role": "user", "content": "hi"}])
    assert "start meshtf-serve with --chat_template=FILE" in said["error"]["message"]


def test_a_fault_in_a_stream_is_its_last_event_and_harms_no_other(client: TestClient) -> None:
    text = client.post(COMPLETIONS, json={"prompt": "a!", "stream": True}).text
    assert '"text":"\\""' in text
    assert text.endswith('"type":"server_error","param":null,"code":null}}\n\n')
    assert "[DONE]" not in text
    assert posted(client, COMPLETIONS, prompt="ab", max_tokens=1)["choices"][0]["text"] == "c"


def test_a_full_engine_says_when_to_come_again() -> None:
    """A request of which the engine takes a part leaves nothing behind."""
    engine = EchoEngine(delay=0.01, most=2)
    reply = client_of(engine).post(COMPLETIONS, json={"prompt": "a", "n": 3, "max_tokens": 50})
    assert (reply.status_code, reply.headers["retry-after"]) == (429, "1")
    assert reply.json()["error"] == {
        "message": "The queue is full.",
        "type": "rate_limit_error",
        "param": None,
        "code": "overloaded",
    }
    assert sorted(engine.cancelled) == [0, 1]


def test_tokens_hosts_and_kinds_of_bodies() -> None:
    client = client_of(EchoEngine(), ServerOptions(token="secret"))
    for headers, status in (
        ({}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": "Basic secret"}, 401),
    ):
        reply = client.get("/v1/models", headers=headers)
        assert (reply.status_code, reply.json()["error"]["type"]) == (status, "authentication_error")
    assert client.get("/metrics").status_code == 401
    assert client.get("/v1/models", headers={"Authorization": "Bearer secret"}).status_code == 200
    assert [client.get(path).status_code for path in ("/", "/health", "/ready")] == [200, 200, 200]
    client = client_of(EchoEngine())
    assert client.get("/health", headers={"Host": "evil.example"}).status_code == 403
    assert client.get("/health", headers={"Host": "localhost:8000"}).status_code == 200
    assert client.get("/health", headers={"Host": "[::1]:8000"}).status_code == 200
    assert client.get("/health", headers={"Host": ""}).status_code == 200
    assert client.post(COMPLETIONS, content=b"{}", headers={"Content-Type": "text/plain"}).status_code == 415
    whole = b'{"prompt": "ab"}'
    assert client.post(COMPLETIONS, content=whole).status_code == 200, "from a program that names no type"
    reply = client.post(COMPLETIONS, content=whole, headers={"Origin": "http://evil.example"})
    assert reply.status_code == 415, "a page may send a Blob without a type"


def test_a_step_that_hangs_and_a_failure_make_the_server_unhealthy() -> None:
    engine = EchoEngine()
    app = App(ServedModel("tiny", engine, ByteVocabulary(), Stops((1,))))
    client = TestClient(app.asgi, base_url="http://127.0.0.1")
    assert client.get("/health").json() == {"status": "alive"}
    engine.step_seconds = 61.0
    assert health_of(client) == (503, "A step of the model has run for 61 s, and may hang.")
    app.failure = "process 1 is gone"
    assert health_of(client) == (503, "The engine has failed for good: process 1 is gone.")


def health_of(client: TestClient) -> tuple[int, str]:
    reply = client.get("/health")
    return reply.status_code, reply.json()["error"]["message"]


def test_stops_of_the_run_end_every_text() -> None:
    client = client_of(EchoEngine(), stop_texts=["fg"])
    for stop, text in (([], "cde"), (["hi"], "cde"), (["de"], "c")):
        (choice,) = posted(client, COMPLETIONS, prompt="ab", max_tokens=9, stop=stop)["choices"]
        assert (choice["text"], choice["finish_reason"]) == (text, "stop")


def test_models_and_metrics() -> None:
    client = client_of(EchoEngine())
    assert [each["id"] for each in client.get("/v1/models").json()["data"]] == ["tiny"]
    assert client.get("/v1/models/tiny").json()["object"] == "model"
    assert client.get("/v1/models/tin").status_code == 404
    posted(client, COMPLETIONS, prompt="ab", max_tokens=3)
    client.get("/no/such/path")
    lines = client.get("/metrics").text.splitlines()
    for line in (
        'meshtf_requests_total{path="/v1/completions",status="200"} 1.0',
        'meshtf_requests_total{path="other",status="404"} 2.0',
        "meshtf_first_token_seconds_count 1.0",
        "meshtf_token_seconds_count 2.0",
        "meshtf_cache_pages_free 7.0",
        "meshtf_generations_running 0.0",
    ):
        assert line in lines


def test_the_page_loads_nothing_from_elsewhere() -> None:
    reply = client_of(EchoEngine()).get("/")
    assert reply.headers["content-security-policy"].startswith("default-src 'none'")
    assert "http://" not in reply.text
    assert "https://" not in reply.text
    assert "innerHTML" not in reply.text


def test_a_server_that_ends_takes_no_more_requests() -> None:
    app = App(ServedModel("tiny", EchoEngine(), ByteVocabulary(), Stops((1,))), is_ready=False)
    client = TestClient(app.asgi, base_url="http://127.0.0.1")
    for path, body in {COMPLETIONS: {"prompt": "ab"}, SCORE: {"input": "ab"}}.items():
        reply = client.post(path, json=body)
        assert (reply.status_code, reply.headers["retry-after"]) == (503, "1")
        assert reply.json()["error"]["message"] == "The server is shutting down, and takes no more requests."
    assert client.get("/ready").status_code == 503
