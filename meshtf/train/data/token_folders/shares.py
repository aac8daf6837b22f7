"""The processes of a cluster make the tokens of shards in parallel, and pass them to process 0 through a folder.

With two processes, process 0 makes shards 0, 2 and 4, and process 1 makes 1, 3 and 5.
Process 1 writes each shard into a file of a shared folder, and then puts a key into the cluster's store. Process
0 waits for these keys, and takes all shards in order.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from meshtf.cluster.cluster import Cluster
from meshtf.errors import ClusterError
from meshtf.files.appearing import appears
from meshtf.files.replaced_file import replaced_file
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data._tokenized_text import ShardTokens, TextReader, TokenizedText
from meshtf.train.data.token_folders.workers import Shard

SECONDS_OF_WAITING = 60.0

NOT_SHARED = """\
{maker} has made {path}, which {other} does not see.
A folder of tokens must be on a disk that all processes share."""

_NOTHING_TO_MAKE = "made"
_NAMES = {False: "train", True: "held_out"}


@dataclasses.dataclass(frozen=True)
class Shares:
    """The share of each process: shard k is made by process k modulo the number of processes.

    Attributes:
      cluster: the processes. Each calls `take_all` or `make_own` once. Process 0 then calls `finish`.
      key: a key in the cluster's store, only for this object.
      folder: a folder on a shared disk. Process 0 makes it, and removes it at the end.
      say: is called with a line about a long wait.
    """

    cluster: Cluster
    key: str
    folder: Path
    say: Callable[[str], None]

    def take_all(self, reader: TextReader, shards: Iterable[Shard], first: int) -> Iterator[ShardTokens]:
        """Yields the tokens of each shard from number `first` on, in order. Process 0 calls it.

        Raises:
          ConfigurationError: as reading does, or if files of the others are not seen here.
          ProcessLostError: if another process has failed.
        """
        self.folder.mkdir()
        self.cluster.put(f"{self.key}/first", str(first))
        for number, (source, fraction) in itertools.islice(enumerate(shards), first, None):
            process = self._maker(number)
            if process == 0:
                yield reader.read_shard(source, fraction)
                continue
            self._wait(f"shard/{number}", f"waits for {self._name(process)}, which makes tokens of shard {number + 1}")
            path = self._path(number)
            if not appears(path):
                raise self._not_shared(process, path, 0)
            yield _read(path)
            path.unlink()
        self.folder.rmdir()

    def make_own(self, reader: TextReader, shards: Iterable[Shard]) -> None:
        """Makes this process's shards, and returns when the folder of tokens is complete. All processes but 0 call it.

        Raises:
          ConfigurationError: as reading does, or if the folder of process 0 is not seen here.
          ProcessLostError: if another process has failed.
        """
        first = self._wait("first", f"waits for {self._name(0)}, which begins the tokens")
        if first != _NOTHING_TO_MAKE:
            if not appears(self.folder):
                raise self._not_shared(0, self.folder, self.cluster.process_index)
            for number, (source, fraction) in itertools.islice(enumerate(shards), int(first), None):
                if self._maker(number) == self.cluster.process_index:
                    self._bring(number, reader.read_shard(source, fraction))
        self._wait("end", f"waits for {self._name(0)}, which makes the tokens")

    def nothing_to_make(self) -> None:
        """Tells the others that there is nothing to make. Process 0 calls it instead of `take_all`."""
        self.cluster.put(f"{self.key}/first", _NOTHING_TO_MAKE)

    def finish(self) -> None:
        """Lets the other processes continue. Process 0 calls it."""
        self.cluster.put(f"{self.key}/end", "")

    def _bring(self, number: int, tokens: ShardTokens) -> None:
        try:
            with replaced_file(self._path(number)) as file:
                arrays: dict[str, Any] = _arrays(tokens)  # NumPy's hints would take an array for its one flag
                np.savez(file, **arrays)
        except FileNotFoundError:  # process 0 has given up, and the wait below ends with its error
            self._wait("end", f"waits for {self._name(0)}, which has removed {self.folder}")
        self.cluster.put(f"{self.key}/shard/{number}", "")

    def _wait(self, what: str, line: str) -> str:
        """Waits for a key, however long it takes. A lost process ends it with a ProcessLostError."""
        while True:
            try:
                return self.cluster.get(f"{self.key}/{what}", SECONDS_OF_WAITING)
            except ClusterError:
                self.say(line)

    def _maker(self, number: int) -> int:
        return number % self.cluster.num_processes

    def _not_shared(self, maker: int, path: Path, other: int) -> ConfigurationError:
        return ConfigurationError(NOT_SHARED.format(maker=self._name(maker), path=path, other=self._name(other)))

    def _name(self, process: int) -> str:
        return f"process {process} ({self.cluster.addresses[process]})"

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:08d}.npz"


def _arrays(tokens: ShardTokens) -> dict[str, np.ndarray]:
    arrays = {"num_skipped": np.array(tokens.num_skipped)}
    for side, text in tokens.sides.items():
        name = _NAMES[side]
        arrays[f"{name}_bytes"] = np.array(text.num_bytes)
        for part, (ids, borders) in enumerate(zip(text.tokens, text.borders, strict=True)):
            arrays[f"{name}_tokens_{part}"] = np.asarray(ids[0 : len(ids)])
            arrays[f"{name}_borders_{part}"] = borders
    return arrays


def _read(path: Path) -> ShardTokens:
    with np.load(path) as arrays:
        num_parts = sum(name.startswith(f"{_NAMES[False]}_tokens_") for name in arrays)
        sides = {
            side: TokenizedText(
                tuple(arrays[f"{name}_tokens_{part}"] for part in range(num_parts)),
                tuple(arrays[f"{name}_borders_{part}"] for part in range(num_parts)),
                int(arrays[f"{name}_bytes"]),
            )
            for side, name in _NAMES.items()
        }
        return ShardTokens(sides, int(arrays["num_skipped"]))
