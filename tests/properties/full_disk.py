"""Everything that meshtf writes, on a disk that is full after any number of bytes.

A limit on the size of files (setrlimit) ends each write where it is reached, in Python and in TensorFlow alike.
"""

from __future__ import annotations

import contextlib
import dataclasses
import resource
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np

from meshtf.checkpoint.checkpoint_paths import open_source, write_to
from meshtf.checkpoint.formats.npz_file import write_npz
from meshtf.checkpoint.formats.safetensors_file import write_safetensors
from meshtf.checkpoint.formats.tensor_source import TensorSource, write_source
from meshtf.checkpoint.reading.saved_checkpoint import SavedCheckpoint
from meshtf.errors import MeshtfError
from meshtf.train import RunFolder
from meshtf.train.data import TextFiles
from meshtf.train.data.vocabularies.train_sentencepiece import train_sentencepiece
from meshtf.train.monitoring.metrics import MetricsLog

_UNLIMITED = resource.RLIM_INFINITY


@dataclasses.dataclass(frozen=True)
class Writer:
    """Something that is written.

    Attributes:
      write: writes it into a folder, over what is there; may read the source beside the folder.
      check: fails if what is in the folder cannot be read.
      step: between the numbers of bytes that are tried.
    """

    write: Callable[[Path], object]
    check: Callable[[Path], object] = lambda folder: None
    step: int = 1


def _source(folder: Path) -> TensorSource:
    return open_source(folder.parent / "source.npz")


def _converted(name: str) -> Callable[[Path], object]:
    return lambda folder: write_to(_source(folder), folder / name)


def _log(folder: Path) -> None:
    MetricsLog(folder / "metrics.jsonl", last_step=2).write(3, {"loss": 0.25})


def _vocabulary(folder: Path) -> None:
    train_sentencepiece(TextFiles(str(folder.parent / "a.txt")), folder / "a.model", 280)


WRITERS: dict[str, Writer] = {
    "checkpoint": Writer(
        lambda folder: write_source(_source(folder), folder / "step_00000003"),
        lambda folder: SavedCheckpoint.open(folder / "step_00000003").verify(),
        step=7,
    ),
    "npz": Writer(lambda folder: write_npz(_source(folder), folder / "a.npz"), step=3),
    "safetensors": Writer(lambda folder: write_safetensors(_source(folder), folder / "a.safetensors"), step=3),
    "converted npz": Writer(_converted("b.npz"), step=97),
    "converted safetensors": Writer(_converted("b.safetensors"), step=97),
    "converted checkpoint": Writer(_converted("b"), step=97),
    "metrics": Writer(_log),
    "versions": Writer(lambda folder: RunFolder(folder).write_versions()),
    "vocabulary": Writer(_vocabulary, step=997),
}


def faults_of(name: str) -> list[str]:
    """What was not as before, or not an error that names the file, of all sizes of disks."""
    writer, faults = WRITERS[name], []
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with tempfile.TemporaryDirectory() as parent:
        source, folder = Path(parent) / "source.npz", Path(parent) / "folder"
        arrays = {"w": np.arange(300, dtype=np.float32), "b": np.ones(2), "step": np.array(3)}
        np.savez(source, **arrays)
        folder.mkdir()
        (Path(parent) / "a.txt").write_text("Some text, of some words, to make some pieces of.\n" * 20)
        is_replaced = not name.startswith("converted")
        if is_replaced:
            MetricsLog(folder / "metrics.jsonl", last_step=2).write(2, {"loss": 0.5})
            writer.write(folder)
        before, largest = _contents(folder), 0
        for limit in range(0, 2**24, writer.step):
            error = _error(writer, folder, limit)
            if error is None:
                largest = limit
                break
            if not isinstance(error, MeshtfError | OSError) or str(folder) not in str(error):
                faults.append(f"{name}, {limit} bytes: {type(error).__name__}: {error}")
            if name != "metrics" and _contents(folder) != before:
                faults.append(f"{name}, {limit} bytes: {sorted(_contents(folder))} were {sorted(before)}, or changed")
            if is_replaced:
                writer.check(folder)
        if not largest:
            faults.append(f"{name} was never written")
        writer.write(folder) if is_replaced else None
    return faults


def _error(writer: Writer, folder: Path, limit: int) -> BaseException | None:
    with _disk_of(limit):
        try:
            writer.write(folder)
        except Exception as error:
            return error
    return None


@contextlib.contextmanager
def _disk_of(num_bytes: int) -> Iterator[None]:
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, _UNLIMITED))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (_UNLIMITED, _UNLIMITED))


def _contents(folder: Path) -> Mapping[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def main() -> None:
    """Of one kind, or all."""
    for name in sys.argv[1:] or WRITERS:
        faults = faults_of(name)
        print(f"{name}: {len(faults)} are wrong", *faults[:10], sep="\n  ", flush=True)


if __name__ == "__main__":
    main()
