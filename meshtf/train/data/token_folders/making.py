"""Opens folders of tokens, and makes those that are missing."""

from __future__ import annotations

import dataclasses
import itertools
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from meshtf.cluster.cluster import Cluster
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data._tokenized_text import ShardTokens, TextReader, TextSplit, check_sides
from meshtf.train.data.sources.document import Source
from meshtf.train.data.sources.files_state import files_state
from meshtf.train.data.sources.shards import shards_of
from meshtf.train.data.token_folders.manifest import MANIFEST, SIDES, Manifest
from meshtf.train.data.token_folders.shares import Shares
from meshtf.train.data.token_folders.token_writer import TokenWriter, nothing_yet, partial_folder
from meshtf.train.data.token_folders.workers import Shard, tokens_of

SECONDS_BETWEEN_LINES = 10.0
SHARES = "shares"
"""A folder inside the unfinished one, with the shards that other processes make for the process that writes."""

_FILES, _HELD_OUT_FILES = "files of the source", "files that are held out"


@dataclasses.dataclass(frozen=True)
class TokenFolder:
    """The tokens of a text, on disk.

    Attributes:
      path: the folder.
      reader: makes the tokens.
      source: the text.
      held_out: the share of the documents that is held out, or a source of its own.
    """

    path: Path
    reader: TextReader
    source: Source
    held_out: float | Source

    @property
    def is_made(self) -> bool:
        return (self.path / MANIFEST).is_file()

    def open(self) -> TextSplit:
        """Opens the folder. This reads where documents end, but no tokens.

        Raises:
          ConfigurationError: if it is missing, damaged, or made of something else.
        """
        return self.manifest().open(self.path)

    def manifest(self) -> Manifest:
        """Reads the manifest, and checks that it is made of this text.

        Raises:
          ConfigurationError: if there is none, or one of something else.
        """
        manifest = Manifest.read(self.path / MANIFEST)
        manifest.check_made_of(self._made_of(manifest.made_of), self.path)
        return manifest

    def made_by_all(self, cluster: Cluster | None, say: Callable[[str], None]) -> TextSplit:
        """Opens the folder. If it is missing, the processes of a cluster first make it together.

        Raises:
          ConfigurationError: as `make`; in a cluster also if some process does not see the files of another.
          ProcessLostError: if another process has failed.
        """
        if cluster is None:
            if not self.is_made:
                self.make(1, say)
            return self.open()
        shares = Shares(cluster, cluster.meeting(f"tokens {self.path}"), partial_folder(self.path) / SHARES, say)
        if not cluster.is_leader:
            shares.make_own(self.reader, self._shards())
            return self.open()
        if self.is_made:
            shares.nothing_to_make()
        else:
            self._make(lambda first: shares.take_all(self.reader, self._shards(), first), say)
        shares.finish()
        return self.open()

    def make(self, num_processes: int, say: Callable[[str], None]) -> None:
        """Makes the folder, or continues where that was interrupted.

        Args:
          num_processes: how many processes of this machine encode in parallel.
          say: is called with lines about the progress.

        Raises:
          ConfigurationError: as `TextReader.read`. The unfinished folder is then deleted.
          OSError: if it cannot be written. The written part is kept, to be continued.
        """
        self._make(
            lambda first: tokens_of(self.reader, itertools.islice(self._shards(), first, None), num_processes), say
        )

    def _make(self, tokens_from: Callable[[int], Iterator[ShardTokens]], say: Callable[[str], None]) -> None:
        """Makes the folder. `tokens_from`: returns the tokens of each shard, in order, from a number on."""
        vocabulary, num_parts = self.reader.vocabulary, self.reader.objective.num_parts
        dtype = str(self.reader.dtype)
        writer = TokenWriter(
            self.path, Manifest(self._made_of(), dtype, vocabulary.size, num_parts, nothing_yet(num_parts))
        )
        shutil.rmtree(partial_folder(self.path) / SHARES, ignore_errors=True)  # left by an interrupted start
        done = writer.contents.num_shards
        say(f"makes the tokens {self.path} of {self.source}" + (f", from shard {done + 1:,} on" if done else ""))
        try:
            _append_all(writer, tokens_from(done), say)
            train, held_out = (writer.contents.documents[side] for side in SIDES)
            check_sides({False: train, True: held_out}, self.source, self.held_out, writer.contents.num_skipped)
        except ConfigurationError:
            writer.give_up()
            raise
        except BaseException:
            writer.close()
            raise
        writer.finish()

    def _shards(self) -> Iterator[Shard]:
        if not isinstance(self.held_out, Source):
            yield from ((shard, self.held_out) for shard in shards_of(self.source))
            return
        for source, fraction in ((self.source, 0.0), (self.held_out, 1.0)):
            yield from ((shard, fraction) for shard in shards_of(source))

    def _made_of(self, known: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Returns everything that determines the tokens.

        Files that are gone by now are None, since the folder has their tokens. Files whose state is the same as in
        `known` are not read.
        """
        held_out, known = self.held_out, known or {}
        return {
            "source": repr(self.source),
            _FILES: files_state(self.source, known.get(_FILES)),
            "held_out": repr(held_out) if isinstance(held_out, Source) else float(held_out),
            _HELD_OUT_FILES: (
                files_state(held_out, known.get(_HELD_OUT_FILES)) if isinstance(held_out, Source) else None
            ),
            "vocabulary": self.reader.vocabulary.fingerprint,
            "texts in a document": self.reader.parts_in_words,
            "skip_undecodable": self.reader.skip_undecodable,
        }


def _append_all(writer: TokenWriter, shards: Iterator[ShardTokens], say: Callable[[str], None]) -> None:
    began = last = time.monotonic()
    bytes_before = sum(writer.contents.text_bytes.values())
    for tokens in shards:
        train, held_out = tokens.sides[False], tokens.sides[True]
        writer.append(dict(zip(SIDES, (train, held_out), strict=True)), tokens.num_skipped)
        if time.monotonic() - last >= SECONDS_BETWEEN_LINES:
            last = time.monotonic()
            num_bytes = sum(writer.contents.text_bytes.values())
            speed = (num_bytes - bytes_before) / (last - began)
            say(f"tokens: {num_bytes / 1e6:,.0f} MB of text done, {speed / 1e6:,.1f} MB/s")
