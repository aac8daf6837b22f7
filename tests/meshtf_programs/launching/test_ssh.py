"""meshtf-launch on hosts: with a stand-in for ssh, which runs here what it is to run there; and with sshd, where it is
installed."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from meshtf_programs.launching.launched import MESHTF_LAUNCH, Launched
from meshtf_programs.launching.ssh import Host, why_unreachable
from tests.meshtf_programs.launching.ended import assert_all_end
from tests.own_ports import own_ports

TREE = Path(__file__).parents[3]

_STAND_IN = """\
#!/bin/sh
echo "$*" >> {log}
while [ "$1" != -- ]; do shift; done
case $2 in
  refused) echo "me@refused: Permission denied (publickey)." >&2; exit 255;;
  away) echo "ssh: connect to host away port 22: Connection timed out" >&2; exit 255;;
esac
STAND_IN=$2 exec setsid --wait sh -c "$3"
"""
"""A program ssh. As behind a real one, the script is in a session of its own, and nothing kills it with the client."""

SLEEP = "sleep 3600 & echo $$ $!; wait"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With a program ssh, which writes down how it is called."""
    (tmp_path / "ssh").write_text(_STAND_IN.format(log=tmp_path / "log"))
    (tmp_path / "ssh").chmod(0o755)
    return tmp_path


def launched(path: Path | str, hosts: str, script: str, *options: str) -> subprocess.Popen[str]:
    arguments = [f"--hosts={hosts}", "--ssh", *options, "--", "sh", "-c", script]
    return subprocess.Popen(
        [sys.executable, "-m", "meshtf_programs.launching.launch", *arguments],
        cwd=TREE, env={**os.environ, "PATH": f"{path}:{os.environ['PATH']}"}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def test_each_host_is_told_by_standard_input(folder: Path) -> None:
    process = launched(folder, "a,me@b", f'echo "$STAND_IN ${MESHTF_LAUNCH}"; pwd; cat; echo bad >&2', "--port=4100")
    out, err = process.communicate(timeout=500)
    assert process.returncode == 0
    assert sorted(err.splitlines()) == ["[0] bad", "[1] bad"]
    first, other, *folders = sorted(out.splitlines(), key=lambda line: (line.endswith(str(TREE)), line))
    assert folders == [f"[0] {TREE}", f"[1] {TREE}"]
    found = []
    for index, (line, host) in enumerate(((first, "a"), (other, "me@b"))):
        assert line.startswith(f"[{index}] {host} ")
        found.append(Launched.from_text(line.removeprefix(f"[{index}] {host} ")))
    assert [each.process_index for each in found] == [0, 1]
    assert found[0].addresses == found[1].addresses == ("a:4100", "b:4100")
    calls = (folder / "log").read_text()
    assert "BatchMode=yes" in calls
    assert found[0].token == found[1].token
    assert found[0].token not in calls


def test_signals_reach_hosts_and_the_first_failure_ends_all(folder: Path) -> None:
    process = launched(folder, "a,b", "trap 'echo asked; exit 9' TERM; echo ready; while :; do sleep 0.05; done")
    assert process.stdout is not None
    assert sorted(process.stdout.readline() for _ in range(2)) == ["[0] ready\n", "[1] ready\n"]
    process.terminate()
    out, _ = process.communicate(timeout=500)
    assert (process.returncode, sorted(out.splitlines())) == (9, ["[0] asked", "[1] asked"])
    process = launched(folder, "a,b", f'[ "$STAND_IN" = a ] && exit 7; {SLEEP}', "--grace_seconds=0.5")
    out, _ = process.communicate(timeout=500)
    assert process.returncode == 7
    assert_all_end([int(pid) for pid in out.split()[1:]])


def test_a_killed_launcher_leaves_nothing_on_its_hosts(folder: Path) -> None:
    process = launched(folder, "a,b", SLEEP)
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(2)]
    process.kill()
    process.communicate(timeout=500)
    assert_all_end([int(pid) for line in lines for pid in line.split()[1:]])


