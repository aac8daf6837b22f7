"""An engine on a small run, and listeners."""

from __future__ import annotations

import threading

import pytest

from meshtf.serving.engine import EngineFailedError, Finish, GeneratedToken, RequestError


class Heard:
    """What a generation told."""

    def __init__(self) -> None:
        self.tokens: list[GeneratedToken] = []
        self.reason: Finish | None = None
        self.message: str | None = None
        self._is_over = threading.Event()

    def token(self, token: GeneratedToken) -> None:
        assert not self._is_over.is_set()
        self.tokens.append(token)

    def finished(self, reason: Finish) -> None:
        self.reason = reason
        self._is_over.set()

    def failed(self, error: EngineFailedError | RequestError) -> None:
        self.message = str(error)
        self._is_over.set()

    @property
    def ids(self) -> list[int]:
        return [token.id for token in self.tokens]

    def wait(self) -> Heard:
        assert self._is_over.wait(120), "the generation never ended"
        return self


@pytest.fixture
def heard() -> type[Heard]:
    return Heard
