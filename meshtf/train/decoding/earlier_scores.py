"""The scores that an earlier, broken-off run wrote, behind which another goes on."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path

from meshtf.errors import SaveError
from meshtf.train.decoding.prompt_text import PromptText
from meshtf.train.decoding.results import TextScore

_NO_SCORE = """\
line {number} of {path} is no score in JSON. Give another --output, or leave --resume out to write the file anew."""

_OTHER_TEXT = """\
line {number} of {path} is the score of another text than {text}. --resume goes on with the same texts in the same \
order; give another --output for others."""


@dataclasses.dataclass(frozen=True)
class EarlierScores:
    """Scores in the lines of a file of results.

    Attributes:
      count: the number of whole lines.
      total: the score of their texts together.
      num_bytes: the number of bytes of these lines. Behind them may be a part of a line, which was being written.
    """

    count: int
    total: TextScore
    num_bytes: int

    @classmethod
    def none(cls) -> EarlierScores:
        """No scores."""
        return cls(0, TextScore.total([]), 0)

    @classmethod
    def read(cls, path: Path, texts: Iterable[PromptText]) -> EarlierScores:
        """Reads the scores of the first of these texts; none if the file is missing.

        Raises:
          SaveError: if a line is no score, or the score of another text.
        """
        found = cls.none()
        if not path.exists():
            return found
        waiting = iter(texts)
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    break
                score = _score(line, number, path)
                text = next(waiting, None)
                if text is None or text.text != score.text:
                    shown = "is given" if text is None else text
                    raise SaveError(_OTHER_TEXT.format(number=number, path=path, text=shown))
                found = cls(number, TextScore.total([found.total, score]), found.num_bytes + len(line))
        return found


def _score(line: bytes, number: int, path: Path) -> TextScore:
    try:
        fields = json.loads(line)
        return TextScore(*(fields[field.name] for field in dataclasses.fields(TextScore)))
    except (ValueError, KeyError, TypeError):
        raise SaveError(_NO_SCORE.format(number=number, path=path)) from None
