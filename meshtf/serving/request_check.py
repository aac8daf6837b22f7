"""Refuses requests that an engine cannot run."""

from __future__ import annotations

from collections.abc import Sequence

from meshtf.errors import counted
from meshtf.number_checks import is_integer, is_number
from meshtf.serving.engine import EngineLimits, GenerationRequest, RequestError
from meshtf.serving.row_choice import NUM_BANNED


def check_request(request: GenerationRequest, limits: EngineLimits) -> None:
    """Checks that a request can run.

    Raises:
      RequestError: if it cannot. The message says why.
    """
    check_ids(request.prompt, limits.vocab_size, "the prompt")
    # A model may have more logits than its vocabulary has tokens, and one of them may be an end.
    _require(all(is_integer(i, 0) for i in request.stop_ids), "stop_ids", "ids", list(request.stop_ids))
    _require(is_integer(request.max_new_tokens, 1), "max_new_tokens", "an integer, 1 or more", request.max_new_tokens)
    length = len(request.prompt) + request.max_new_tokens
    if length > limits.max_length:
        raise RequestError(
            f"the prompt has {counted(len(request.prompt), 'token')}, and {request.max_new_tokens} more are asked for; "
            f"together they may be {limits.max_length}"
        )
    _check_choice(request, limits)


def check_ids(ids: Sequence[int], vocab_size: int, what: str) -> None:
    """Checks that ids are in the vocabulary.

    Raises:
      RequestError: if one is not.
    """
    for place, token in enumerate(ids):
        if not is_integer(token, 0) or token >= vocab_size:
            raise RequestError(
                f"id {token!r} at place {place} of {what} is not one of the {counted(vocab_size, 'token')}"
            )


def _check_choice(request: GenerationRequest, limits: EngineLimits) -> None:
    for name, wanted, holds in (
        ("temperature", "a number, 0 or more", is_number(request.temperature) and request.temperature >= 0),
        ("top_k", "an integer, 1 or more, or None", request.top_k is None or is_integer(request.top_k, 1)),
        ("top_p", "a number above 0, at most 1", is_number(request.top_p) and 0 < request.top_p <= 1),
        ("min_p", "a number from 0 to 1", is_number(request.min_p) and 0 <= request.min_p <= 1),
        (
            "repetition_penalty",
            "a number above 0",
            is_number(request.repetition_penalty) and request.repetition_penalty > 0,
        ),
        ("presence_penalty", "a number", is_number(request.presence_penalty)),
        ("frequency_penalty", "a number", is_number(request.frequency_penalty)),
        ("min_new_tokens", "an integer, 0 or more", is_integer(request.min_new_tokens, 0)),
        ("seed", "an integer from 0 to 2**63 - 1", is_integer(request.seed, 0)),
        (
            "num_likeliest",
            f"an integer from 0 to {limits.max_likeliest}, or None",
            request.num_likeliest is None
            or (is_integer(request.num_likeliest, 0) and request.num_likeliest <= limits.max_likeliest),
        ),
        (
            "min_new_tokens",
            f"0 where more than {counted(NUM_BANNED, 'token')} may end the text",
            not request.min_new_tokens or len(request.stop_ids) <= NUM_BANNED,
        ),
    ):
        _require(holds, name, wanted, getattr(request, name))


def _require(holds: bool, name: str, wanted: str, value: object) -> None:
    if not holds:
        raise RequestError(f"must be {wanted}, and is {value!r}", name)
