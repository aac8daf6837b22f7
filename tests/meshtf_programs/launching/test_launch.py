"""meshtf-launch, with shell commands in place of programs: how they are told, shown, ended, and started again."""

from __future__ import annotations

import errno
import io
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from meshtf_programs.launching import launch
from meshtf_programs.launching.guard import watch
from meshtf_programs.launching.launch import main
from meshtf_programs.launching.launched import MESHTF_LAUNCH, Launched
from meshtf_programs.launching.prefixed_lines import PrefixedLines, colour_of
from tests.meshtf_programs.launching.ended import assert_all_end, is_running

TREE = Path(__file__).parents[3]


def launched(*arguments: str, ignored: Sequence[signal.Signals] = ()) -> subprocess.Popen[str]:
    """The launcher with these signals ignored and no others, even if the tests run in the background or under nohup."""
    command = [sys.executable, "-m", "meshtf_programs.launching.launch", *arguments]
    inherited = {
        number: signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)
        for number in (signal.SIGINT, signal.SIGHUP)
    }
    try:
        return subprocess.Popen(command, cwd=TREE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    finally:
        for number, handler in inherited.items():
            signal.signal(number, handler)


def shell(script: str) -> list[str]:
    return ["--", "sh", "-c", script]


def told(lines: Sequence[str]) -> list[Launched]:
    return [Launched.from_text(line.partition("] ")[2]) for line in sorted(lines)]


def test_each_process_is_told_of_all_and_its_lines_are_marked() -> None:
    process = launched("--processes=3", "--cores_per_process=2", *shell(f'echo "${MESHTF_LAUNCH}"; echo bad >&2'))
    out, err = process.communicate(timeout=500)
    assert process.returncode == 0
    assert sorted(err.splitlines()) == ["[0] bad", "[1] bad", "[2] bad"]
    found = told(out.splitlines())
    assert [each.process_index for each in found] == [0, 1, 2]
    assert len({(each.addresses, each.token, each.cores_per_process) for each in found}) == 1
    assert len(set(found[0].addresses)) == 3
    assert all(address.startswith("127.0.0.1:") for address in found[0].addresses)
    assert len(found[0].token) == 32


def test_one_that_fails_ends_all_and_its_status_is_returned(tmp_path: Path) -> None:
    """Process 1 fails; the others, which would sleep for an hour beside a child of their own, are ended."""
    script = f'case "${MESHTF_LAUNCH}" in *\'index": 1\'*) exit 7;; esac; sleep 3600 & echo $! > {tmp_path}/$$; wait'
    process = launched("--processes=3", "--grace_seconds=1", *shell(script))
    process.communicate(timeout=500)
    assert process.returncode == 7
    for path in tmp_path.iterdir():
        for pid in (path.name, *path.read_text().split()):  # no child's, where it was ended before it had one
            assert not is_running(int(pid))


def test_a_killed_launcher_leaves_no_process_running(tmp_path: Path) -> None:
    """SIGKILL, to the launcher alone. Its processes end all the same, and their children; one has ended before."""
    script = (
        f'case "${MESHTF_LAUNCH}" in *\'index": 2\'*) exit;; esac; sleep 3600 & echo $! > {tmp_path}/$$; echo up; wait'
    )
    process = launched("--processes=3", *shell(script))
    assert process.stdout is not None
    assert sorted(process.stdout.readline() for _ in range(2)) == ["[0] up\n", "[1] up\n"]
    pids = [int(pid) for path in tmp_path.iterdir() for pid in (path.name, path.read_text())]
    assert len(pids) == 4
    assert all(map(is_running, pids))
    process.kill()
    process.communicate(timeout=500)
    assert_all_end(pids)


def test_the_guard_forgets_what_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda group, _: ended.append(group))
    watch(["begun 4\n", "begun 5\n", "begun 6\n", "ended 5\n"])
    assert sorted(ended) == [4, 6]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_are_passed_on_and_end_restarts(number: signal.Signals) -> None:
    script = "trap 'echo asked; exit 9' INT TERM HUP; echo ready; while :; do sleep 0.05; done"
    process = launched("--processes=2", "--max_restarts=5", *shell(script))
    assert process.stdout is not None
    assert sorted(process.stdout.readline() for _ in range(2)) == ["[0] ready\n", "[1] ready\n"]
    process.send_signal(number)
    out, err = process.communicate(timeout=500)
    assert sorted(out.splitlines()) == ["[0] asked", "[1] asked"]
    assert process.returncode == 9
    assert "again" not in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_that_is_ignored_stays_ignored(number: signal.Signals) -> None:
    """As SIGHUP is under nohup, and SIGINT in the background of a script."""
    process = launched("--processes=1", *shell("echo ready; sleep 1; echo done"), ignored=[number])
    assert process.stdout is not None
    assert process.stdout.readline() == "[0] ready\n"
    process.send_signal(number)
    out, _ = process.communicate(timeout=500)
    assert (process.returncode, out) == (0, "[0] done\n")


