"""The script that `make lint` runs finds sentences that are no plain English, and leaves plain ones alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.english.plain_english import findings_in, main


@pytest.mark.parametrize(
    ("docstring", "rule"),
    [
        ("Of a tensor, what its elements are.", "begins with 'Of'"),
        ("What a loop reads.", "begins with 'What'"),
        ("By sublayer.", "begins with 'By'"),
        ("Those of the first core.", "begins with 'Those'"),
        ("Raises: ShapeError where two sizes differ.", "begins with Raises"),
        ("None where there is no loop.", "begins with one value"),
        ("Whether a second matrix of so many columns is.", "ends with a bare verb"),
        ("The parts that cores hold abreast.", "'abreast' is home-made"),
        ("The dtype. Of a loop, its inputs.", "begins with 'Of', so put the subject first"),
        ("The sum of a, of b, of c, of d, of e, and of f.", "more than 4 commas"),
        (f"The product {'of a product ' * 16}of two.", "more than 45 words"),
    ],
)
def test_a_docstring_that_is_not_plain_is_found_with_its_line(tmp_path: Path, docstring: str, rule: str) -> None:
    path = tmp_path / "knotty.py"
    path.write_text(f'"""Reads loops."""\n\n\ndef read() -> None:\n    """{docstring}"""\n')
    [finding] = findings_in(path)
    assert finding.rule.startswith(rule)
    assert finding.line == 5
    assert str(finding).endswith(docstring) or str(finding).endswith(docstring.partition(". ")[2])


def test_comments_are_read_as_sentences(tmp_path: Path) -> None:
    path = tmp_path / "knotty.py"
    path.write_text('"""Reads loops."""\n\nA = 1  # Of b.\n\n# One thing. Of a loop,\n# its inputs.\nB = 2\n')
    [finding] = findings_in(path)
    assert (finding.line, finding.sentence) == (5, "Of a loop, its inputs.")


def test_plain_sentences_code_examples_and_lists_pass(tmp_path: Path) -> None:
    path = tmp_path / "plain.py"
    path.write_text(
        '"""Reads loops, as in `f(a, b, c, d, e, f, g)`.\n\n'
        "What does a loop read? Its inputs:\n\n"
        "- the first, which is a table;\n- the second, which is a list.\n\n"
        "spread: a field is code, so its name may be any.\n\n"
        '    x, y, z, a, b, c = what(it, is)\n"""\n\n'
        'LIMIT = 3\n"""The most loops that are read."""\n'
    )
    assert not findings_in(path)


def test_the_command_prints_file_and_line_and_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "knotty.py"
    path.write_text('"""By sublayer."""\n')
    assert main([str(tmp_path)]) == 1
    assert f"{path}:1: begins with 'By'" in capsys.readouterr().out
    path.write_text('"""The observations of each sublayer."""\n')
    assert main([str(path)]) == 0
