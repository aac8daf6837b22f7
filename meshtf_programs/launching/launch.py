"""meshtf-launch: starts all processes of one program, and ends them together."""

from __future__ import annotations

import argparse
import functools
import os
import secrets
import shlex
import shutil
import signal
import sys
import textwrap
import time
from collections.abc import Sequence

from meshtf_programs.launching.free_ports import free_ports
from meshtf_programs.launching.job import Ended, Job
from meshtf_programs.launching.launched import MESHTF_LAUNCH, Launched

PROGRAM = "meshtf-launch"

_BAD_USAGE = 2
_LARGEST_PORT = 65535
_FIRST_WAIT, _LONGEST_WAIT = 1.0, 60.0
_OWN_FOLDER = os.path.dirname(sys.executable)
"""That of meshtf's programs in an environment which is not activated."""
_NEVER_AGAIN = frozenset({_BAD_USAGE})
"""Statuses of what another start would not mend: a wrong flag or configuration."""

_DESCRIPTION = """\
starts a program as several processes, over which one mesh is laid, on this machine. What comes after -- is the
command, the same in all. When one of them fails, the others are ended, and its status is returned."""

_EXAMPLES = f"""\
examples:
  {PROGRAM} --processes=2 --cores_per_process=4 -- meshtf-train --gin_file=digits_mlp.gin
  {PROGRAM} --processes=4 --max_restarts=10 -- meshtf-train --gin_file=lm_tiny.gin --mesh_shape='rows:4;cols:2'
  {PROGRAM} --hosts=10.0.0.1,10.0.0.2 -- meshtf-train --gin_file=lm_tiny.gin --model_dir=/shared/lm_tiny
  {PROGRAM} --processes=2 -- python my_program.py   # which calls mtf.initialize_cluster()

Each process is told of the others in the variable {MESHTF_LAUNCH}, which meshtf's programs and
mtf.initialize_cluster() read. TensorFlow's servers listen on every address of this machine: keep it in a private
network.

exit status:
  0      all processes are done
  2      a flag or the configuration is wrong; also the program's own
  127    there is no such program
  128+n  signal n ended the launcher, or a process of it
  other  that of the process that failed first
"""


class UsageFault(Exception):  # noqa: N818  # what argparse calls an error ends the process
    """What is wrong with the command line, in words."""


def run() -> None:
    """The console script."""
    sys.exit(main(sys.argv))


