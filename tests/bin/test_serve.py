"""meshtf-serve, on the folder of a run of a small language model."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import threading
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest

from meshtf.bin import decode, serve
from meshtf_programs.command_lines.serve import command_line, with_run
from meshtf_programs.exit_status import ExitStatus
from tests.bin.together import started
from tests.fresh_process import FreshProcess
from tests.own_ports import own_ports
from tests.train.decoding.small_run import write_small_run

PATIENCE = 300.0

ON_CORES_THAT_COUNT = """
import sys

import meshtf as mtf
from meshtf.bin import serve

mtf.SpmdMeshImpl.peak_bytes = 3 << 30
sys.exit(serve.main(sys.argv))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("served")
    write_small_run(path)
    return path


def test_a_process_that_follows_leaves_an_ignored_signal_ignored() -> None:
    """Otherwise the SIGHUP of a terminal that closes would count as its first signal."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with serve.signals_are_for_process_0():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            assert callable(signal.getsignal(signal.SIGTERM))
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["runs/tiny"], "tiny"),
        (["runs/tiny", "--name=café"], "café"),
        (["."], "model"),
        (["runs/caf\udce9"], "caf\ufffd"),
        (["runs/tiny", "--name=\udcff"], "\ufffd"),
    ],
    ids=["of the folder", "given", "of no folder", "of a folder in Latin-1", "given in other bytes"],
)
def test_a_models_name_is_one_that_replies_can_have(arguments: list[str], name: str) -> None:
    values = command_line().parse(with_run(["meshtf-serve", *arguments]))
    assert serve.name_of(values) == name


def wait_until_ready(client: httpx2.Client, process: FreshProcess) -> None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and process.is_running:
        with contextlib.suppress(httpx2.TransportError):
            if client.get("/ready").status_code == 200:
                return
        time.sleep(0.1)
    pytest.fail(f"it is not ready: {process.finish(10)}")


def decoded(
    folder: Path, capsys: pytest.CaptureFixture[str], prompts: list[str], *options: str
) -> list[dict[str, Any]]:
    """What meshtf-decode adds to each prompt."""
    given = [f"--prompt={prompt}" for prompt in prompts]
    assert (
        decode.main(["meshtf-decode", f"--model_dir={folder}", "--format=jsonl", *given, *options]) == ExitStatus.DONE
    )
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_one_program_answers_as_decode_does_and_ends_by_a_signal(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """While others run beside it, and behind wrong requests. SIGTERM lets the last one end. Its cores count memory."""
    (port,) = own_ports(1)
    (tmp_path / "token").write_text("secret\n")
    options = [f"--port={port}", f"--token_file={tmp_path / 'token'}", "--num_rows=4", "--num_lengths=1", "--name=tiny"]
    process = FreshProcess(["-c", ON_CORES_THAT_COUNT, str(folder), *options])
    try:
        headers = {"Authorization": "Bearer secret"}
        with httpx2.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=PATIENCE) as client:
            wait_until_ready(client, process)
            _check_answers(client, folder, capsys)
            slow = threading.Thread(target=_ask_until_the_end, args=(client, found := list[str]()))
            slow.start()
            while slow.is_alive() and "meshtf_generations_running 0.0\n" in client.get("/metrics").text:
                time.sleep(0.01)
            process.send_signal(signal.SIGTERM)
            slow.join(PATIENCE)
            done = process.finish(PATIENCE)
    except BaseException:
        process.kill()
        raise
    assert done.status == 0, done.stderr
    assert [x["finish_reason"] in ("length", "stop") for x in json.loads(found[0])["choices"]] == [True] * 4
    assert f"serving step 3 of {folder}" in done.stderr
    assert f"tiny is at http://127.0.0.1:{port}" in done.stderr
    assert "SIGTERM: no more requests are taken" in done.stderr
    said = r"peak memory:   3\.0 GiB on a core by its own count, [\d.]+ KiB by the plan"
    assert re.fullmatch(said, done.stderr.splitlines()[-1])
    assert "Traceback" not in done.stderr


@pytest.mark.long
def test_two_processes_serve_what_one_does(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All of them get the signal. And where one is killed or stands still, the other ends with a message."""
    layout = ["--mesh_shape=rows:2;cols:2", "--layout=batch:rows;heads:cols;d_ff:cols;vocab:cols"]
    flags = ["--method=sample", "--temperature=0.7", "--seed=5", "--max_new_tokens=8", *layout]
    (wanted,) = decoded(folder, capsys, ["def f("], *flags)
    for fault in (None, signal.SIGKILL, signal.SIGSTOP):
        (port,) = own_ports(1)
        arguments = ["-m", "meshtf.bin.serve", str(folder), f"--port={port}", *layout]
        processes = started(2, arguments, tmp_path, cores=2)
        with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE) as client:
            wait_until_ready(client, processes[0])
            body = {"prompt": "def f(", "max_tokens": 8, "temperature": 0.7, "seed": 5}
            assert client.post("/v1/completions", json=body).json()["choices"][0]["text"] == wanted["text"]
            assert client.post("/v1/score", json={"input": "abc"}).status_code == 200
            if fault is not None:
                processes[1].send_signal(fault)
                with contextlib.suppress(httpx2.TransportError):
                    assert client.post("/v1/completions", json=body).status_code in (500, 503)
                done = processes[0].finish(PATIENCE)
                processes[1].kill()
                assert done.status == ExitStatus.FAILED, done.stderr
                assert "the engine has failed for good: " in done.stderr
                assert "process 1 (127.0.0.1:" in done.stderr
                continue
            for process in processes:
                process.send_signal(signal.SIGTERM)
            assert [process.finish(PATIENCE).status for process in processes] == [0, 0]


