from __future__ import annotations

import pytest

from meshtf.divisors import divisors


@pytest.mark.parametrize("number", [*range(0, 40), 97, 1024, 5040, 9409])
def test_they_are_all_that_divide(number: int) -> None:
    assert divisors(number) == [n for n in range(1, number + 1) if number % n == 0]


def test_of_large_numbers_they_are_not_looked_for_one_by_one() -> None:
    assert divisors(10**10) == sorted(2**i * 5**j for i in range(11) for j in range(11))
    assert divisors(10**18) == sorted(n for i in range(19) for j in range(19) if (n := 2**i * 5**j) <= 10**6)
