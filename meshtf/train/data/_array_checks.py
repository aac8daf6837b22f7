"""Checks arrays of examples before they are used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

import meshtf as mtf
from meshtf.dimension import ShapeLike
from meshtf.errors import nearest
from meshtf.train.configuration import ConfigurationError
from meshtf.train.task import WEIGHTS

_FAULTS = """\
the arrays of the task "{task}" do not fit together:
{faults}"""


def check_arrays(task: str, shapes: Mapping[str, ShapeLike], parts: Mapping[str, Mapping[str, Any]]) -> None:
    """Checks that each part has every feature, [examples, ...], in the given shape and in one type.

    Raises:
      ConfigurationError: lists everything that is wrong.
      ShapeError: a shape is no named shape.
    """
    if not isinstance(shapes, Mapping):
        kind = type(shapes).__name__
        raise ConfigurationError(f'the shapes of the task "{task}" must be a dict by names of features, and not {kind}')
    faults = [*_name_faults(shapes, parts)]
    faults = faults or [
        f'{part}["{name}"] {fault}'
        for part, features in parts.items()
        for name, shape in shapes.items()
        for fault in _array_faults(features[name], mtf.convert_to_shape(shape))
    ]
    faults = faults or [*_type_faults(parts), *(fault for part in parts for fault in _count_faults(part, parts[part]))]
    if faults:
        raise ConfigurationError(_FAULTS.format(task=task, faults="\n".join(f"  {fault}" for fault in faults)))


def _name_faults(shapes: Mapping[str, ShapeLike], parts: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    if not shapes:
        yield "shapes names no feature"
    if WEIGHTS in shapes:
        yield f'no feature can be called "{WEIGHTS}": an evaluation marks padding examples with this name'
    for part, features in parts.items():
        if not isinstance(features, Mapping):
            yield f"{part} must be a dict of arrays by the names of features, and is a {type(features).__name__}"
            continue
        yield from (f'{part} lacks "{name}"{nearest(name, features)}' for name in shapes if name not in features)
        yield from (
            f'{part} has "{n}", which shapes does not name{nearest(n, shapes)}' for n in features if n not in shapes
        )


def _array_faults(array: Any, shape: mtf.Shape) -> Iterator[str]:
    if not hasattr(array, "shape") or not hasattr(array, "dtype"):
        yield f"must be a NumPy array, and is a {type(array).__name__}; np.asarray(...) makes one"
        return
    dtype = tf.as_dtype(array.dtype) if _is_known(array.dtype) else None
    if dtype is None or not (dtype.is_floating or dtype.is_integer or dtype.is_complex or dtype.is_bool):
        yield f"is of {array.dtype}, and must be of numbers or bool"
    found = f"has shape {list(array.shape)}" if array.shape else "is a single number"
    if not array.shape or list(array.shape[1:]) != shape.to_integer_list:
        yield f"{found}, and must be [examples{''.join(f' {d}' for d in shape)}]"


def _is_known(dtype: Any) -> bool:
    try:
        tf.as_dtype(dtype)
    except TypeError:
        return False
    return True


def _type_faults(parts: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    (first, features), *others = parts.items()
    for part, arrays in others:
        for name, array in arrays.items():
            own, wanted = tf.as_dtype(array.dtype).name, tf.as_dtype(features[name].dtype).name
            if own != wanted:
                cast = f'convert one, as in x.astype("{wanted}")'
                yield f'{part}["{name}"] is of {own}, and {first}["{name}"] of {wanted}; {cast}'


def _count_faults(part: str, features: Mapping[str, Any]) -> Iterator[str]:
    counts = {name: int(array.shape[0]) for name, array in features.items()}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f'"{name}" has {count:,}' for name, count in counts.items())
        yield f"{part} must have the same number of examples for each feature: {listed}"
    elif not any(counts.values()):
        purpose = "to train on" if part == "train" else "by which to say what was learnt"
        yield f"{part} has no example {purpose}; it must have at least one"
