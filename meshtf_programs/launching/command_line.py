"""The flags of meshtf-launch, and their checks."""

from __future__ import annotations

import argparse
import functools
import sys
import textwrap
from collections.abc import Sequence
from typing import Any, NoReturn

from meshtf_programs.addresses import LARGEST_PORT, AddressFault, bare_host
from meshtf_programs.launching.launched import MESHTF_LAUNCH
from meshtf_programs.nearest import nearest
from meshtf_programs.standard_streams import print_text

PROGRAM = "meshtf-launch"
_PORT = 4040

_DESCRIPTION = """\
starts a program as several processes that share one mesh, on this machine or, with --hosts and --ssh,
on others. All processes run the command after --. When one fails, {program} ends the others and returns its status."""

_EXAMPLES = f"""\
examples:
  {PROGRAM} --processes=2 --cores_per_process=4 -- meshtf-train --gin_file=digits_mlp.gin
  {PROGRAM} --processes=4 --max_restarts=10 -- meshtf-train --gin_file=lm_tiny.gin --mesh_shape='rows:4;cols:2'
  {PROGRAM} --processes=4 --max_restarts=9 --elastic -- meshtf-train --gin_file=lm_tiny.gin --mesh_shape='rows:*;cols:2'
  {PROGRAM} --hosts=10.0.0.1,10.0.0.2 --ssh -- meshtf-train --gin_file=lm_tiny.gin --model_dir=/shared/lm_tiny
  {PROGRAM} --processes=2 -- python my_program.py   # which calls mtf.initialize_cluster()

The variable {MESHTF_LAUNCH} tells each process of the others. meshtf's programs and mtf.initialize_cluster() read it.
TensorFlow's servers listen on every address of this machine: keep it in a private network.

exit status:
  0      all processes are done
  2      a flag or the configuration is wrong; also the program's own
  4      the help or the commands cannot be written: the disk is full
  126    the processes cannot be started: the program may not be executed, or they are too many
  127    there is no such program
  255    ssh did not reach a host
  128+n  signal n ended the launcher, or a process of it
  other  the status of the process that failed first
"""


class UsageFault(Exception):  # noqa: N818  # what argparse calls an error ends the process
    """An error in the command line, in words."""


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Returns the options, and the command to start. Raises UsageFault if they are wrong or contradict each other."""
    found = parser()
    options, unknown = found.parse_known_args(arguments[1:])
    if unknown:
        name = unknown[0].partition("=")[0]
        raise UsageFault(f"unknown flag {name}{nearest(name, found.known_flags)}")
    _check(options)
    options.port = options.port or _PORT
    return options


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
    if options.hosts is not None:
        options.hosts = _ssh_names(options.hosts)
    if options.hosts and options.max_restarts and not options.ssh:
        raise UsageFault("--max_restarts with --hosts needs --ssh; without it nothing is started")
    if options.ssh and not options.hosts:
        raise UsageFault("--ssh starts processes on the hosts that --hosts=A,B names; give them")
    if options.elastic and not options.max_restarts:
        raise UsageFault("--elastic needs --max_restarts=N, which is 0")
    if options.port is not None and not options.hosts:
        raise UsageFault("--port is for --hosts; processes on this machine get free ports")
    for name, least in (("processes", 1), ("cores_per_process", 1), ("max_restarts", 0), ("port", 1)):
        value = getattr(options, name)
        if value is not None and value < least:
            raise UsageFault(f"--{name} must be at least {least}, and is {value}")
    if options.port is not None and options.port > LARGEST_PORT:
        raise UsageFault(f"--port must be at most {LARGEST_PORT}, and is {options.port}")
    if not 0 <= options.grace_seconds < float("inf"):
        raise UsageFault(f"--grace_seconds must be 0 or more, and is {options.grace_seconds}")


def _ssh_names(text: str) -> list[str]:
    """Returns the hosts of --hosts as ssh takes them: `user@2001:db8::1` for `user@[2001:db8::1]`."""
    names = []
    for given in text.split(","):
        user, at, host = given.rpartition("@")
        try:
            names.append(f"{user}{at}{bare_host(host)}")
        except AddressFault as fault:
            raise UsageFault(f"--hosts={text}: {fault}. Give hosts without ports; --port=N is for all") from None
    if len(set(names)) < len(names):
        raise UsageFault(f"--hosts={text} names a host twice")
    return names


def help_text() -> str:
    return parser().format_help()


class _Parser(argparse.ArgumentParser):
    """Raises UsageFault for what argparse would print before it ends the process."""

    def error(self, message: str) -> NoReturn:
        raise UsageFault(message.removeprefix("argument "))

    def print_help(self, file: object = None) -> NoReturn:
        """Prints the help, and ends the process, with another status if the output cannot be written."""
        del file
        sys.exit(print_text(self.format_help()))

    @property
    def known_flags(self) -> list[str]:
        return list(self._option_string_actions)


class _Once(argparse.Action):
    """Stores the value of a flag that is given at most once."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        given = vars(namespace).setdefault("given", set())
        if self.dest in given:
            raise UsageFault(f"{option_string} is given more than once, but takes one value")
        given.add(self.dest)
        setattr(namespace, self.dest, values)


def parser() -> _Parser:
    """Returns the parser of the launcher's own flags."""
    found = _Parser(
        prog=PROGRAM,
        usage=f"{PROGRAM} --processes=N [--cores_per_process=N] [--max_restarts=N [--elastic]] -- COMMAND ...\n"
        f"       {PROGRAM} --hosts=A,B [--ssh] [--port=PORT] [--cores_per_process=N] -- COMMAND ...",
        description=f"{PROGRAM} {_DESCRIPTION.format(program=PROGRAM)}",
        epilog=textwrap.dedent(_EXAMPLES),
        formatter_class=functools.partial(argparse.RawDescriptionHelpFormatter, width=100),
        allow_abbrev=False,
    )
    add = found.add_argument
    add("--processes", action=_Once, type=int, metavar="N", help="the number of processes to start on this machine")
    add(
        "--cores_per_process",
        action=_Once,
        type=int,
        metavar="N",
        help="the mesh's cores in each process; by default its cores divided by the processes. A "
        "mesh with another number is refused",
    )
    add(
        "--max_restarts",
        action=_Once,
        type=int,
        default=0,
        metavar="N",
        help="how often to start all processes again when one has failed, after 1 s, 2 s, 4 s, up to a minute; 0 by "
        "default. A wrong flag or configuration, or a signal to the launcher, starts none again",
    )
    add(
        "--elastic",
        action="store_true",
        help="starts again with the processes that are left: not the ones that a signal ended, that had to be ended, "
        "or whose host was not reached. Starts fewer if these do not fit the mesh, and all if none is left",
    )
    add(
        "--grace_seconds",
        action=_Once,
        type=float,
        default=15.0,
        metavar="S",
        help="the seconds that the others have to end by themselves when one has failed. Then they get SIGTERM, and "
        "after as many seconds again SIGKILL; 15 by default",
    )
    add(
        "--hosts",
        action=_Once,
        metavar="A,B",
        help="the hosts, with one process on each, as ssh knows them, such as node7, me@10.0.0.1 or [2001:db8::1]; "
        "prints the commands of ssh, and starts nothing",
    )
    add(
        "--ssh",
        action="store_true",
        help="starts them by ssh, in a folder of the same name as this one. ssh must need no password",
    )
    add(
        "--port",
        action=_Once,
        type=int,
        metavar="PORT",
        help=f"with --hosts, the port on each host; {_PORT} by default",
    )
    add("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return found