def test_hosts_that_are_not_reached_are_named_and_left_out(folder: Path) -> None:
    process = launched(folder, "a,away,refused", "sleep 3600", "--grace_seconds=0.3")
    _, err = process.communicate(timeout=500)
    assert process.returncode == 255
    assert "process 1: ssh to away failed (ssh: connect to host away port 22: Connection timed out): is the host" in err
    assert "process 2: ssh to refused failed (me@refused: Permission denied (publickey).): the host does not" in err
    elastic = ["--grace_seconds=30", "--max_restarts=1", "--elastic"]
    process = launched(folder, "a,refused,b", '[ "$STAND_IN" = a ] || sleep 1; exit 0', *elastic)
    _, err = process.communicate(timeout=500)
    assert process.returncode == 0
    assert "meshtf-launch: start 1 of 1 again in 1 s, with 2 processes; training continues" in err
    assert (folder / "log").read_text().count(" -- refused ") == 2


def test_what_ssh_says_is_explained() -> None:
    host = Host("me@b", "/", "/")
    assert "ssh-copy-id me@b" in why_unreachable(host, "me@b: Permission denied (publickey).")
    assert "ssh me@b, and accept it" in why_unreachable(host, "Host key verification failed.")
    assert "no host of this name" in why_unreachable(host, "ssh: Could not resolve hostname b: Name or service")
    assert "ssh -o BatchMode=yes me@b true" in why_unreachable(host, "")
    assert Host("me@fe80::1", "/", "/").address(40) == "[fe80::1]:40"


def test_without_ssh_nothing_is_started(tmp_path: Path) -> None:
    (tmp_path / "python").symlink_to(sys.executable)
    arguments = [sys.executable, "-m", "meshtf_programs.launching.launch", "--hosts=a", "--ssh", "--", "true"]
    found = subprocess.run(arguments, cwd=TREE, env={"PATH": str(tmp_path)}, capture_output=True, text=True, timeout=60)
    assert found.returncode == 127
    assert "there is no program 'ssh' on PATH" in found.stderr


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[Path]:
    """A folder with an ssh that reaches an sshd on this machine, with keys of its own."""
    program = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
    if program is None:
        pytest.skip("sshd is not installed")
    (port,) = own_ports(1)
    for key in ("host_key", "own_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / key], check=True)
    (tmp_path / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {tmp_path}/host_key\n"
        f"AuthorizedKeysFile {tmp_path}/own_key.pub\nStrictModes no\nUsePAM no\nPermitRootLogin yes\nPidFile none\n"
    )
    (tmp_path / "ssh").write_text(
        f"#!/bin/sh\nexec {shutil.which('ssh')} -F none -p {port} -i {tmp_path}/own_key -o IdentitiesOnly=yes "
        f'-o UserKnownHostsFile={tmp_path}/known -o StrictHostKeyChecking=accept-new "$@"\n'
    )
    (tmp_path / "ssh").chmod(0o755)
    with subprocess.Popen([program, "-D", "-e", "-f", tmp_path / "sshd_config"], stderr=subprocess.PIPE) as server:
        try:
            _wait_for(port, server)
            yield tmp_path
        finally:
            server.kill()


def _wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    while server.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            time.sleep(0.05)
    assert server.stderr is not None
    pytest.skip(f"sshd does not start here: {server.stderr.read().decode().strip()}")


def test_with_sshd(sshd: Path) -> None:
    process = launched(sshd, f"{getpass.getuser()}@127.0.0.1", f"echo up; {SLEEP}", "--grace_seconds=1")
    assert process.stdout is not None
    assert process.stdout.readline() == "[0] up\n"
    pids = [int(pid) for pid in process.stdout.readline().split()[1:]]
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=500)
    assert process.returncode == 128 + signal.SIGTERM
    assert_all_end(pids)
    process = launched(sshd, "127.0.0.1", SLEEP)
    assert process.stdout is not None
    pids = [int(pid) for pid in process.stdout.readline().split()[1:]]
    process.kill()
    process.communicate(timeout=500)
    assert_all_end(pids)
    (sshd / "own_key.pub").write_text("")
    process = launched(sshd, "127.0.0.1", "true")
    _, err = process.communicate(timeout=500)
    assert process.returncode == 255
    assert "the host does not accept your key" in err