def main(arguments: Sequence[str]) -> int:
    """Starts everything, and returns the exit status when all has ended."""
    try:
        options = parse(arguments)
    except UsageFault as fault:
        print(f"{PROGRAM}: error: {fault}\nSee {PROGRAM} --help.", file=sys.stderr)
        return _BAD_USAGE
    if options.hosts:
        print(commands_for_hosts(options))
        return 0
    program = shutil.which(options.command[0]) or shutil.which(options.command[0], path=_OWN_FOLDER)
    if program is None:
        print(
            f"{PROGRAM}: error: there is no program {options.command[0]!r} on PATH, nor in {_OWN_FOLDER}",
            file=sys.stderr,
        )
        return 127
    options.command[0] = program
    return _run_again_and_again(options)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The options, and the command that is to be started; UsageFault where they contradict each other."""
    options = parser().parse_args(arguments[1:])
    _check(options)
    return options


def commands_for_hosts(options: argparse.Namespace) -> str:
    """What to start where: a command of ssh for each host, in the same folder as here."""
    token = secrets.token_hex(16)
    addresses = tuple(f"{host}:{options.port}" for host in options.hosts)
    lines = [f"# {len(addresses)} processes; start all of them. Whoever knows the token can join: keep it to yourself."]
    for index, host in enumerate(options.hosts):
        launched = Launched(index, addresses, token, options.cores_per_process)
        own = f"cd {shlex.quote(os.getcwd())} && {MESHTF_LAUNCH}={shlex.quote(launched.to_text())} "
        lines.append(f"ssh {shlex.quote(host)} {shlex.quote(own + shlex.join(options.command))}")
    return "\n".join(lines)


def _run_again_and_again(options: argparse.Namespace) -> int:
    """Until it is done, or fails in vain, or has been started often enough."""
    wait = _FIRST_WAIT
    for restart in range(options.max_restarts + 1):
        ended = _run_once(options)
        if ended.status == 0 or ended.is_asked or ended.status in _NEVER_AGAIN or restart == options.max_restarts:
            return ended.status
        print(
            f"{PROGRAM}: start {restart + 1} of {options.max_restarts} again in {wait:g} s; training goes on from its "
            f"last checkpoint",
            file=sys.stderr,
            flush=True,
        )
        if (number := _signal_within(wait)) is not None:
            return 128 + number
        wait = min(2 * wait, _LONGEST_WAIT)
    raise AssertionError("the last start returns")


def _run_once(options: argparse.Namespace) -> Ended:
    token = secrets.token_hex(16)
    addresses = tuple(f"127.0.0.1:{port}" for port in free_ports(options.processes))
    launched = [Launched(i, addresses, token, options.cores_per_process) for i in range(options.processes)]
    return Job(options.command, launched, options.grace_seconds).run()


def _signal_within(seconds: float) -> int | None:
    """The signal that comes in this time, if one does."""
    came: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda number, _: came.append(number)) for number in numbers}
    end = time.monotonic() + seconds
    while not came and time.monotonic() < end:
        time.sleep(min(0.1, seconds))
    for number, handler in before.items():
        signal.signal(number, handler)
    return came[0] if came else None


def _check(options: argparse.Namespace) -> None:
    if options.command[:1] == ["--"]:
        del options.command[0]
    if not options.command:
        raise UsageFault("there is no command; it comes after --, as in: -- meshtf-train --gin_file=digits_mlp.gin")
    if options.command[0].startswith("-"):
        raise UsageFault(f"unknown flag {options.command[0]}; the command comes after --")
    if options.hosts is None and options.processes is None:
        raise UsageFault("--processes says how many to start here, or --hosts where to start one each; give one")
    if options.hosts is not None and options.processes is not None:
        raise UsageFault("--processes is for this machine, --hosts for others, one process each; give one of them")
    if options.hosts is not None and ("" in options.hosts or len(set(options.hosts)) < len(options.hosts)):
        raise UsageFault(f"--hosts={','.join(options.hosts)} has an empty name, or one twice")
    if options.hosts and options.max_restarts:
        raise UsageFault("--max_restarts is for processes on this machine; with --hosts nothing is started")
    for name, least in (("processes", 1), ("cores_per_process", 1), ("max_restarts", 0), ("port", 1)):
        value = getattr(options, name)
        if value is not None and value < least:
            raise UsageFault(f"--{name} must be at least {least}, and is {value}")
    if options.port > _LARGEST_PORT:
        raise UsageFault(f"--port must be at most {_LARGEST_PORT}, and is {options.port}")
    if not 0 <= options.grace_seconds < float("inf"):
        raise UsageFault(f"--grace_seconds must be 0 or more, and is {options.grace_seconds}")


def help_text() -> str:
    return parser().format_help()


def parser() -> argparse.ArgumentParser:
    """Of the launcher's own flags."""
    found = argparse.ArgumentParser(
        prog=PROGRAM,
        usage=f"{PROGRAM} --processes=N [--cores_per_process=N] [--max_restarts=N] -- COMMAND ...\n"
        f"       {PROGRAM} --hosts=A,B [--port=PORT] [--cores_per_process=N] -- COMMAND ...",
        description=f"{PROGRAM} {_DESCRIPTION}",
        epilog=textwrap.dedent(_EXAMPLES),
        formatter_class=functools.partial(argparse.RawDescriptionHelpFormatter, width=100),
        allow_abbrev=False,
    )
    add = found.add_argument
    add("--processes", type=int, metavar="N", help="how many to start on this machine")
    add(
        "--cores_per_process",
        type=int,
        metavar="N",
        help="of the mesh; by default what it has, divided by the processes. A mesh that has others is refused",
    )
    add(
        "--max_restarts",
        type=int,
        default=0,
        metavar="N",
        help="how often to start all again when one has failed, after 1 s, 2 s, 4 s, up to a minute; 0 by default. "
        "Not after a wrong flag or configuration, and not after a signal to the launcher",
    )
    add(
        "--grace_seconds",
        type=float,
        default=15.0,
        metavar="S",
        help="how long the others may take to end by themselves when one has failed, then SIGTERM, and as long again "
        "until SIGKILL; 15 by default",
    )
    add(
        "--hosts",
        type=lambda text: text.split(","),
        metavar="A,B",
        help="prints the ssh commands that start a process on each; nothing is started",
    )
    add("--port", type=int, default=4040, metavar="PORT", help="with --hosts, on each; 4040 by default")
    add("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return found


if __name__ == "__main__":
    run()
