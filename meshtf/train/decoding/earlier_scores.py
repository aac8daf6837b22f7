"""The scores that an earlier, interrupted run wrote, and after which another run continues."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path

from meshtf.errors import SaveError
from meshtf.train.decoding.prompt_text import PromptText
from meshtf.train.decoding.results import TextScore
from meshtf_programs.strict_json import with_numbers

_NO_SCORE = """\
line {number} of {path} is not a score in JSON. Give another --output, or leave out --resume to overwrite the file."""

_OTHER_STEP = """\
the scores in {path} are from step {earlier}, but this model is from step {step}. Give --step={earlier} to continue \
them, or another --output."""

_OTHER_TEXT = """\
line {number} of {path} is not the score of {text}, but of another text. --resume needs the same texts in the same \
order; give another --output for other texts."""


@dataclasses.dataclass(frozen=True)
class EarlierScores:
    """Scores in the lines of a file of results.

    Attributes:
      count: the number of whole lines.
      total: the score of their texts together.
      num_bytes: the number of bytes of these lines. An incomplete line may follow them.
      step: the step of the model that scored them; None if there are none.
    """

    count: int
    total: TextScore
    num_bytes: int
    step: int | None = None

    @classmethod
    def none(cls) -> EarlierScores:
        """No scores."""
        return cls(0, TextScore.total([]), 0)

    @classmethod
    def read(cls, path: Path, texts: Iterable[PromptText]) -> EarlierScores:
        """Reads the scores of the first of these texts; none if the file is missing.

        Raises:
          SaveError: if a line is no score, or has another text, or another step than the lines before.
        """
        found = cls.none()
        if not path.exists():
            return found
        waiting = iter(texts)
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    break
                score, step = _score(line, number, path)
                found.check_step(step, path)
                text = next(waiting, None)
                if text is None or text.text != score.text:
                    shown = "any given text" if text is None else text
                    raise SaveError(_OTHER_TEXT.format(number=number, path=path, text=shown))
                found = cls(number, TextScore.total([found.total, score]), found.num_bytes + len(line), step)
        return found

    def check_step(self, step: int, path: Path) -> None:
        """Raises SaveError if the scores are those of a model at another step."""
        if self.step is not None and self.step != step:
            raise SaveError(_OTHER_STEP.format(path=path, earlier=self.step, step=step))


def _score(line: bytes, number: int, path: Path) -> tuple[TextScore, int]:
    try:
        fields = json.loads(line)
        # A log-likelihood that is not finite is written as a text, such as "NaN".
        likelihood = float(with_numbers(fields["log_likelihood"]))
        found = TextScore(fields["text"], likelihood, int(fields["num_tokens"]), int(fields["num_bytes"]))
        return found, int(fields["step"])
    except (ValueError, KeyError, TypeError):
        raise SaveError(_NO_SCORE.format(number=number, path=path)) from None
