"""The tokens that a form allows, as words of bits."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable

import numpy as np
import pytest

from meshtf.serving.engine import EngineFailedError, RequestError
from meshtf.serving.forms import Forms, num_words
from meshtf.train.data.vocabularies.byte_vocabulary import ByteVocabulary
from meshtf.train.decoding.forms.constraints import Constraint
from tests.train.decoding.forms.endless import ENDLESS

BYTES = ByteVocabulary()


def tokens(words: np.ndarray) -> list[int]:
    return [i for i in range(BYTES.size) if words[i // 32] >> (i % 32) & 1]


def test_a_form_tells_the_tokens_that_may_come() -> None:
    forms = Forms(BYTES, 60.0)
    form = forms.begin(Constraint("regex", "[ab]z"), stop_ids=(0, BYTES.size))  # which no text can have
    a, b, z = BYTES.encode("abz")
    assert (len(form.words), form.words.dtype) == (num_words(BYTES.size), np.int32)
    assert tokens(form.words) == [a, b]
    form.add(b)
    assert tokens(form.words) == [z]
    form.add(z)
    assert tokens(form.words) == [0, BYTES.end_id], "a stop without text, and the end"
    assert [form.ends_with(token) for token in (0, BYTES.end_id, a)] == [True, True, False]
    assert tokens(forms.begin(Constraint("regex", "[ab]z"), ()).words) == [a, b], "another text begins anew"
    with pytest.raises(RequestError, match=r"^constraint cannot be used: at 1"):
        forms.begin(Constraint("regex", "("), ())


def test_a_token_that_is_not_allowed_is_the_models_fault_and_one_that_cannot_come_the_forms() -> None:
    form = Forms(BYTES, 60.0).begin(Constraint("regex", "[ab]z"), ())
    with pytest.raises(EngineFailedError, match="the model chose a token that the form does not allow"):
        form.add(BYTES.encode("c")[0])
    assert tokens(form.words) == BYTES.encode("ab")


def test_the_latest_forms_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiling is the dear part, also where it finds an error. Large forms are kept in smaller number."""
    forms, letter, wrong = Forms(BYTES, 60.0), Constraint("regex", "[ab]z"), Constraint("regex", "(")
    forms.begin(letter, ())
    with pytest.raises(RequestError, match="cannot be used: at 1"):
        forms.begin(wrong, ())
    monkeypatch.setattr("meshtf.serving.forms.TokenRules", lambda *_: "of this test")
    for n in range(62):
        with pytest.raises(RequestError, match="of this test"):
            forms.begin(Constraint("regex", "a" * (1 + n)), ())
    monkeypatch.setattr("meshtf.serving.forms.TokenRules", lambda *_: pytest.fail("compiled again"))
    assert tokens(forms.begin(letter, ()).words) == BYTES.encode("ab"), "the oldest of 64"
    with pytest.raises(RequestError, match="cannot be used: at 1"):
        forms.begin(wrong, ())
    for text in ("b", "a"):  # a 65th, and the oldest, which has made room for it
        with pytest.raises(pytest.fail.Exception, match="compiled again"):
            forms.begin(Constraint("regex", text), ())


def test_large_forms_are_forgotten_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[int]()
    monkeypatch.setattr(
        "meshtf.serving.forms.TokenRules", lambda constraint, *_: made.append(len(constraint.text)) or ""
    )
    forms, large = Forms(BYTES, 60.0), 600_000
    for size in (large, large + 1, large, 9, large):
        with pytest.raises(RequestError):
            forms.begin(Constraint("regex", "a" * size), ())
    assert made == [1, large, large + 1, large, 9], "the last one is kept beside a small one"


def test_a_fault_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """As too little memory: the same form may be compiled later."""
    forms, any_letter = Forms(BYTES, 60.0), Constraint("regex", "[ab]")
    with monkeypatch.context() as patched:
        patched.setattr("meshtf.serving.forms.TokenRules", raising(MemoryError()))
        with pytest.raises(MemoryError):
            forms.begin(any_letter, ())
    assert tokens(forms.begin(any_letter, ()).words) == BYTES.encode("ab")


def test_a_form_that_never_ends_is_refused_and_kept_as_refused_and_others_go_on() -> None:
    """Both requests for it wait for one trial. A third finds what came of it."""
    forms, message = (
        Forms(BYTES, 1.0),
        "^constraint cannot be used: it takes longer than 1 s to compile; give a smaller",
    )
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        for one in [threads.submit(forms.begin, ENDLESS, ()) for _ in range(2)]:
            with pytest.raises(RequestError, match=message):
                one.result(60)
        assert tokens(threads.submit(forms.begin, Constraint("regex", "[ab]z"), ()).result(60).words)
    forms._seconds = 0.0
    with pytest.raises(RequestError, match=message):
        forms.begin(ENDLESS, ())


def raising(error: Exception) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise error

    return fail
