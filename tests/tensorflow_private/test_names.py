"""Each undocumented name of TensorFlow by itself: a release that changes or removes it fails the test of that name.

Where meshtf cannot be imported any more: `pytest --noconftest tests/tensorflow_private/test_names.py` needs TensorFlow
alone.
"""

from __future__ import annotations

import dataclasses
import re

import pytest

from tests.tensorflow_private.names_of_the_runtime import RUNTIME
from tests.tensorflow_private.names_of_tracing import TRACING
from tests.tensorflow_private.private_name import PrivateName

NAMES = (*RUNTIME, *TRACING)


@pytest.mark.parametrize("name", NAMES, ids=lambda name: name.path)
def test_it_is_as_needed(name: PrivateName) -> None:
    fault = name.fault()
    assert fault is None, fault


def _refuses(_: object) -> None:
    raise AssertionError("it gives 3, not 4")


CHANGES = {
    "gone": (dataclasses.replace(RUNTIME[0], name="contexts"), "AttributeError: contexts is gone"),
    "moved": (dataclasses.replace(RUNTIME[0], module="tensorflow.python.eager.gone"), "No module named"),
    "a parameter gone": (
        dataclasses.replace(RUNTIME[0], parameters=("seed",)),
        r"TypeError: the parameters \['seed'\] are gone; it has \[\]",
    ),
    "another result": (dataclasses.replace(RUNTIME[0], behaves=_refuses), "AssertionError: it gives 3, not 4"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_said_with_who_needs_the_name(change: str) -> None:
    name, fact = CHANGES[change]
    fault = name.fault() or ""
    assert fault.startswith(
        f"{name.path} is not as meshtf/tensorflow_private/eager_context.py needs it, to reach TensorFlow's state.\n"
    )
    assert re.search(fact, fault)
