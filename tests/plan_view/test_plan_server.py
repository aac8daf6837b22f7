"""The server plans what is asked of it, and answers nobody but the page that it serves."""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from meshtf.bin.layouts.plan_layouts import LayoutPlanner, settings_text
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
def server(planner: LayoutPlanner, training: Training) -> Iterator[PlanServer]:
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
    assert planned["label"] == "batch:rows;hidden:cols, mesh rows:2;cols:2"
    wrong = [
        ({"layout": "batch:nowhere"}, '"nowhere"'),
        ({"mesh_shape": "rows:1000000000"}, "at most 131,072 cores"),
        ({"mesh_shape": "__import__('os')"}, "__import__"),
        ({"layout": "batch:rows;hidden:rows"}, "rows"),
    ]
    for change, message in wrong:
        status, text = ask(server, "POST", server.plan_path, SETTINGS | change)
        error = json.loads(text)["error"]
        assert (status, message in error) == (422, True), text
        asked = (SETTINGS | change)["layout"]
        assert "from" not in error or f"Training.layout = {asked!r}  is from the page" in error, error


def test_layouts_are_called_by_what_they_are() -> None:
    usual = settings_of(SETTINGS)
    changed = SETTINGS | {"layout": "", "parameter_layout": "hidden:rows", "batch_size": 32}
    assert settings_text(settings_of(changed), usual) == "nothing is split, parameters hidden:rows, batch size 32"
    assert settings_text(usual, settings_of(changed)) == "batch:rows;hidden:cols, parameters none, batch size 64"
    assert settings_text(usual, usual) == "batch:rows;hidden:cols"


def test_a_layout_is_found_and_how_far_the_search_is_can_be_asked(planner: LayoutPlanner, training: Training) -> None:
    told: list[str] = []

    def plan(settings: Settings, tell: Callable[[object], None]) -> PlannedLayout:
        def tell_and_ask(said: object) -> None:
            tell(said)
            if len(told) < 2:
                told.append(json.loads(ask(server, "GET", server.progress_path)[1])["progress"])

        return planner.again(training, settings, tell_and_ask)

    with served(plan) as server:
        status, text = ask(server, "POST", server.plan_path, SETTINGS | {"layout": "auto", "mesh_shape": "rows:2"})
        assert status == 200
        found = json.loads(text)
        assert json.loads(ask(server, "GET", server.progress_path)[1]) == {"progress": ""}
        assert ask(server, "GET", f"{server.plan_path}/other")[0] == 404
        again = json.loads(ask(server, "POST", server.plan_path, found["settings"])[1])
    assert ": 2 tried in " in told[1]
    assert found["label"] == f"auto: {again['label']}"
    assert found["settings"]["mesh_shape"] == "rows:2"
    assert found["totals"] == again["totals"]
    assert "the search ended after " in found["search"]
    assert again["search"] == ""
    without_machine = dataclasses.replace(planner, machine=None).again(
        training, settings_of(SETTINGS | {"layout": "auto"})
    )
    assert "start meshtf-plan with --machine" in without_machine.error
    too_many = planner.again(training, settings_of(SETTINGS | {"layout": "auto", "mesh_shape": "auto:200000"}))
    assert "at most 131,072 cores, and [auto:200000] has 200,000" in too_many.error


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
