"""Files of every kind that meshtf reads, each with one bit flipped at a random place: a right result, or a named error.

`python -m tests.properties.flipped_bytes SEED [KIND]` runs them again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import json
import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gin
import numpy as np
import tensorflow as tf

from meshtf.checkpoint.checkpoint_paths import open_source, write_to
from meshtf.checkpoint.manifest import MANIFEST
from meshtf.checkpoint.reading.saved_checkpoint import SavedCheckpoint
from meshtf.errors import MeshtfError
from meshtf.train.configuration import read_configuration
from meshtf.train.data import SentencePieceVocabulary, TextFiles, TfRecords
from meshtf.train.data.vocabularies.train_sentencepiece import train_sentencepiece
from meshtf.train.decoding.prompt_text import lines_of
from meshtf.train.monitoring.metrics import MetricsLog, read_metrics
from meshtf.train.runs._foreign_configuration import check_foreign

ARRAYS = {
    "decoder/w": np.arange(240, dtype=np.float32).reshape(20, 12),
    "decoder/b": np.linspace(0, 1, 12, dtype=np.float64),
    "step": np.array(7, np.int64),
}
TEXT = "Ein Text, größer als ASCII: naïve façade.\n\nA second paragraph, and a third.\n" * 8
INDEX, DATA = "variables.index", "variables.data-00000-of-00001"


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of file.

    Attributes:
      write: writes whole ones into a folder; gives the one in which bits are flipped.
      read: reads it, to the end.
      is_checked: whether it has checksums, so that what is read is what was written. Of others any flip of a value
        gives a file that is as good.
      repair: what one who changes a file on purpose does afterwards, such as giving it the right checksum.
    """

    write: Callable[[Path], Path]
    read: Callable[[Path], Any]
    is_checked: bool = True
    repair: Callable[[Path], None] | None = None


def _npz(folder: Path, compression: bool = False) -> Path:
    (np.savez_compressed if compression else np.savez)(folder / "a.npz", **ARRAYS)
    return folder / "a.npz"


def _safetensors(folder: Path) -> Path:
    write_to(open_source(_npz(folder)), folder / "a.safetensors")
    return folder / "a.safetensors"


