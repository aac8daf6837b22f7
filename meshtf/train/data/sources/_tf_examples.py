"""Records of tf.train.Example in files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf
from google.protobuf.message import DecodeError

from meshtf.errors import nearest
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.sources.record_lengths import longest_record

COMPRESSIONS = ("", "GZIP", "ZLIB")
BATCH_BYTES, MOST_RECORDS = 1 << 24, 1024
"""The most bytes and records that TensorFlow returns at once. One by one, returning them costs a hundred times as much
as reading them."""


def check_compression(compression: str, option: str) -> None:
    """Raises ConfigurationError, which names the option, if TFRecord files have no such compression."""
    if compression not in COMPRESSIONS:
        raise ConfigurationError(
            f'{option} must be "", "GZIP" or "ZLIB", and is {compression!r}'
            f"{nearest(str(compression).upper(), COMPRESSIONS[1:])}"
        )


def features_in(path: Path, compression: str, option: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields the name of each record of a file, for messages, and its features by name.

    Raises:
      ConfigurationError: if the file is damaged, or a record is no tf.train.Example.
    """
    for number, record in enumerate(_records(path, compression, option), start=1):
        name = f"{path}, record {number}"
        try:
            yield name, tf.train.Example.FromString(record).features.feature
        except DecodeError as error:
            raise ConfigurationError(f"{name} is no tf.train.Example: {error}") from error


def feature_in(features: Mapping[str, Any], feature: str, name: str, advice: str) -> Any:
    """Returns a feature of a record.

    Raises:
      ConfigurationError: if the record has no such feature. The message ends with the advice.
    """
    if feature not in features:
        raise ConfigurationError(
            f'{name} has no feature "{feature}", only {", ".join(sorted(features)) or "none at all"}'
            f"{nearest(feature, features)}\n{advice}"
        )
    return features[feature]


def _records(path: Path, compression: str, option: str) -> Iterator[bytes]:
    try:
        at_once = min(max(BATCH_BYTES // max(longest_record(path, compression), 1), 1), MOST_RECORDS)
        for batch in tf.data.TFRecordDataset(os.fsencode(path), compression).batch(at_once).as_numpy_iterator():
            yield from batch.tolist()
    except (tf.errors.OpError, OSError, ValueError) as error:
        reason = getattr(error, "message", error)
        raise ConfigurationError(
            f"the TFRecord file {path} cannot be read: {reason}\n"
            f"It is damaged, it is not a TFRecord file, or it was not written with {option} ({compression!r})."
        ) from error
