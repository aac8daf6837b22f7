"""The page to chat with the model, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from meshtf.serving.http.server_options import ServerOptions
from meshtf.train.data.vocabularies.byte_vocabulary import ByteVocabulary
from tests.plan_view.browser import Page, started
from tests.serving.echo_engine import EchoEngine
from tests.serving.running_server import running

pytestmark = pytest.mark.long


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    yield from map(Page, started(tmp_path))


def test_chats_streams_stops_and_escapes(page: Page) -> None:
    """The model answers with markup, slowly. What was said before is sent again with the next message."""
    markup = "<b>ü</b><script>document.title = 'read'</script>"
    engine = EchoEngine(script=(*ByteVocabulary().encode(markup), 1), delay=0.03)
    with running(engine, ServerOptions(port=0, token="secret")) as server:
        page.browser.get(server.address)
        page.wait(lambda _: "asks for a token" in page.text("#model"))
        page.one("#token").send_keys("secret")
        page.run("document.querySelector('#max_tokens').value = 54")
        page.run("document.querySelector('#temperature').value = 0.3")
        page.one("#text").send_keys("<i>hi</i>")
        page.wait(lambda _: page.text("#model") == "tiny")
        page.one("#send").click()
        page.wait(lambda _: 0 < len(page.text(".assistant .body")) < len(markup))
        assert page.one("#stop").is_enabled()
        page.wait(lambda _: page.text(".assistant .body") == markup)
        page.wait(lambda _: page.one("#send").is_enabled())
        assert page.text(".user .body") == "<i>hi</i>"
        assert page.all("#log b, #log i, #log script") == []
        assert page.browser.title == "meshtf-serve"
        assert (engine.requests[0].temperature, engine.requests[0].max_new_tokens) == (0.3, 54)
        page.run("document.querySelector('#max_tokens').value = 10")
        page.one("#text").send_keys("x")
        page.press("ENTER")
        page.wait(lambda _: "has 59 tokens" in page.text("#error"))
        page.one("#clear").click()
        assert page.all(".message") == []
        page.run("document.querySelector('#max_tokens').value = 50")
        page.one("#text").send_keys("y")
        page.press("ENTER")
        page.wait(lambda _: page.all(".assistant") and page.text(".assistant .body"))
        page.one("#stop").click()
        page.wait(lambda _: engine.cancelled)
        page.wait(lambda _: page.one("#send").is_enabled())
    wanted = {"401", "400"}  # the browser tells of each reply that was an error
    assert [each for each in page.complaints() if not wanted & set(each["message"].split())] == []
