"""The server on a real port: asked by the schema's own client, left by clients, ended while requests run."""

from __future__ import annotations

import concurrent.futures
import http.client
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable

import httpx2
import pytest

from meshtf.serving.http.server import AddressError, Server, bound_socket
from meshtf.serving.http.server_options import ServerOptions
from tests.serving.echo_engine import EchoEngine
from tests.serving.running_server import PATIENCE, app_of, running

MESSAGES = [{"role": "user", "content": "ab"}]


def until(holds: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_the_schemas_own_client() -> None:
    import openai  # takes a second, which every process that collects this test would spend

    with running(EchoEngine(), ServerOptions(port=0, token="secret")) as server:
        with openai.OpenAI(base_url=f"{server.address}/v1", api_key="secret", max_retries=0) as client:
            assert [model.id for model in client.models.list()] == ["tiny"]
            assert client.models.retrieve("tiny").owned_by == "meshtf"
            text = client.completions.create(model="tiny", prompt="ab", max_tokens=3, logprobs=1, n=2, seed=1)
            assert [(choice.text, choice.finish_reason) for choice in text.choices] == [("cde", "length")] * 2
            assert text.choices[0].logprobs is not None
            assert text.choices[0].logprobs.top_logprobs == [{"c": -0.5}, {"d": -0.5}, {"e": -0.5}]
            assert text.usage is not None
            assert text.usage.total_tokens == 8
            chat = client.chat.completions.create(
                model="tiny", messages=MESSAGES, stop="fg", logprobs=True, top_logprobs=2, extra_body={"top_k": 3}
            )
            assert (chat.choices[0].message.content, chat.choices[0].finish_reason) == ("cde", "stop")
            assert chat.choices[0].logprobs is not None
            assert [each.token for each in chat.choices[0].logprobs.content or []] == ["c", "d", "e"]
            with client.chat.completions.create(
                model="tiny", messages=MESSAGES, max_tokens=3, stream=True, stream_options={"include_usage": True}
            ) as stream:
                chunks = list(stream)
            assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1]) == "cde"
            assert chunks[-1].usage is not None
            assert chunks[-1].usage.completion_tokens == 3
            with pytest.raises(openai.BadRequestError, match="temperature must be a number from 0 to 2, and is -1"):
                client.completions.create(model="tiny", prompt="ab", temperature=-1)
            with pytest.raises(openai.NotFoundError, match="There is no model 'other'"):
                client.completions.create(model="other", prompt="ab")
            with pytest.raises(openai.InternalServerError, match="The generation failed"):
                client.completions.create(model="tiny", prompt="ab!")
        stranger = openai.OpenAI(base_url=f"{server.address}/v1", api_key="wrong", max_retries=0)
        with stranger, pytest.raises(openai.AuthenticationError, match="The token is wrong"):
            stranger.models.list()


def test_a_generation_ends_when_its_client_leaves() -> None:
    """In the middle of a stream, and while it waits for the whole reply."""
    engine = EchoEngine(delay=0.05)
    body = {"prompt": "ab", "max_tokens": 60, "n": 2}
    with running(engine, ServerOptions(port=0)) as server, httpx2.Client(base_url=server.address) as client:
        with pytest.raises(httpx2.ReadTimeout):
            client.post("/v1/score", json={"input": "a~"}, timeout=httpx2.Timeout(PATIENCE, read=0.2))
        until(lambda: engine.scores[0].cancelled())
        with client.stream("POST", "/v1/completions", json={**body, "stream": True}) as reply:
            next(reply.iter_lines())
        until(lambda: sorted(engine.cancelled) == [0, 1])
        with pytest.raises(httpx2.ReadTimeout):
            client.post("/v1/completions", json=body, timeout=httpx2.Timeout(PATIENCE, read=0.2))
        until(lambda: sorted(engine.cancelled) == [0, 1, 2, 3])
        assert "meshtf_clients_left_total 2.0" in client.get("/metrics").text


def test_the_end_waits_for_what_runs_and_takes_nothing_more() -> None:
    engine, results, texts = EchoEngine(delay=0.02), list[bool](), list[str]()
    with running(engine, ServerOptions(port=0), results) as server:

        def ask() -> None:
            texts.append(httpx2.post(f"{server.address}/v1/completions", json={"prompt": "ab", "max_tokens": 20}).text)

        thread = threading.Thread(target=ask)
        thread.start()
        until(lambda: engine.requests)
        server.stop()
        thread.join(PATIENCE)
    assert json.loads(texts[0])["choices"][0]["text"] == "cdefghijklmnopqrstuv"
    assert results == [True]
    with pytest.raises(httpx2.ConnectError):
        httpx2.get(f"{server.address}/health")


def test_the_end_lets_a_request_ask_for_its_later_texts() -> None:
    """Scores go to the engine in groups, and the likelihoods of a prompt come before its text."""
    engine, results = EchoEngine(), list[bool]()
    asked = [
        ("/v1/score", {"input": ["a~", *["ab"] * 19]}),
        ("/v1/completions", {"prompt": "a~", "echo": True, "logprobs": 0, "max_tokens": 2}),
    ]
    with (
        running(engine, ServerOptions(port=0), results) as server,
        concurrent.futures.ThreadPoolExecutor(len(asked)) as threads,
    ):
        waiting = [threads.submit(httpx2.post, f"{server.address}{path}", json=body) for path, body in asked]
        until(lambda: len(engine.scores) == 8 + 1)
        server.stop()
        time.sleep(0.3)  # in which an engine that drains would refuse what follows
        for score in engine.scores:
            if not score.done():
                score.set_result([-1.0, -2.0])
        scores, text = (each.result(PATIENCE) for each in waiting)
    assert (scores.status_code, len(scores.json()["data"])) == (200, 20)
    assert (text.status_code, text.json()["choices"][0]["text"]) == (200, "a~\x7f\ufffd")
    assert results == [True]


