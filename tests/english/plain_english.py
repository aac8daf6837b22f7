"""Finds docstrings and comments that are not plain English: `python -m tests.english.plain_english`, or with paths.

`make lint` runs it. A script knows neither nouns nor verbs, so it knows the ways in which sentences went wrong here:

    def dtype_of(x): "Of a tensor, what its elements are."      # opens with a preposition, and names no thing
    def dtype_of(x): "The dtype of a tensor's elements."        # names the thing

Each finding is one line: the file, the line, the rule that is broken and the sentence.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

TREE = Path(__file__).resolve().parents[2]
CHECKED = ("meshtf", "layers", "models", "meshtf_programs", "benchmarks")

NO_SUBJECT = re.compile(
    r"(of|by|as|in|for|with|without|on|at|from|to|into|under|over|before|after|between|behind|beside|inside|along|against"
    r"|among|across|than|and|but|or|so|then|also|there|those|that|this|these|they|it|its|such|neither|nor|what|else)"
    r"(?=[\s,.])",
    re.IGNORECASE,
)
"""Words that open no docstring: no verb and no thing follows them, or only after a detour."""

ONE_VALUE = re.compile(r"(none|true|false|0) (where|if|unless|when)\b", re.IGNORECASE)
"""`None where there is no group`: the reader is not told what there is otherwise."""

OF_WHAT = re.compile(r"^\w+(, \w+)*: of ")
"""`dtype: of the result`, which leaves out what of the result is meant."""

ARGUMENT = re.compile(r"^\w+(, \w+)*: ")
"""The names before a description of arguments, which are code."""

INVERTED = re.compile(r"(of|what|those|whose)(?=[\s,.])", re.IGNORECASE)
"""Words that open no sentence anywhere: the subject or its noun would come last, or never."""

HOME_MADE = re.compile(r"\b(abreast|stretch(es)?|whereabouts|spreads?)\b", re.IGNORECASE)
"""Words that the field does not use: it says segment, vectorized, place and split."""

BARE_VERB = re.compile(
    r"^(whether|how|where|which)\b[^.;:]* (is|are|was|were|has|have|does|do|did|can|may|must)$", re.IGNORECASE
)
"""`Whether a second matrix of so many columns is`: the reader is left to find what it is."""

QUOTED = re.compile(r"`[^`]*`|\"[^\"\n]*\"|\([^()]*\)|\[[^\[\]]*\]")
"""Code, quotations and asides; their words and commas do not count."""

EXAMPLE = re.compile(r"```.*?```|(Examples:\s*)?^ *>>>.*?(?=\n\s*\n|\Z)", re.DOTALL | re.MULTILINE)
"""Code with its results, up to the next blank line."""

COLUMNS = re.compile(r"\S {3,}\S|=|^ *(\S ){3,}\S$")
"""A mark of code, of a table, or of a picture in single characters."""

BREAK = re.compile(r"\n\s*\n|\n\s*(?=[-*] |\w+(?:, \w+)*: )|::\n|(?<=Args:)|(?<=Attributes:)|(?<=Raises:)")
"""Ends of paragraphs, of list items and of the descriptions of arguments."""

MOST_COMMAS = 4
MOST_WORDS = 45


@dataclass(frozen=True)
class Finding:
    """A sentence that breaks a rule."""

    path: Path
    line: int
    rule: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.path.as_posix()}:{self.line}: {self.rule}: {self.sentence}"


def findings_in(path: Path) -> list[Finding]:
    """The sentences of one file that break a rule, in the order of its lines."""
    source = path.read_text()
    shown = path.relative_to(TREE) if path.is_relative_to(TREE) else path
    found = [
        Finding(shown, line, rule, sentence)
        for line, text in _docstrings(ast.parse(source))
        for rule, sentence in [*_of_opening(text), *_of_sentences(text)]
    ]
    found += [
        Finding(shown, line, rule, sentence)
        for line, text in _comments(source)
        for rule, sentence in _of_sentences(text)
    ]
    return sorted(found, key=lambda finding: finding.line)


def checked_files() -> list[Path]:
    """The files of all checked packages."""
    return sorted(file for package in CHECKED for file in (TREE / package).rglob("*.py"))


def _docstrings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The line and the text of each docstring, including those that stand below a field or a constant."""
    for node in ast.walk(tree):
        for statement in getattr(node, "body", ()) if not isinstance(node, ast.Lambda | ast.IfExp) else ():
            value = getattr(statement, "value", None)
            if isinstance(statement, ast.Expr) and isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield statement.lineno, value.value


