"""All that the table of other libraries' words proposes exists, and every word is needed."""

from __future__ import annotations

import operator

import meshtf as mtf
from meshtf_programs.synonyms import SYNONYMS


def test_every_proposal_exists() -> None:
    proposals = {proposal for names in SYNONYMS.values() for proposal in names}
    assert "mtf.einsum" in proposals
    for proposal in sorted(proposals):
        operator.attrgetter(proposal.removeprefix("mtf."))(mtf)


def test_no_word_stands_twice() -> None:
    plain = [name.replace("_", "") for name in SYNONYMS]
    assert len(plain) == len(set(plain))
