"""Forms that take long to compile stop nobody else."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import httpx2
import pytest

from meshtf.serving.engine import EngineClosedError, GenerationRequest
from meshtf.serving.http.server_options import ServerOptions
from meshtf.serving.http.submission import Submission
from meshtf.train.decoding.forms.constraints import Constraint
from tests.serving.echo_engine import EchoEngine
from tests.serving.running_server import PATIENCE, running

FORM = {"type": "json_object"}


def test_others_go_on_while_a_form_is_compiled_and_one_that_takes_too_long_is_refused() -> None:
    """Two threads compile. A third form waits for them, and is told so. What was given up meanwhile is cancelled."""
    engine, texts = EchoEngine(delay=0.001, form_seconds=1.0), list[httpx2.Response]()
    with (
        running(engine, ServerOptions(port=0)) as server,
        httpx2.Client(base_url=server.address, timeout=PATIENCE) as client,
    ):
        body = {"prompt": "ab", "max_tokens": 50}
        engine.may_compile.clear()

        def ask() -> None:
            texts.append(client.post("/v1/completions", json={**body, "response_format": FORM}))

        asking = [threading.Thread(target=ask) for _ in range(2)]
        for each in asking:
            each.start()
        time.sleep(0.2)  # both have begun
        third = threading.Thread(target=ask)
        third.start()
        other = client.post("/v1/completions", json={**body, "max_tokens": 5})
        assert len(other.json()["choices"][0]["text"]) == 5
        assert not texts, "the forms are not there yet"
        for each in [*asking, third]:
            each.join(PATIENCE)
        replies = {(text.status_code, text.json()["error"]["message"]) for text in texts}
        assert replies == {
            (400, "response_format takes longer than 1 s to compile; ask for a smaller form."),
            (503, "The server is busy compiling the forms of other requests; try again later."),
        }
        assert [text.json()["error"]["param"] for text in texts] == ["response_format"] * 3
        engine.may_compile.set()
        end = time.monotonic() + PATIENCE
        while len(engine.cancelled) < 2:
            assert time.monotonic() < end
            time.sleep(0.01)
        ask()
        assert texts[-1].status_code == 200


def test_the_end_waits_for_no_form(heard: Any) -> None:
    """Of three requests one waits for the forms of the others. It is refused, and no thread keeps the process alive."""
    engine, request = EchoEngine(), GenerationRequest((3,), max_new_tokens=1, constraint=Constraint("regex", "a"))
    before = {*threading.enumerate()}
    engine.may_compile.clear()

    async def ask() -> None:
        submission = Submission(engine)
        asked = [asyncio.ensure_future(submission.submit(request, heard())) for _ in range(3)]
        await asyncio.sleep(0)
        assert all(thread.daemon for thread in {*threading.enumerate()} - before)
        submission.close()
        for one in (asked[2], submission.submit(request, heard())):
            with pytest.raises(EngineClosedError, match="the engine takes no more requests"):
                await one
        engine.may_compile.set()
        assert sorted([await one for one in asked[:2]]) == [0, 1]

    asyncio.run(ask())
