from __future__ import annotations

import random

from meshtf.train.dialog.questions import FACTS, SUM, drawn_question, is_held_out, library


def test_answers_are_right() -> None:
    facts = set(library())
    for number in range(200):
        question = drawn_question(random.Random(number), held_out=number % 2 == 0)
        assert is_held_out(question.subject) == (number % 2 == 0)
        if question.kind is SUM:
            a, operation, b = question.subject.split()
            assert int(question.value) == (int(a) + int(b) if operation == "plus" else int(a) - int(b))
            assert question.evidence in (f"{a} + {b} = {question.value}", f"{a} - {b} = {question.value}")
        elif number % 2 == 0:
            assert question.evidence in facts


def test_a_library_has_each_fact_of_each_held_out_person_once() -> None:
    sentences = library()
    assert len(sentences) == len(set(sentences)) > 60
    subjects = [" ".join(sentence.split()[:2]) for sentence in sentences]
    assert all(is_held_out(subject) for subject in subjects)
    assert {subjects.count(subject) for subject in subjects} == {len(FACTS)}
