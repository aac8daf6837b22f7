from __future__ import annotations

import collections

import numpy as np
import pytest

from meshtf.train.data.objectives.uniforms import Uniforms


def test_numbers_are_the_same_for_ever() -> None:
    """Another release that gave others would change every run that is resumed under it."""
    np.testing.assert_array_equal(
        (Uniforms(3, 7).draw(3) * 2**32).astype(np.uint32), np.array([691119780, 3534565563, 3146352080], np.uint32)
    )


def test_streams_differ_by_seed_and_by_index() -> None:
    streams = [tuple(Uniforms(seed, index).draw(4)) for seed in range(3) for index in range(3)]
    assert len(set(streams)) == 9


def test_drawing_goes_on() -> None:
    uniforms = Uniforms(0, 0)
    np.testing.assert_array_equal(np.concatenate([uniforms.draw(2), uniforms.draw(3)]), Uniforms(0, 0).draw(5))


def test_numbers_are_even() -> None:
    numbers = Uniforms(1, 1).draw(100_000)
    assert 0 <= numbers.min() < numbers.max() < 1
    counts, _ = np.histogram(numbers, 10, (0, 1))
    assert np.abs(counts - 10_000).max() < 5 * np.sqrt(10_000 * 0.9)


def test_every_choice_is_as_likely() -> None:
    uniforms = Uniforms(0, 0)
    counts = collections.Counter(tuple(uniforms.choose(2, 4).tolist()) for _ in range(6000))
    assert len(counts) == 6
    assert max(abs(count - 1000) for count in counts.values()) < 5 * np.sqrt(1000 * 5 / 6)


@pytest.mark.parametrize(("count", "limit"), [(0, 0), (0, 3), (3, 3)])
def test_choices_of_none_and_of_all(count: int, limit: int) -> None:
    assert Uniforms(0, 0).choose(count, limit).tolist() == list(range(count))