def test_an_engine_that_fails_for_good_ends_the_server(capsys: pytest.CaptureFixture[str]) -> None:
    results = list[bool]()
    engine = EchoEngine()
    with running(engine, ServerOptions(port=0), results) as server:
        engine.fail("5 steps of the model failed in a row: no memory")
        until(lambda: results)
    assert results == [False]
    with pytest.raises(httpx2.ConnectError):
        httpx2.get(f"{server.address}/health")
    assert capsys.readouterr().err == (
        "meshtf-serve: error: the engine has failed for good: 5 steps of the model failed in a row: no memory. "
        "The server ends; start it again\n"
    )


def test_a_second_signal_ends_the_process_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    """The first one drains, for a minute if it must. Signals reach the main thread alone, so the server runs in it."""
    ended, before = list[int](), list[int]()
    engine = EchoEngine(delay=0.05)

    def end(status: int) -> None:
        ended.append(status)
        engine.cancel(0)  # the process would be gone; here the server comes to its end

    app = app_of(engine, ServerOptions(port=0, drain_seconds=60.0))
    server = Server(app, bound_socket("127.0.0.1", 0), end)

    def ask_and_end() -> None:
        with httpx2.stream("POST", f"{server.address}/v1/completions", json=body) as stream:
            lines = stream.iter_lines()
            next(lines)
            os.kill(os.getpid(), signal.SIGTERM)
            until(lambda: not app.is_ready)
            before.append(len(ended))
            os.kill(os.getpid(), signal.SIGTERM)
            assert '"finish_reason":"cancelled"' in "".join(lines)

    body = {"prompt": "ab", "max_tokens": 60, "stream": True}
    thread = threading.Thread(target=ask_and_end)
    thread.start()
    server.run()
    thread.join(PATIENCE)
    assert (before, ended) == ([0], [128 + signal.SIGTERM])
    said = capsys.readouterr().err
    assert "SIGTERM: no more requests are taken, and the running ones have 60 s to end" in said
    assert "SIGTERM again: ended at once" in said


def test_what_runs_too_long_ends_as_it_is() -> None:
    """By its own limit of time, and by the one of the server's end, which says that not all came to their end."""
    results = list[bool]()
    with running(EchoEngine(delay=0.05), ServerOptions(port=0, request_seconds=0.01)) as server:
        reply = httpx2.post(f"{server.address}/v1/completions", json={"prompt": "ab", "max_tokens": 60}).json()
        assert reply["choices"][0]["finish_reason"] == "timed_out"
    engine = EchoEngine(delay=0.05)
    body = {"prompt": "ab", "max_tokens": 60, "stream": True}
    with (
        running(engine, ServerOptions(port=0, drain_seconds=0.01), results) as server,
        httpx2.stream("POST", f"{server.address}/v1/completions", json=body) as stream,
    ):
        lines = stream.iter_lines()
        next(lines)
        server.stop()
        assert '"finish_reason":"cancelled"' in "".join(lines)
    assert results == [False]


def test_slow_and_many_connections_are_closed() -> None:
    """One that sends half a head, and one too many."""
    with running(EchoEngine(), ServerOptions(port=0, max_connections=1, head_seconds=0.5)) as server:
        address = ("127.0.0.1", int(server.address.rpartition(":")[2]))
        with socket.create_connection(address, PATIENCE) as slow:
            slow.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n")
            with socket.create_connection(address, PATIENCE) as other:
                assert other.recv(1000).startswith(b"HTTP/1.1 503 ")
            assert slow.recv(1000) == b""
        until(lambda: httpx2.get(f"{server.address}/health").status_code == 200)
        with socket.create_connection(address, PATIENCE) as slow:
            slow.sendall(b"POST /v1/score HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n")
            reply = http.client.HTTPResponse(slow)
            reply.begin()
            assert (reply.status, b"The body did not arrive within 0.5 s." in reply.read()) == (408, True)


def test_what_is_no_http_gets_a_sentence_and_old_http_an_answer() -> None:
    """Bytes of another protocol, a head and a length that are wrong, and a body in chunks that are none."""
    post = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
    with running(EchoEngine(), ServerOptions(port=0)) as server:
        address = ("127.0.0.1", int(server.address.rpartition(":")[2]))
        for sent in (
            b"\x16\x03\x01\x02\0\r\n\r\n",
            b"GET / HTTP/1.1\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
            post + b"Content-Length: -5\r\n\r\n",
            post + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        ):
            with socket.create_connection(address, PATIENCE) as stranger:
                stranger.sendall(sent)
                reply = http.client.HTTPResponse(stranger)
                reply.begin()
                assert (reply.status, "no request of HTTP/1.1" in reply.read().decode()) == (400, True)
        with socket.create_connection(address, PATIENCE) as old:
            body = b'{"prompt": "ab", "max_tokens": 2, "stream": true}'
            old.sendall(b"POST /v1/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            reply = http.client.HTTPResponse(old)
            reply.begin()
            assert (reply.status, reply.read().endswith(b"data: [DONE]\n\n")) == (200, True)


def test_an_address_that_is_taken_is_named() -> None:
    with bound_socket("127.0.0.1", 0) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(AddressError, match=f"--port={port} cannot be listened on: Address already in use"):
            bound_socket("127.0.0.1", port)
    with pytest.raises(AddressError, match=r"--host=203\.0\.113\.1 .* Cannot assign requested address"):
        bound_socket("203.0.113.1", 0)
