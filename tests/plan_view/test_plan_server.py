"""The server plans what is asked of it, and answers nobody but the page that it serves."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from meshtf.bin._plan_layouts import Planner
from meshtf.plan_view.plan_server import PlanServer, SettingsError, settings_of
from meshtf.plan_view.planned_layout import PlannedLayout, Settings
from meshtf.train.training import Training

SETTINGS = {
    "mesh_shape": "rows:2;cols:2",
    "layout": "batch:rows;hidden:cols",
    "parameter_layout": "",
    "activation_layout": "",
    "batch_size": 64,
}


@pytest.fixture(scope="module")
def server(planner: Planner, training: Training) -> Iterator[PlanServer]:
    with served(lambda settings, tell: planner.again(training, settings, tell)) as server:
        yield server


@contextlib.contextmanager
def served(plan: Callable[[Settings, Callable[[object], None]], PlannedLayout]) -> Iterator[PlanServer]:
    """A server that answers while the block runs, and is gone after it, whatever happens there."""
    server = PlanServer(0, plan)
    server.page = "<p>the page"
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join()
        server.close()


def ask(
    server: PlanServer, method: str, path: str, data: Any = None, body: bytes | None = None, **headers: str
) -> tuple[int, str]:
    """Status and text of the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=500)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    content = body if data is None else json.dumps(data).encode()
    given = {"Content-Type": "application/json"} | named if content is not None else named
    connection.request(method, path, content, given)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def test_settings_are_planned_and_what_cannot_be_is_said(server: PlanServer) -> None:
    assert ask(server, "GET", server.path) == (200, "<p>the page")
    status, text = ask(server, "POST", server.plan_path, SETTINGS, Origin=f"http://127.0.0.1:{server.port}")
    assert status == 200
    planned = json.loads(text)
    assert planned["cores"] == 4
    assert planned["totals"]["seconds"] > 0
    assert planned["settings"] == SETTINGS
    assert ask(server, "POST", server.plan_path, SETTINGS) == (200, text)
    wrong = [
        ({"layout": "batch:nowhere"}, '"nowhere"'),
        ({"mesh_shape": "rows:1000000000"}, "at most 131,072 cores"),
        ({"mesh_shape": "__import__('os')"}, "__import__"),
        ({"layout": "batch:rows;hidden:rows"}, "rows"),
    ]
    for change, message in wrong:
        status, text = ask(server, "POST", server.plan_path, SETTINGS | change)
        assert (status, message in json.loads(text)["error"]) == (422, True), text


def test_nothing_else_can_be_set(server: PlanServer) -> None:
    wrong: list[tuple[Any, str]] = [
        ([], "all of them, and nothing else"),
        (SETTINGS | {"model": "@Other()"}, "all of them, and nothing else"),
        ({"layout": "batch:rows"}, "all of them, and nothing else"),
        (SETTINGS | {"batch_size": "64"}, "batch_size is an integer"),
        (SETTINGS | {"batch_size": True}, "batch_size is an integer"),
        (SETTINGS | {"batch_size": 0}, "batch_size is an integer"),
        (SETTINGS | {"layout": 3}, "layout is a text"),
        (SETTINGS | {"layout": "x" * 5000}, "at most 4000"),
    ]
    for data, message in wrong:
        with pytest.raises(SettingsError, match=message):
            settings_of(data)
    status, text = ask(server, "POST", server.plan_path, SETTINGS | {"seed": 1})
    assert (status, "nothing else" in text) == (400, True)
    assert settings_of(SETTINGS) == Settings("rows:2;cols:2", "batch:rows;hidden:cols", "", "", 64)


def test_others_are_refused(server: PlanServer) -> None:
    """A page of another site, a name that leads here, a form, who does not know the address."""
    path = server.plan_path
    assert ask(server, "POST", path, SETTINGS, Origin="http://example.com")[0] == 403
    assert ask(server, "POST", path, SETTINGS, Origin="null")[0] == 403
    assert ask(server, "GET", server.path, Host=f"example.com:{server.port}")[0] == 421
    assert ask(server, "GET", server.path, Host=f"localhost:{server.port}")[0] == 200
    assert ask(server, "POST", path, SETTINGS, Content_Type="application/x-www-form-urlencoded")[0] == 400
    assert ask(server, "POST", path, body=b"{")[0] == 400
    assert ask(server, "POST", path, body=b"[" * 50_000)[0] == 400
    for length in (str(1 << 17), "-1", "9" * 5000, "0" * 20 + "9" * 5000):
        assert ask(server, "POST", path, Content_Type="application/json", Content_Length=length)[0] == 400
    for elsewhere in ("/", "/favicon.ico", f"{server.path}../", "/plan"):
        assert ask(server, "GET", elsewhere)[0] == 404
        assert ask(server, "POST", elsewhere, SETTINGS)[0] == 404
    assert ask(server, "DELETE", server.path)[0] == 501


def test_a_fault_of_the_planner_is_no_traceback_in_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    def plan(*_: Any) -> Any:
        raise ZeroDivisionError("secret")

    with served(plan) as server:
        status, text = ask(server, "POST", server.plan_path, SETTINGS)
    assert status == 500
    assert "fault of meshtf" in text
    assert "secret" not in text
    assert "ZeroDivisionError: secret" in capsys.readouterr().err


def test_a_browser_that_leaves_before_its_answer_is_no_fault(capsys: pytest.CaptureFixture[str]) -> None:
    server = PlanServer(0, lambda *_: pytest.fail("nothing is planned"))
    try:
        asked = f"GET {server.path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n"
        server._server.process_request_thread(_left_behind(asked), ("127.0.0.1", 0))
        assert capsys.readouterr().err == ""
        server.page = None  # type: ignore[assignment]  # a fault of the server's own
        server._server.process_request_thread(_left_behind(asked), ("127.0.0.1", 0))
        assert "AttributeError" in capsys.readouterr().err
    finally:
        server.close()


def _left_behind(text: str) -> socket.socket:
    """The server's end of a connection over which a browser asked, and which it has closed."""
    own, browser = socket.socketpair()
    browser.sendall(text.encode())
    browser.close()
    return own
