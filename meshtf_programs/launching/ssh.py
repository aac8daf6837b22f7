"""The script that ssh runs on a host, and the meanings of ssh's failures."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence

from meshtf_programs.addresses import Address
from meshtf_programs.launching.launched import MESHTF_LAUNCH, Launched

UNREACHABLE = 255
"""The exit status of ssh if ssh itself failed, and not the command."""

_OPTIONS = (
    "-T",
    "-o", "BatchMode=yes",  # nobody is there to type a password
    "-o", "ConnectTimeout=10",
    "-o", "ServerAliveInterval=5",
    "-o", "ServerAliveCountMax=6",
)  # fmt: skip

_REMOTE = f"""\
cd "$1" || exit 2
PATH=$PATH:$2
shift 2
IFS= read -r {MESHTF_LAUNCH} || exit 1
export {MESHTF_LAUNCH} PATH PYTHONUNBUFFERED=1
exec 3<&0
setsid "$@" </dev/null 3<&- &
command=$!
{{
  while read -r name; do kill -s "$name" -- "-$command"; done
  kill -s KILL -- "-$command" "$command"
}} <&3 >/dev/null 2>&1 &
watcher=$!
wait "$command" 2>/dev/null
status=$?
kill "$watcher" 2>/dev/null
exit "$status"
"""
"""A script that reads the variable for the command, starts it in a session of its own, and passes on signals, each as a
name in a line."""

_KEY_REFUSED = """\
the host does not accept your key. Give it yours (ssh-copy-id {host}), or load it (ssh-add): meshtf-launch does not \
ask for a password"""
_UNKNOWN_KEY = "the host's own key is not known. Log in once by hand, ssh {host}, and accept it"
_NO_NAME = "there is no host of this name"
_NOT_REACHED = "is the host up, and does this work: ssh -o BatchMode=yes {host} true"

_MEANINGS = {
    "permission denied": _KEY_REFUSED,
    "too many authentication failures": _KEY_REFUSED,
    "host key verification failed": _UNKNOWN_KEY,
    "could not resolve hostname": _NO_NAME,
}


@dataclasses.dataclass(frozen=True)
class Host:
    """A host that ssh reaches.

    Attributes:
      name: its name, as `node7`, `user@node7` or `user@2001:db8::1`. ssh takes no brackets.
      folder: the folder in which the command runs.
      programs: a folder in which the host looks for the command, after its own PATH.
    """

    name: str
    folder: str
    programs: str

    def address(self, port: int) -> str:
        """Returns the address at which other processes reach a process on this host."""
        return str(Address(self.name.rpartition("@")[2], port))

    def arguments(self, command: Sequence[str]) -> list[str]:
        """Returns the arguments for ssh."""
        remote = shlex.join(["sh", "-c", _REMOTE, "meshtf-launch", self.folder, self.programs, *command])
        return [*_OPTIONS, "--", self.name, f"exec {remote}"]

    def command_by_hand(self, command: Sequence[str], launched: Launched) -> str:
        """Returns the complete command, for the user to run in a shell."""
        told = f"cd {shlex.quote(self.folder)} && {MESHTF_LAUNCH}={shlex.quote(launched.to_text())} "
        return f"ssh {shlex.quote(self.name)} {shlex.quote(told + shlex.join(command))}"


def why_unreachable(host: Host, last_line: str) -> str:
    """Returns the meaning of ssh's last line, and what to do."""
    meaning = next((text for words, text in _MEANINGS.items() if words in last_line.lower()), _NOT_REACHED)
    name = shlex.quote(host.name)
    return f"ssh to {host.name} failed{f' ({last_line})' if last_line else ''}: {meaning.format(host=name)}"
