"""The model that a server has: its name, its engine, its vocabulary, its template for chats."""

from __future__ import annotations

import dataclasses
import functools

from meshtf.errors import nearest
from meshtf.serving.engine import Engine
from meshtf.serving.http.api_error import ApiError
from meshtf.serving.http.chat_template import ChatTemplate
from meshtf.serving.http.reading.fields import Fields
from meshtf.train.data.vocabularies.vocabulary import Vocabulary
from meshtf.train.decoding.stops import Stops


@dataclasses.dataclass(frozen=True)
class ServedModel:
    """A model.

    Attributes:
      name: its name in requests.
      engine: the engine that runs it.
      vocabulary: its tokens.
      stops: the tokens and texts that end every generation.
      template: turns a chat into a prompt.
      created: when the server began, in seconds since 1970.
      start_id: the token that the engine puts before every prompt, or None.
    """

    name: str
    engine: Engine
    vocabulary: Vocabulary
    stops: Stops
    template: ChatTemplate | None = None
    created: int = 0
    start_id: int | None = None

    def check_name(self, fields: Fields) -> None:
        """Raises ApiError if a request names another model."""
        given = fields.text("model", self.name)
        if given != self.name:
            hint = nearest(given, [self.name]) or f'; this server has "{self.name}".'
            raise ApiError(f"There is no model {given[:60]!r}{hint}", 404, "model", "model_not_found")

    def encode(self, text: str) -> tuple[int, ...]:
        """Returns the ids of a prompt."""
        return tuple(self.vocabulary.encode(text))

    def token_text(self, token: int) -> str:
        """Returns the text of a token inside of a text. Some vocabularies drop the space before a text's first word."""
        before, whole = (self.vocabulary.decode([*self._letter, *ids]) for ids in ((), (token,)))
        return whole[len(before) :] if whole.startswith(before) else self.vocabulary.decode([token])

    @functools.cached_property
    def _letter(self) -> list[int]:
        """A token to stand before another one, or nothing if a letter has none."""
        return self.vocabulary.encode("a")[-1:]
