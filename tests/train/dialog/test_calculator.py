from __future__ import annotations

import pytest

from meshtf.train.dialog.calculator import Calculator, evaluated


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("17 + 25", "42"),
        (" 2*(3-5) ", "-4"),
        ("-3 - -4", "1"),
        ("1 / 3", "0.3333333333"),
        ("0.1 + 0.2", "0.3"),
        ("7 / 7", "1"),
        ("99999999999999999999 + 1", "100000000000000000000"),
    ],
)
def test_arithmetic_is_exact(expression: str, value: str) -> None:
    assert evaluated(expression) == value


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "1 / 0",
        "2 ** 9",
        "9" * 150,
        "1e999",
        "x + 1",
        "__import__('os').system('true')",
        "[1][0]",
        "'a' * 3",
        "True + 1",
        "1 if 1 else 2",
        "1 // 2",
        "(" * 150 + "1" + ")" * 150,
        "-" * 199 + "1" * 2,
        "1 +",
        "\0",
        "mona bell lives in",
    ],
)
def test_what_is_no_arithmetic_has_no_answer(expression: str) -> None:
    assert Calculator().answers(expression) == []
