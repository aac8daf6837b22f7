"""A program's features, of which a model takes some by name."""

from __future__ import annotations

from collections.abc import Mapping

import meshtf as mtf
from meshtf.errors import GraphError, nearest


def feature(features: Mapping[str, mtf.Tensor], name: str) -> mtf.Tensor:
    """The feature of this name.

    Raises:
      GraphError: there is none. The features of a training raise an error of their own, which names the task.
    """
    try:
        return features[name]
    except KeyError:
        raise GraphError(
            f'the model needs a feature "{name}", but the batch has {", ".join(features) or "none"}'
            f"{nearest(name, features)}; does the task's objective fit the model?"
        ) from None