def test_it_starts_again_as_often_as_allowed_with_other_ports(tmp_path: Path) -> None:
    """Each start fails but the third."""
    script = f'echo "${MESHTF_LAUNCH}"; echo x >> {tmp_path}/starts; [ $(wc -l < {tmp_path}/starts) -ge 3 ] || exit 5'
    process = launched("--processes=1", "--max_restarts=2", *shell(script))
    out, err = process.communicate(timeout=500)
    assert process.returncode == 0
    assert [line.partition(";")[0] for line in err.splitlines()] == [
        "meshtf-launch: start 1 of 2 again in 1 s",
        "meshtf-launch: start 2 of 2 again in 2 s",
    ]
    assert len({each.token for each in told(out.splitlines())}) == 3


def test_a_closed_output_blocks_no_process() -> None:
    """More lines than a pipe holds."""
    command = [sys.executable, "-c", "from meshtf_programs.start import launch; launch()", "--processes=1"]
    script = ["sh", "-c", 'exec "$@" >&-', "sh", *command, *shell("seq 100000")]
    assert subprocess.run(script, cwd=TREE, check=False, timeout=500).returncode == 0


def test_bytes_that_the_output_cannot_show_end_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "latin-1")
    command = [sys.executable, "-c", "from meshtf_programs.start import launch; launch()", "--processes=1"]
    ended = subprocess.run(
        [*command, *shell(r"printf 'caf\351\n'; seq 2")], cwd=TREE, check=True, capture_output=True, timeout=500
    )
    assert ended.stdout == b"[0] caf\\ufffd\n[0] 1\n[0] 2\n"


def test_a_wrong_configuration_is_not_started_again(tmp_path: Path) -> None:
    process = launched("--processes=1", "--max_restarts=9", *shell(f"echo x >> {tmp_path}/starts; exit 2"))
    process.communicate(timeout=500)
    assert process.returncode == 2
    assert (tmp_path / "starts").read_text() == "x\n"


def test_a_process_that_a_signal_ends_has_a_shells_status() -> None:
    """And is named, because it cannot say a last word."""
    script = f'case "${MESHTF_LAUNCH}" in *\'index": 1\'*) kill -9 $$;; esac; sleep 3600'
    process = launched("--processes=2", "--grace_seconds=0", *shell(script))
    _, err = process.communicate(timeout=500)
    assert process.returncode == 128 + signal.SIGKILL
    assert err == "meshtf-launch: process 1 was ended by signal 9 (Killed); Linux sends it if memory is short\n"


