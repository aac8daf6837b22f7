"""Checks that the content of a manifest is possible. A right checksum proves nothing, since anyone can compute it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from meshtf.checkpoint._box import Box, are_a_tiling
from meshtf.files.unicode_text import is_unicode
from meshtf_programs.strict_json import json_text

INDEX = "variables.index"

MOST_DIMENSIONS = 254
"""The most dimensions of a tensor in TensorFlow."""

_FILE_NAMES = re.compile(r"checkpoint|variables\.index|variables\.data-\d{5}-of-\d{5}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_LARGEST_COUNT = 2**63 - 1
_SHOWN = 60


class ManifestFault(ValueError):  # noqa: N818  # no one sees it: the manifest's reader tells of it
    """An impossible value in a manifest, in words."""


def check_content(content: Mapping[str, Any]) -> None:
    """Checks every part of a manifest before any part is used.

    Raises:
      ManifestFault: if a part is impossible. The message names the key, the file or the tensor.
    """
    _check_keys("it", content, ("files", "format", "state", "step", "tensors"))
    _check_count("step", content["step"])
    _check_kind("state", content["state"], dict, "an object")
    _check_kind("files", content["files"], dict, "an object")
    _check_kind("tensors", content["tensors"], dict, "an object")
    for name, file in content["files"].items():
        _check_file(name, file)
    if INDEX not in content["files"]:
        raise ManifestFault(f'files lacks "{INDEX}"')
    for name, tensor in content["tensors"].items():
        _check_tensor(name, tensor)
    _check_size(content)


def is_name(name: str) -> bool:
    """Tells whether a tensor can have this name. An empty name crashes TensorFlow, and no file format can hold some
    characters.
    """
    return bool(name) and "\0" not in name and is_unicode(name)


def is_type_name(name: str) -> bool:
    """Tells whether a text is the name of a numeric dtype, or bool."""
    try:
        dtype = tf.as_dtype(name)
    except TypeError:
        return False
    is_number = dtype.is_floating or dtype.is_integer or dtype.is_complex or dtype.is_bool
    return dtype.name == name and is_number and dtype.base_dtype == dtype


def is_count(number: object) -> bool:
    """Tells whether a value is an integer, 0 or more, that fits into 64 bits."""
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= _LARGEST_COUNT


def shown(value: object) -> str:
    """Returns a value as JSON, short enough for a message."""
    text = json_text(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _check_file(name: str, file: Any) -> None:
    if not _FILE_NAMES.fullmatch(name):
        raise ManifestFault(
            f"files names {shown(name)}; a checkpoint's files lie in its own folder, and are called checkpoint, "
            f"{INDEX} and variables.data-00000-of-00001"
        )
    where = f"files[{shown(name)}]"
    _check_keys(where, file, ("num_bytes", "sha256"))
    _check_count(f"{where}.num_bytes", file["num_bytes"])
    has_digest = isinstance(file["sha256"], str) and _DIGEST.fullmatch(file["sha256"])
    if not (file["sha256"] is None if ".data-" in name else has_digest):
        wanted = "null, for data" if ".data-" in name else "64 hexadecimal digits"
        raise ManifestFault(f"{where}.sha256 is {shown(file['sha256'])}, and must be {wanted}")


def _check_tensor(name: str, tensor: Any) -> None:
    where = f"tensors[{shown(name)}]"
    if not is_name(name):
        raise ManifestFault(f"{where} has a name that no variable can have")
    _check_keys(where, tensor, ("boxes", "dtype", "shape"))
    _check_sizes(f"{where}.shape", tensor["shape"])
    if not (isinstance(tensor["dtype"], str) and is_type_name(tensor["dtype"])):
        raise ManifestFault(f"{where}.dtype is {shown(tensor['dtype'])}, and no variable can have this type")
    _check_kind(f"{where}.boxes", tensor["boxes"], list, "a list")
    boxes = []
    for number, box in enumerate(tensor["boxes"]):
        if not isinstance(box, list) or len(box) != 2:
            raise ManifestFault(f"{where}.boxes[{number}] is {shown(box)}, and must be [[start, ..], [size, ..]]")
        for part in box:
            _check_sizes(f"{where}.boxes[{number}]", part)
        boxes.append(Box(tuple(box[0]), tuple(box[1])))
    if not are_a_tiling(boxes, tensor["shape"]):
        raise ManifestFault(
            f"the {len(boxes)} boxes of {where} do not make up its shape {shown(tensor['shape'])}: they leave some "
            f"of it out, overlap, or go beyond it"
        )


def _check_size(content: Mapping[str, Any]) -> None:
    """Checks that the tensors fit into the data files, so that nothing larger than these is ever read."""
    needed = sum(math.prod(t["shape"]) * tf.as_dtype(t["dtype"]).size for t in content["tensors"].values())
    there = sum(file["num_bytes"] for name, file in content["files"].items() if ".data-" in name)
    if needed > there:
        largest = max(content["tensors"], key=lambda name: math.prod(content["tensors"][name]["shape"]))
        raise ManifestFault(
            f"the tensors, of which {shown(largest)} with shape {shown(content['tensors'][largest]['shape'])} is the "
            f"largest, take {needed:,} bytes, and the files of data have {there:,}"
        )


def _check_keys(where: str, found: Any, keys: Sequence[str]) -> None:
    _check_kind(where, found, dict, "an object")
    if missing := [key for key in keys if key not in found]:
        raise ManifestFault(f"{where} lacks {', '.join(missing)}")
    if unknown := [key for key in found if key not in keys]:
        raise ManifestFault(f"{where} has {shown(unknown[0])}, which is not a known key")


def _check_kind(where: str, found: Any, kind: type, name: str) -> None:
    if not isinstance(found, kind):
        raise ManifestFault(f"{where} is {shown(found)}, and must be {name}")


def _check_count(where: str, number: Any) -> None:
    if not is_count(number):
        raise ManifestFault(f"{where} is {shown(number)}, and must be a whole number, 0 or more")


def _check_sizes(where: str, sizes: Any) -> None:
    if not isinstance(sizes, list) or len(sizes) > MOST_DIMENSIONS or not all(map(is_count, sizes)):
        raise ManifestFault(
            f"{where} is {shown(sizes)}, and must be a list of at most {MOST_DIMENSIONS} whole numbers, 0 or more"
        )
