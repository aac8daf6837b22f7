"""Replies in the OpenAI-style schema."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from meshtf.serving.engine import Finish
from meshtf.serving.http.generation import Piece, ShownToken
from meshtf.serving.http.reading.requests import Prompt, TextRequest
from meshtf.serving.http.served_model import ServedModel
from meshtf.serving.http.token_text import TokenText

_LEAST = -9999.0
"""The number that stands for minus infinity among log-likelihoods, as in OpenAI's API. JSON has no infinity."""


@dataclasses.dataclass(frozen=True)
class Replies:
    """Makes the replies to one request.

    Attributes:
      model: the model.
      request: the request.
      name: the reply's own name.
      created: when it began, in seconds since 1970.
    """

    model: ServedModel
    request: TextRequest
    name: str
    created: int

    def whole(self, choices: Sequence[dict[str, Any]], num_added: int) -> dict[str, Any]:
        """Returns a complete reply with all choices."""
        kind = "chat.completion" if self.request.is_chat else "text_completion"
        return {**self._head(kind), "choices": list(choices), "usage": self.usage(num_added)}

    def chunk(self, choices: Sequence[dict[str, Any]], usage: dict[str, int] | None = None) -> dict[str, Any]:
        """Returns one event of a stream."""
        kind = "chat.completion.chunk" if self.request.is_chat else "text_completion"
        said = {"usage": usage} if self.request.tells_usage else {}
        return {**self._head(kind), "choices": list(choices), **said}

    def usage(self, num_added: int) -> dict[str, int]:
        """Returns how many tokens a request took."""
        prompt = sum(len(prompt.ids) for prompt in self.request.prompts)
        return {"prompt_tokens": prompt, "completion_tokens": num_added, "total_tokens": prompt + num_added}

    def choice(
        self, index: int, piece: Piece, echo: Echo | None = None, *, is_delta: bool = False, is_first: bool = False
    ) -> dict[str, Any]:
        """Returns a choice. With `is_delta` it has only the new part."""
        found: dict[str, Any] = {"index": index, "finish_reason": None if piece.finish is None else piece.finish.value}
        has_logprobs = self.request.options.num_likeliest is not None
        if not self.request.is_chat:
            told = echo if is_first or not is_delta else None
            shift = 0 if echo is None else len(echo.prompt.text)
            text = piece.text if told is None else told.prompt.text + piece.text
            logprobs = self._legacy_logprobs(piece.tokens, told, shift) if has_logprobs else None
            return {"text": text, **found, "logprobs": logprobs}
        role = {"role": "assistant"} if is_first or not is_delta else {}
        content = {} if is_delta and not piece.text and not is_first else {"content": piece.text}
        said: dict[str, Any] = {**role, **content} if is_delta else {**role, **content, "refusal": None}
        logprobs = {"content": [self._chat_logprob(x) for x in piece.tokens], "refusal": None} if has_logprobs else None
        return {**found, "delta" if is_delta else "message": said, "logprobs": logprobs}

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.name, "object": kind, "created": self.created, "model": self.model.name}

    def _legacy_logprobs(self, tokens: Sequence[ShownToken], echo: Echo | None, shift: int) -> dict[str, Any]:
        before = [] if echo is None else [*zip(echo.prompt.ids, echo.log_likelihoods, strict=True)]
        spelt = _spelt(self.model, [token for token, _ in before])
        texts, offsets = [text for text, _ in spelt], [min(place, shift) for _, place in spelt]
        num_likeliest = self.request.options.num_likeliest
        likeliest = [None] * len(before) + [self._likeliest(each) for each in tokens]
        return {
            "tokens": texts + [each.text for each in tokens],
            "token_logprobs": [finite(value) for _, value in before] + [finite(x.token.log_likelihood) for x in tokens],
            "top_logprobs": likeliest if num_likeliest else None,
            "text_offset": offsets + [shift + each.offset for each in tokens],
        }

    def _likeliest(self, shown: ShownToken) -> dict[str, float | None]:
        found: dict[str, float | None] = {}
        for token, value in shown.token.likeliest:
            found.setdefault(self.model.token_text(token), finite(value))
        return found

    def _chat_logprob(self, shown: ShownToken) -> dict[str, Any]:
        likeliest = [self._named(self.model.token_text(x), value) for x, value in shown.token.likeliest]
        return {**self._named(shown.text, shown.token.log_likelihood), "top_logprobs": likeliest}

    def _named(self, text: str, value: float | None) -> dict[str, Any]:
        return {"token": text, "logprob": finite(value), "bytes": None if "\ufffd" in text else list(text.encode())}


@dataclasses.dataclass(frozen=True)
class Echo:
    """A prompt that the reply repeats, with the log-likelihoods of its tokens if the request wants them."""

    prompt: Prompt
    log_likelihoods: Sequence[float | None]


def finite(value: float | None) -> float | None:
    """Returns a log-likelihood that JSON can hold."""
    return value if value is None or math.isfinite(value) else _LEAST


def score_reply(
    model: ServedModel, texts: Sequence[Prompt], scores: Sequence[Sequence[float | None]]
) -> dict[str, Any]:
    """Returns the reply with the scores of texts. A token that nothing predicts counts in none."""
    data: list[dict[str, Any]] = []
    for index, (text, values) in enumerate(zip(texts, scores, strict=True)):
        predicted = [(token, value) for token, value in zip(text.ids, values, strict=True) if value is not None]
        total = math.fsum(value for _, value in predicted)
        found: dict[str, Any] = {
            "index": index,
            "object": "score",
            "log_likelihood": finite(total),
            "num_tokens": len(predicted),
            "num_bytes": model.vocabulary.num_bytes([token for token, _ in predicted]),
            "tokens": [each for each, _ in _spelt(model, text.ids)],
            "token_logprobs": [finite(value) for value in values],
        }
        data.append(found)
    num_tokens = sum(len(text.ids) for text in texts)
    usage = {"prompt_tokens": num_tokens, "total_tokens": num_tokens}
    return {"object": "list", "model": model.name, "data": data, "usage": usage}


def _spelt(model: ServedModel, ids: Sequence[int]) -> list[tuple[str, int]]:
    """Returns the text of each token of a whole text, and how many characters come before it.

    The first word has no space before it, and the first bytes of a character count no character.
    """
    found: list[tuple[str, int]] = []
    place, decoded = 0, TokenText(model.vocabulary, [])
    for token in ids:
        found.append((model.token_text(token) if place else model.vocabulary.decode([token]), place))
        place += len(decoded.add(token))
    return found


def models_reply(model: ServedModel) -> dict[str, Any]:
    """Returns the list of models."""
    return {
        "object": "list",
        "data": [{"id": model.name, "object": "model", "created": model.created, "owned_by": "meshtf"}],
    }


FULL = Piece(finish=Finish.LENGTH)
"""The piece of a choice that asks for no token."""
