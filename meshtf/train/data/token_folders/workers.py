"""Processes that make the tokens of shards."""

from __future__ import annotations

import contextlib
import multiprocessing
import pickle
import signal
import traceback
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, TypeAlias

from meshtf.errors import ExecutionError
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data._tokenized_text import ShardTokens, TextReader
from meshtf.train.data.sources.document import Source

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

Shard: TypeAlias = "tuple[Source, float]"
"""A source of documents, and the share of them that is held out."""

DIED = """\
a process that makes tokens has died (exit code {code}); was there enough memory for {count}?
The same command continues where this one stopped; --processes=N uses fewer processes."""

NO_PICKLE = """\
the source, the vocabulary or the objective cannot be given to other processes: {error}
Define their classes in a module, or give --processes=1."""

_Answer: TypeAlias = "tuple[ShardTokens | None, ConfigurationError | None, str]"


def tokens_of(reader: TextReader, shards: Iterable[Shard], num_processes: int) -> Iterator[ShardTokens]:
    """Yields the tokens of each shard, in order.

    The shards go to the processes in turn, one shard at a time. So no process waits for more than the one before it.

    Raises:
      ConfigurationError: as reading does in any process, or if something cannot be pickled.
      ExecutionError: if a process has died, or failed in code of this library or of the user's.
    """
    if num_processes == 1:
        yield from (reader.read_shard(source, fraction) for source, fraction in shards)
        return
    with _workers(reader, num_processes) as workers:
        waiting = 0
        number = -1
        for number, shard in enumerate(shards):
            worker = workers[number % num_processes]
            if number >= num_processes:
                yield worker.answer()
                waiting -= 1
            worker.ask(shard)
            waiting += 1
        for later in range(number + 1 - waiting, number + 1):
            yield workers[later % num_processes].answer()


class _Worker:
    def __init__(self, process: BaseProcess, connection: Connection, count: int) -> None:
        self._process, self._connection, self._count = process, connection, count

    def ask(self, shard: Shard) -> None:
        try:
            self._connection.send_bytes(_pickled(shard))
        except (BrokenPipeError, ConnectionResetError):
            raise self._death() from None

    def answer(self) -> ShardTokens:
        try:
            tokens, error, text = self._connection.recv()
        except (EOFError, ConnectionResetError):
            raise self._death() from None
        if error is not None:
            raise error
        if tokens is None:
            raise ExecutionError(f"a process that makes tokens has failed:\n{text}")
        return tokens

    def end(self) -> None:
        """Ends the process, which reads the end of its requests, or fails to answer."""
        self._connection.close()
        self._process.join()

    def _death(self) -> ExecutionError:
        self._process.join()
        return ExecutionError(DIED.format(code=self._process.exitcode, count=self._count))


@contextlib.contextmanager
def _workers(reader: TextReader, count: int) -> Iterator[list[_Worker]]:
    """Yields new processes. They are forked from one that has only imported this module, so they do not inherit
    TensorFlow's threads.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    pickled = _pickled(reader)
    with contextlib.ExitStack() as stack:
        workers = []
        for _ in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=work, args=(theirs, pickled), daemon=True)
            process.start()
            theirs.close()  # then only the process holds that end, so its death is noticed here
            workers.append(_Worker(process, ours, count))
            stack.callback(workers[-1].end)
        yield workers


def work(connection: Connection, pickled_reader: bytes) -> None:
    """Answers requests in a process of its own, until the connection ends, for example because the requesting
    process was killed.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the requesting process handles Ctrl-C
    reader = pickle.loads(pickled_reader)
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            connection.send(_answer(reader, connection.recv_bytes()))


def _answer(reader: TextReader, pickled_shard: bytes) -> _Answer:
    try:
        source, fraction = pickle.loads(pickled_shard)
        return reader.read_shard(source, fraction), None, ""
    except ConfigurationError as error:
        return None, ConfigurationError(str(error)), ""
    except Exception:
        return None, None, traceback.format_exc()


def _pickled(value: object) -> bytes:
    try:
        return pickle.dumps(value)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ConfigurationError(NO_PICKLE.format(error=error)) from error