def _checkpoint(name: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        write_to(open_source(_npz(folder)), folder / "step_00000007")
        return folder / "step_00000007" / name

    return write


def _values(path: Path) -> dict[str, tuple[str, bytes]]:
    source = open_source(path)
    return {name: (str(tensor), source.read(name).numpy().tobytes()) for name, tensor in source.tensors.items()}


def _verified(path: Path) -> dict[str, tuple[str, bytes]]:
    SavedCheckpoint.open(path.parent).verify()
    return _values(path.parent)


def _sign(path: Path) -> None:
    """Gives a manifest the checksum of what it says."""
    content = path.read_bytes()[len(b'{"content":') : -len(b',"sha256":""}\n') - 64]
    digest = hashlib.sha256(content).hexdigest().encode()
    path.write_bytes(b'{"content":' + content + b',"sha256":"' + digest + b'"}\n')


def _sign_index(path: Path) -> None:
    """Gives a checkpoint the checksum of its index."""
    manifest = path.with_name(MANIFEST)
    content = json.loads(manifest.read_text())
    content["content"]["files"][INDEX]["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    manifest.write_text(json.dumps(content, sort_keys=True, separators=(",", ":")) + "\n")
    _sign(manifest)


def _tfrecord(compression: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        with tf.io.TFRecordWriter(str(folder / "1.tfrecord"), compression) as writer:
            for line in TEXT.encode().splitlines():
                feature = tf.train.Feature(bytes_list=tf.train.BytesList(value=[line]))
                example = tf.train.Example(features=tf.train.Features(feature={"text": feature}))
                writer.write(example.SerializeToString())
        return folder / "1.tfrecord"

    return write


def _records(compression: str) -> Callable[[Path], Any]:
    return lambda path: list(TfRecords(str(path), compression=compression).documents())  # type: ignore[arg-type]


def _text(folder: Path) -> Path:
    (folder / "a.txt").write_text(TEXT)
    return folder / "a.txt"


def _paragraphs(path: Path) -> Any:
    return [document.content for document in TextFiles(str(path), "paragraph").documents()]


def _vocabulary(folder: Path) -> Path:
    train_sentencepiece(TextFiles(str(_text(folder))), folder / "a.model", 290)
    return folder / "a.model"


def _encoded(path: Path) -> Any:
    vocabulary = SentencePieceVocabulary(str(path), extra_ids=3)
    ids = vocabulary.encode(TEXT)
    return ids, vocabulary.decode(ids), vocabulary.num_bytes(ids), vocabulary.size


def _metrics(folder: Path) -> Path:
    log = MetricsLog(folder / "metrics.jsonl")
    for step in range(1, 20):
        log.write(step, {"loss": 1 / step, "held_out_loss": 2 / step}, {"load": np.array([0.1, 0.9])})
    return folder / "metrics.jsonl"


_GIN = """\
import meshtf.models.mlp_classifier
import meshtf.train.digits
Training.model = @MLPClassifier()
Training.task = @digits()
Training.num_steps = 3
MLPClassifier.hidden_sizes = (8, 16)
SIZE = {"a": [1, 2.5, None], "b": "text"}
"""


def _gin(folder: Path) -> Path:
    (folder / "operative_config.gin").write_text(_GIN)
    return folder / "operative_config.gin"


def _configured(path: Path) -> Any:
    try:
        check_foreign(path)
        read_configuration([path], [])
    finally:
        gin.clear_config()


KINDS: dict[str, Kind] = {
    "manifest": Kind(_checkpoint(MANIFEST), _verified),
    "signed manifest": Kind(_checkpoint(MANIFEST), _verified, is_checked=False, repair=_sign),
    "index": Kind(_checkpoint(INDEX), _verified),
    "signed index": Kind(_checkpoint(INDEX), _verified, repair=_sign_index),
    "data": Kind(_checkpoint(DATA), _verified),
    "checkpoint": Kind(_checkpoint("checkpoint"), _verified),
    "npz": Kind(_npz, _values, is_checked=False),
    "compressed npz": Kind(lambda folder: _npz(folder, compression=True), _values, is_checked=False),
    "safetensors": Kind(_safetensors, _values, is_checked=False),
    "TFRecord": Kind(_tfrecord(""), _records("")),
    "TFRecord in gzip": Kind(_tfrecord("GZIP"), _records("GZIP")),
    "TFRecord in zlib": Kind(_tfrecord("ZLIB"), _records("ZLIB")),
    "text": Kind(_text, _paragraphs, is_checked=False),
    "prompts": Kind(_text, lambda path: lines_of(path.read_bytes(), str(path)), is_checked=False),
    "vocabulary": Kind(_vocabulary, _encoded, is_checked=False),
    "metrics": Kind(_metrics, read_metrics, is_checked=False),
    "configuration": Kind(_gin, _configured, is_checked=False),
}

FLIPS = 100


def faults_of(name: str, seed: int) -> list[str]:
    """What was neither right nor a named error, of FLIPS flips in a file of a kind."""
    kind, rng, faults = KINDS[name], random.Random(f"{name} {seed}"), []
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
        path = kind.write(Path(folder))
        whole = {other: other.read_bytes() for other in path.parent.iterdir() if other.is_file()}
        expected = kind.read(path)
        for _ in range(FLIPS):
            place, bit = rng.randrange(len(whole[path])), rng.randrange(8)
            for other, content in whole.items():
                other.write_bytes(content)
            changed = bytearray(whole[path])
            changed[place] ^= 1 << bit
            path.write_bytes(changed)
            if kind.repair:
                kind.repair(path)
            if fault := _fault(kind, path, expected):
                faults.append(f"{name}, byte {place}, bit {bit}: {fault}")
    return faults


def _fault(kind: Kind, path: Path, expected: Any) -> str | None:
    try:
        found = kind.read(path)
    except MeshtfError as error:
        names = (path.name, path.parent.name)
        return None if any(name in str(error) for name in names) else f"the message names no file: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return f"not what was written: {found}" if kind.is_checked and found != expected else None


def main() -> None:
    """Of a seed, and one kind or all."""
    seed, names = int(sys.argv[1]), sys.argv[2:] or list(KINDS)
    for name in names:
        faults = faults_of(name, seed)
        print(f"{name}: {len(faults)} of {FLIPS} are wrong", *faults, sep="\n  ", flush=True)


if __name__ == "__main__":
    main()
