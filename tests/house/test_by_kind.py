"""Which crossings of configurations are run."""

from __future__ import annotations

from tests.house.by_kind import by_kind

KINDS = {"gpt2": "decoder", "llama": "decoder", "bert": "encoder", "opt": "decoder", "t5": "both"}


def test_the_first_of_a_kind_meets_every_value_and_each_other_one() -> None:
    chosen = by_kind(KINDS, "xyz")
    assert [name for name, _ in chosen] == ["gpt2"] * 3 + ["llama"] + ["bert"] * 3 + ["opt"] + ["t5"] * 3
    assert {value for name, value in chosen if name in ("llama", "opt")} == {"x", "y"}