def _ask_until_the_end(client: httpx2.Client, found: list[str]) -> None:
    found.append(client.post("/v1/completions", json={"prompt": "ab", "max_tokens": 20, "n": 4, "seed": 1}).text)


def _check_answers(client: httpx2.Client, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert client.post("/v1/completions", json={"prompt": "x" * 24}).status_code == 400
    assert client.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "x"}]}).status_code == 400
    prompts = ["def f(", "impörté", ""]
    body = {"prompt": prompts, "max_tokens": 8, "logprobs": 3}
    greedy = client.post("/v1/completions", json={**body, "temperature": 0}).json()
    wanted = decoded(folder, capsys, prompts, "--max_new_tokens=8")
    assert [choice["text"] for choice in greedy["choices"]] == [each["text"] for each in wanted]
    assert greedy["usage"]["completion_tokens"] == sum(each["num_tokens"] for each in wanted)
    drawn = {"temperature": 0.7, "top_p": 0.9, "seed": 5, "presence_penalty": 0.5, "stop": ["e"]}
    reply = client.post("/v1/completions", json={**body, **drawn}).json()
    flags = ["--method=sample", "--temperature=0.7", "--top_p=0.9", "--seed=5", "--presence_penalty=0.5", "--stop=e"]
    (alone,) = decoded(folder, capsys, prompts[:1], *flags, "--max_new_tokens=8")
    assert reply["choices"][0]["text"] == alone["text"]
    score = client.post("/v1/score", json={"input": "abc"}).json()["data"][0]
    assert (score["num_tokens"], len(score["token_logprobs"])) == (3, 3)
    assert score["log_likelihood"] < 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--model_dir is needed, for example: meshtf-serve runs/lm_tiny --port=8000"),
        (["/dev/null/run"], "/dev/null/run is not the folder of a run"),
        (["{folder}", "--prot=1"], "Unknown command line flag 'prot'. Did you mean: port"),
        (["{folder}", "--port=70000"], "flag --port=70000"),
        (["{folder}", "--token=a", "--token_file=b"], "--token and --token_file are both given; leave one out"),
        (["{folder}", "--token=schlüssel"], "--token must be letters, digits and signs of ASCII, without spaces"),
        (["{folder}", "--token_file={folder}/gone"], "gone cannot be read: No such file or directory"),
        (["{folder}", "--token_file=/dev/null"], "--token_file=/dev/null must have exactly one non-empty line"),
        (["{folder}", "--host=203.0.113.1"], "--host=203.0.113.1 --port=8000 cannot be listened on: Cannot assign"),
        (["{folder}", "--chat_template={folder}/gone"], "gone cannot be read"),
    ],
)
def test_a_mistake_is_a_message_and_status_2(
    arguments: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [each.format(folder=folder) for each in arguments]
    assert serve.main(["meshtf-serve", *given]) == ExitStatus.BAD_CONFIGURATION
    captured = capsys.readouterr()
    assert captured.err.startswith("meshtf-serve: error: ")
    assert message in captured.err
