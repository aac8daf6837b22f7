"""The tokens that a form allows, as words of bits."""

from __future__ import annotations

import numpy as np
import pytest

from meshtf.serving.engine import RequestError
from meshtf.serving.forms import Forms, num_words
from meshtf.train.data.vocabularies.byte_vocabulary import ByteVocabulary
from meshtf.train.decoding.forms.constraints import Constraint

BYTES = ByteVocabulary()


def tokens(words: np.ndarray) -> list[int]:
    return [i for i in range(BYTES.size) if words[i // 32] >> (i % 32) & 1]


def test_a_form_tells_the_tokens_that_may_come() -> None:
    forms = Forms(BYTES)
    form = forms.begin(Constraint("regex", "[ab]z"), stop_ids=(0,))
    a, b, z = BYTES.encode("abz")
    assert (len(form.words), form.words.dtype) == (num_words(BYTES.size), np.int32)
    assert tokens(form.words) == [a, b]
    form.add(b)
    assert tokens(form.words) == [z]
    form.add(z)
    assert tokens(form.words) == [0, BYTES.end_id], "a stop without text, and the end"
    assert [form.ends_with(token) for token in (0, BYTES.end_id, a)] == [True, True, False]
    assert tokens(forms.begin(Constraint("regex", "[ab]z"), ()).words) == [a, b], "another text begins anew"
    with pytest.raises(RequestError, match="the form of the text cannot be used: "):
        forms.begin(Constraint("regex", "("), ())


def test_the_latest_forms_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiling is the dear part."""
    forms = Forms(BYTES)
    first = [forms.begin(Constraint("regex", "a" * (1 + n)), ()) for n in range(70)]
    assert len(first) == 70
    monkeypatch.setattr("meshtf.serving.forms.TokenRules", lambda *_: pytest.fail("compiled again"))
    forms.begin(Constraint("regex", "a" * 70), ())
    with pytest.raises(pytest.fail.Exception, match="compiled again"):
        forms.begin(Constraint("regex", "a"), ())