@pytest.mark.parametrize(("arguments", "message"), [
    (["--processes=2"], "there is no command; it comes after --"),
    (["--processes=2", "--"], "there is no command"),
    (["--processes=0", "--", "true"], "--processes must be at least 1, and is 0"),
    (["--processes=2", "--cores_per_process=0", "--", "true"], "--cores_per_process must be at least 1, and is 0"),
    (["--processes=2", "--max_restarts=-1", "--", "true"], "--max_restarts must be at least 0, and is -1"),
    (["--processes=2", "--grace_seconds=nan", "--", "true"], "--grace_seconds must be 0 or more, and is nan"),
    (["--", "true"], "--processes says how many to start here, or --hosts where"),
    (["--processes=2", "--hosts=a", "--", "true"], "give one of them"),
    (["--hosts=a,,b", "--", "true"], "--hosts=a,,b: '' is not a host name"),
    (["--hosts=a,a", "--", "true"], "--hosts=a,a names a host twice"),
    (["--hosts=[::1],0:0::1", "--", "true"], "names a host twice"),
    (["--hosts=a:22,b", "--", "true"], "Give hosts without ports; --port=N is for all"),
    (["--hosts=a", "--port=70000", "--", "true"], "--port must be at most 65535, and is 70000"),
    (["--hosts=a", "--max_restarts=1", "--", "true"], "--max_restarts with --hosts needs --ssh"),
    (["--processes=2", "--ssh", "--", "true"], "--ssh starts processes on the hosts that --hosts=A,B names"),
    (["--processes=2", "--elastic", "--", "true"], "--elastic needs --max_restarts=N, which is 0"),
    (["--processes=2", "--port=4100", "--", "true"], "--port is for --hosts; processes on this machine get free ports"),
    (["--hosts=a", "--port=0", "--", "true"], "--port must be at least 1, and is 0"),
    (["--processes=2", "--processes=3", "--", "true"], "--processes is given more than once, but takes one value"),
    (["--processes=two", "--", "true"], "--processes: invalid int value: 'two'"),
    (["--processes=", "--", "true"], "--processes: invalid int value: ''"),
    (["--proceses=2", "--", "true"], 'unknown flag --proceses; did you mean "--processes"?'),
    (["--max-restarts", "2", "--", "true"], 'unknown flag --max-restarts; did you mean "--max_restarts"?'),
])  # fmt: skip
def test_what_is_wrong_is_named(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["meshtf-launch", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_an_unknown_program_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["meshtf-launch", "--processes=2", "--", "meshtf-trian"]) == 127
    error = capsys.readouterr().err
    assert "there is no program 'meshtf-trian' on PATH, nor in " in error
    assert '; did you mean "meshtf-train"?' in error


@pytest.mark.parametrize(("content", "mode", "message"), [
    ("echo\n", 0o644, "may not be executed; if it is a program, chmod +x permits it"),
    ("echo\n", 0o755, "cannot be started: Exec format error. The first line of a script must name an interpreter"),
    ("#!/no/such/interpreter\n", 0o755, "cannot be started: No such file or directory. The first line of a script"),
])  # fmt: skip
def test_a_program_that_cannot_be_started_is_named(
    content: str, mode: int, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "script"
    script.write_text(content)
    script.chmod(mode)
    assert main(["meshtf-launch", "--processes=2", "--max_restarts=3", "--", str(script)]) == 126
    assert capsys.readouterr().err.startswith(f"meshtf-launch: error: {script} {message}")


def test_too_many_processes_are_a_message(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def none_left(_: int) -> list[int]:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(launch, "free_ports", none_left)
    assert main(["meshtf-launch", "--processes=9", "--", "true"]) == 126
    assert "error: 9 processes of " in capsys.readouterr().err


def test_ctrl_c_before_a_start_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_: int) -> list[int]:
        raise KeyboardInterrupt

    monkeypatch.setattr(launch, "free_ports", interrupted)
    assert main(["meshtf-launch", "--processes=2", "--", "true"]) == 130
    assert capsys.readouterr().err == "meshtf-launch: error: interrupted\n"


def test_commands_for_hosts_tell_each_of_all(capsys: pytest.CaptureFixture[str]) -> None:
    hosts = "--hosts=10.0.0.1,b,me@[2001:DB8::1],fe80::1%eth0"
    arguments = [hosts, "--port=4100", "--cores_per_process=4", "--", "meshtf-train", "--layout=a b"]
    assert main(["meshtf-launch", *arguments]) == 0
    _, *lines = capsys.readouterr().out.splitlines()
    names = ("10.0.0.1", "b", "me@2001:db8::1", "fe80::1%eth0")
    addresses = ("10.0.0.1:4100", "b:4100", "[2001:db8::1]:4100", "[fe80::1%eth0]:4100")
    for index, (line, host) in enumerate(zip(lines, names, strict=True)):
        ssh, to, command = shlex.split(line)
        assert (ssh, to) == ("ssh", host)
        *_, folder, and_then, variable, program, layout = shlex.split(command)
        assert (folder, and_then, program, layout) == (os.getcwd(), "&&", "meshtf-train", "--layout=a b")
        own = Launched.from_text(variable.removeprefix(f"{MESHTF_LAUNCH}="))
        assert (own.process_index, own.addresses, own.cores_per_process) == (index, addresses, 4)


@pytest.mark.parametrize("arguments", [["--help"], ["--hosts=a", "--", "true"]], ids=["help", "commands"])
def test_a_full_disk_is_an_error(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "meshtf_programs.launching.launch", *arguments]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, cwd=TREE, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (4, "the output cannot be written: No space left on device\n")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colours_are_for_terminals_that_want_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert colour_of(0, Terminal()) != colour_of(1, Terminal()) != ""
    assert colour_of(0, io.StringIO()) == ""
    terminal = Terminal()
    PrefixedLines("[1] ", "33", terminal).copy(io.BytesIO(b"one\n\xff"))
    assert terminal.getvalue() == "\x1b[33m[1] \x1b[0mone\n\x1b[33m[1] \x1b[0m�\n"
    monkeypatch.setenv("NO_COLOR", "1")
    assert colour_of(0, Terminal()) == ""


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"process_index": 2, "addresses": ["a:1"], "token": ""}'])
def test_what_no_launcher_wrote_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not as meshtf-launch writes it|process 2 of 1"):
        Launched.from_text(text)


def test_a_launcher_that_waits_to_start_again_ends_at_a_signal() -> None:
    process = launched("--processes=1", "--max_restarts=5", *shell("exit 1"))
    assert process.stderr is not None
    assert "again in 1 s" in process.stderr.readline()
    assert "again in 2 s" in process.stderr.readline()
    time.sleep(0.3)
    process.terminate()
    assert process.wait(timeout=500) == 143
    process.communicate()
