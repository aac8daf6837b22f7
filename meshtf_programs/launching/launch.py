"""meshtf-launch: starts all processes of one program, and ends them together."""

from __future__ import annotations

import argparse
import errno
import os
import secrets
import shutil
import sys
from collections.abc import Sequence

from meshtf_programs.exit_status import ExitStatus
from meshtf_programs.launching.command_line import PROGRAM, UsageFault, help_text, parse
from meshtf_programs.launching.free_ports import free_ports
from meshtf_programs.launching.job import Ended, Job
from meshtf_programs.launching.launched import Launched
from meshtf_programs.launching.restarts import BAD_USAGE, Restarts
from meshtf_programs.launching.ssh import Host
from meshtf_programs.launching.started_process import Here, Starter, There
from meshtf_programs.nearest import nearest
from meshtf_programs.standard_streams import print_text

__all__ = ["PROGRAM", "help_text", "main", "run"]

_NOT_STARTED, _NO_PROGRAM = 126, 127
_OWN_FOLDER = os.path.dirname(sys.executable)
"""The folder of meshtf's programs. It may be missing from PATH if their environment is not activated."""


def run() -> None:
    """The console script."""
    sys.exit(main(sys.argv))


def main(arguments: Sequence[str]) -> int:
    """Starts everything, and returns the exit status when all has ended."""
    try:
        options = parse(arguments)
    except UsageFault as fault:
        return _complain(f"{fault}\nSee {PROGRAM} --help.", BAD_USAGE)
    hosts = [Host(name, os.getcwd(), _OWN_FOLDER) for name in options.hosts or ()]
    if hosts and not options.ssh:
        return print_text(commands_for_hosts(options, hosts))
    program = "ssh" if hosts else options.command[0]
    found = shutil.which(program) or (None if hosts else shutil.which(program, path=_OWN_FOLDER))
    if found is None and (file := shutil.which(program, mode=os.F_OK)) is not None:
        return _complain(f"{file} may not be executed; if it is a program, chmod +x permits it", _NOT_STARTED)
    if found is None:
        places = "on PATH" if hosts else f"on PATH, nor in {_OWN_FOLDER}{nearest(program, os.listdir(_OWN_FOLDER))}"
        return _complain(f"there is no program {program!r} {places}", _NO_PROGRAM)
    starters: list[Starter] = [There(found, host) for host in hosts] or [Here()] * options.processes
    command = options.command if hosts else [found, *options.command[1:]]
    restarts = Restarts(len(starters), options.max_restarts, is_elastic=options.elastic)
    try:
        return restarts.run(lambda left: run_once(options, command, [starters[i] for i in left]))
    except OSError as error:
        return _complain(_why_not_started(error, found, len(starters)), _NOT_STARTED)
    except KeyboardInterrupt:  # between two starts
        return _complain("interrupted", ExitStatus.INTERRUPTED)


def _why_not_started(error: OSError, program: str, number: int) -> str:
    if error.errno in (errno.ENOEXEC, errno.ENOENT):
        hint = "The first line of a script must name an interpreter that is on this machine, as in #!/bin/sh"
        return f"{program} cannot be started: {error.strerror}. {hint}"
    return f"{number} processes of {program} cannot be started: {error.strerror}"


def _complain(message: str, status: int) -> int:
    print(f"{PROGRAM}: error: {message}", file=sys.stderr)
    return status


def run_once(options: argparse.Namespace, command: Sequence[str], starters: Sequence[Starter]) -> Ended:
    """Runs all processes from start to end, with a new secret token."""
    token, number = secrets.token_hex(16), len(starters)
    ports = [options.port] * number if options.hosts else free_ports(number)
    addresses = tuple(starter.address(port) for starter, port in zip(starters, ports, strict=True))
    launched = [Launched(i, addresses, token, options.cores_per_process) for i in range(number)]
    ended = Job(command, launched, starters, options.grace_seconds).run()
    for words in ended.words:
        print(f"{PROGRAM}: {words}", file=sys.stderr, flush=True)
    return ended


def commands_for_hosts(options: argparse.Namespace, hosts: Sequence[Host]) -> str:
    """Returns lines with the commands to type by hand: one ssh command for each host, in the same folder as here."""
    token = secrets.token_hex(16)
    addresses = tuple(host.address(options.port) for host in hosts)
    lines = [f"# {len(hosts)} processes; start all of them. Whoever knows the token can join: keep it to yourself."]
    for index, host in enumerate(hosts):
        launched = Launched(index, addresses, token, options.cores_per_process)
        lines.append(host.command_by_hand(options.command, launched))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    run()