def _comments(source: str) -> Iterator[tuple[int, str]]:
    """The first line and the text of each comment; the lines of a block are one comment."""
    first, text, last = 0, "", -1
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        alone = not token.line[: token.start[1]].strip()
        if not (alone and token.start[0] == last + 1):
            if text:
                yield first, text
            first, text = token.start[0], ""
        text += f"{token.string.lstrip('#')} "
        last = token.start[0] if alone else -1
    if text:
        yield first, text


def _of_opening(text: str) -> Iterator[tuple[str, str]]:
    """The rules for how a docstring begins."""
    sentence = next(iter(_sentences(text)), "")
    if sentence.startswith("Raises:"):
        yield "begins with Raises, so say first what the function does", sentence
    elif ONE_VALUE.match(sentence):
        yield "begins with one value, so say first what the value is otherwise", sentence
    elif first := NO_SUBJECT.match(sentence):
        yield f"begins with {first.group()!r}, so begin with a verb or with the thing", sentence


def _of_sentences(text: str) -> Iterator[tuple[str, str]]:
    """The rules for every sentence of a docstring or of a comment."""
    for number, sentence in enumerate(_sentences(text)):
        words = QUOTED.sub("", sentence)
        first = INVERTED.match(sentence)
        if number and first and not sentence.endswith("?"):
            yield f"begins with {first.group()!r}, so put the subject first", sentence
        if OF_WHAT.match(sentence):
            yield "describes an argument by 'of', so name the thing", sentence
        if BARE_VERB.search(words.rstrip(".")):
            yield "ends with a bare verb, so say what the thing is, has or does", sentence
        if home_made := HOME_MADE.search(ARGUMENT.sub("", words)):
            yield f"{home_made.group()!r} is home-made, so use the field's word", sentence
        if words.count(",") > MOST_COMMAS:
            yield f"more than {MOST_COMMAS} commas, so make two sentences or a list", sentence
        if len(words.split()) > MOST_WORDS:
            yield f"more than {MOST_WORDS} words, so make two sentences", sentence


def _sentences(text: str) -> Iterator[str]:
    """The sentences of a text; blank lines, list items and a full stop before a capital end one; examples are none."""
    prose = EXAMPLE.sub("", text)
    for paragraph in BREAK.split(prose):
        lines = [line for line in paragraph.split("\n") if not line.strip().startswith("|")]
        if _is_example(lines):
            continue
        joined = " ".join(" ".join(lines).split())
        yield from (part for part in re.split(r"(?<=[.;!?])\s+(?=[A-Z`\"\[])", joined) if part)


def _is_example(lines: Sequence[str]) -> bool:
    """Whether a paragraph is code, a table or a picture: every line is indented, and has code or columns."""
    filled = [line for line in lines if line.strip()]
    return bool(filled) and all(re.match(r" {4,}\S", line) and COLUMNS.search(line) for line in filled)


def main(arguments: Sequence[str]) -> int:
    """Prints the findings in the files and folders of `arguments`, or in all checked rooms; 1 if there are any."""
    given = [Path(a).resolve() for a in arguments]
    files = [f for g in given for f in (sorted(g.rglob("*.py")) if g.is_dir() else [g])] or checked_files()
    findings = [finding for file in files for finding in findings_in(file)]
    for finding in findings:
        print(finding)
    if findings:
        print(f"plain_english: {len(findings)} sentences in {len(files)} files", file=sys.stderr)
    return bool(findings)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
