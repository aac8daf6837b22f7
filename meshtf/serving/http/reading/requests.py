"""The bodies of requests, read and checked: completions, chats, scores."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, cast

from meshtf.errors import counted
from meshtf.serving.engine import GenerationRequest
from meshtf.serving.http.api_error import ApiError
from meshtf.serving.http.reading.fields import Fields, checked_text
from meshtf.serving.http.reading.response_format import FIELD, constraint_of
from meshtf.serving.http.served_model import ServedModel
from meshtf.train.data.vocabularies.huggingface_vocabulary import HuggingFaceVocabulary
from meshtf.train.data.vocabularies.sentencepiece_vocabulary import SentencePieceVocabulary

MOST_CHOICES, _MOST_STOPS, _LARGEST_SEED = 128, 16, 2**31 - 1 - 128
_SHARED = (
    *("model", "n", "stream", "stream_options", "temperature", "top_p", "top_k", "min_p", "stop", "seed", "user"),
    *("max_tokens", "presence_penalty", "frequency_penalty", "repetition_penalty", "min_tokens", "logprobs"),
    FIELD,
)
_OF_COMPLETIONS = (*_SHARED, "prompt", "echo")
_OF_CHATS = (*_SHARED, "messages", "top_logprobs", "max_completion_tokens")
_UNSUPPORTED = (
    *("best_of", "suffix", "logit_bias", "tools", "tool_choice", "functions", "function_call", "modalities", "audio"),
    *("parallel_tool_calls", "prediction", "reasoning_effort", "web_search_options", "verbosity", "store", "metadata"),
    *("service_tier", "safety_identifier", "prompt_cache_key"),
)
_DEFAULT_COMPLETION_TOKENS = 16  # OpenAI's default
_ROLES = ("system", "developer", "user", "assistant", "tool")


@dataclasses.dataclass(frozen=True)
class Prompt:
    """A prompt: its text, and its ids."""

    text: str
    ids: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class TextRequest:
    """A request for text.

    Attributes:
      prompts: the prompts. Each is continued `num_choices` times.
      options: how to continue them. Its own prompt is empty.
      num_choices: the number of continuations of each prompt. Choice k draws with the seed `options.seed + k`.
      stops: the texts that end a continuation.
      is_stream: whether the text is sent while it is generated.
      tells_usage: whether a stream ends with the number of tokens.
      has_echo: whether the prompt's text comes before the continuation.
      is_chat: whether the reply is a chat's.
    """

    prompts: tuple[Prompt, ...]
    options: GenerationRequest
    num_choices: int = 1
    stops: tuple[str, ...] = ()
    is_stream: bool = False
    tells_usage: bool = False
    has_echo: bool = False
    is_chat: bool = False

    def generations(self) -> list[tuple[Prompt, GenerationRequest]]:
        """Returns the engine's request for each choice. The choices of one prompt are adjacent."""
        seeds = range(self.options.seed, self.options.seed + self.num_choices)
        return [
            (prompt, dataclasses.replace(self.options, prompt=prompt.ids, seed=seed))
            for prompt in self.prompts
            for seed in seeds
        ]


def completion_request(body: Mapping[str, Any], model: ServedModel) -> TextRequest:
    """Reads the body of a completion.

    Raises:
      ApiError: if something in it is wrong.
    """
    fields = Fields(body, _OF_COMPLETIONS, (*_UNSUPPORTED, "messages", "top_logprobs", "max_completion_tokens"))
    model.check_name(fields)
    prompts = prompts_of(fields, "prompt", model)
    likeliest = fields.integer("logprobs", 0, model.engine.limits.max_likeliest)
    most = fields.integer("max_tokens", 0, 2**31 - 1)
    most = _DEFAULT_COMPLETION_TOKENS if most is None else most
    has_echo = fields.boolean("echo")
    if most == 0 and not has_echo:
        raise ApiError(
            "max_tokens may be 0 only with echo; /v1/score returns the likelihoods of a text.", 400, "max_tokens"
        )
    for prompt in prompts:
        _check_length(len(prompt.ids), most, model)
    return _request(fields, model, prompts, most, likeliest, has_echo=has_echo)


def chat_request(body: Mapping[str, Any], model: ServedModel) -> TextRequest:
    """Reads the body of a chat.

    Raises:
      ApiError: if something in it is wrong, or the model has no template for chats.
    """
    fields = Fields(body, _OF_CHATS, (*_UNSUPPORTED, "prompt", "echo"))
    model.check_name(fields)
    messages = _messages(fields)
    if model.template is None:
        raise ApiError(
            "This model has no chat template: use /v1/completions, or start meshtf-serve with --chat_template=FILE."
        )
    text = checked_text(model.template.prompt(messages), "the chat's prompt")
    prompt = Prompt(text, _chat_ids(text, model))
    likeliest = fields.integer("top_logprobs", 0, model.engine.limits.max_likeliest)
    if likeliest is not None and not fields.boolean("logprobs"):
        raise ApiError("top_logprobs needs logprobs to be true.", param="top_logprobs")
    likeliest = (likeliest or 0) if fields.boolean("logprobs") else None
    most = fields.integer("max_completion_tokens", 1, 2**31 - 1) or fields.integer("max_tokens", 1, 2**31 - 1)
    room = model.engine.limits.max_length - len(prompt.ids)
    most = max(room, 1) if most is None else most
    _check_length(len(prompt.ids), most, model)
    return _request(fields, model, (prompt,), most, likeliest, is_chat=True)


def _request(
    fields: Fields,
    model: ServedModel,
    prompts: tuple[Prompt, ...],
    max_new_tokens: int,
    num_likeliest: int | None,
    *,
    has_echo: bool = False,
    is_chat: bool = False,
) -> TextRequest:
    num_choices = fields.integer("n", 1, MOST_CHOICES) or 1
    if num_choices * len(prompts) > MOST_CHOICES:
        raise ApiError(
            f"{counted(len(prompts), 'prompt')} with n = {num_choices} are {num_choices * len(prompts)} choices; a "
            f"request has at most {MOST_CHOICES}.",
            param="n",
        )
    stops = (*model.stops.texts, *fields.texts("stop", _MOST_STOPS))
    seed, constraint = fields.integer("seed", 0, _LARGEST_SEED), constraint_of(fields)
    # The vocabulary's end ends a text of a given form, even if it ends no other text of the model.
    ends = () if constraint is None else (model.vocabulary.end_id,)
    options = GenerationRequest(
        prompt=(),
        max_new_tokens=max_new_tokens,
        temperature=fields.number("temperature", 1.0, 0.0, 2.0),
        top_k=fields.integer("top_k", 1, model.vocabulary.size),
        top_p=fields.number("top_p", 1.0, 0.0, 1.0, above=True),
        min_p=fields.number("min_p", 0.0, 0.0, 1.0),
        repetition_penalty=fields.number("repetition_penalty", 1.0, 0.0, float("inf"), above=True),
        presence_penalty=fields.number("presence_penalty", 0.0, -2.0, 2.0),
        frequency_penalty=fields.number("frequency_penalty", 0.0, -2.0, 2.0),
        min_new_tokens=fields.integer("min_tokens", 0, max_new_tokens) or 0,
        stop_ids=tuple(dict.fromkeys([*model.stops.ids, *ends])),
        seed=secrets.randbelow(_LARGEST_SEED) if seed is None else seed,
        num_likeliest=num_likeliest,
        constraint=constraint,
        client=fields.text("user"),
    )
    is_stream = fields.boolean("stream")
    return TextRequest(
        prompts, options, num_choices, stops, is_stream, _tells_usage(fields, is_stream), has_echo, is_chat
    )


def _tells_usage(fields: Fields, is_stream: bool) -> bool:
    said = fields.get("stream_options")
    if said is None:
        return False
    if not is_stream:
        raise ApiError("stream_options needs stream to be true.", param="stream_options")
    if not isinstance(said, dict):
        fields.refuse("stream_options", "an object")
    unsupported, where = ("include_obfuscation",), "stream_options."
    return Fields(cast("dict[str, Any]", said), ("include_usage",), unsupported, where).boolean("include_usage")


def prompts_of(fields: Fields, name: str, model: ServedModel) -> tuple[Prompt, ...]:
    """Returns the texts or ids of a field: a text, a list of ids, or a list of several of them.

    Raises:
      ApiError: if it has something else, no token, or ids beyond the vocabulary.
    """
    given: Any = fields.get(name)
    if given is None:
        raise ApiError(f"{name} is missing: give a string, a list of strings, or a list of ids.", param=name)
    # A list of ids is one prompt. Any other list is several prompts.
    is_one = isinstance(given, str) or (isinstance(given, list) and bool(given) and _is_id(given[0]))
    each: Sequence[Any] = [given] if is_one else given
    wanted = "a string, a list of token ids, or a list of some of these"
    if not isinstance(each, list) or not each:
        fields.refuse(name, wanted)
    if len(each) > MOST_CHOICES:
        raise ApiError(f"{name} has {counted(len(each), 'text')}; a request has at most {MOST_CHOICES}.", param=name)
    found: list[Prompt] = []
    for one in each:
        if isinstance(one, str):
            text = checked_text(one, name)
            found.append(Prompt(text, model.encode(text)))
        elif isinstance(one, list) and one and all(_is_id(x) for x in cast("list[Any]", one)):
            ids = tuple(cast("list[int]", one))
            _check_ids(ids, name, model)
            found.append(Prompt(model.vocabulary.decode(ids), ids))
        else:
            fields.refuse(name, wanted)
    return tuple(found)


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check_ids(ids: Sequence[int], name: str, model: ServedModel) -> None:
    size = model.engine.limits.vocab_size
    wrong = next((x for x in ids if not 0 <= x < size), None)
    if wrong is not None:
        shown = str(wrong) if abs(wrong) < 10**18 else "a very large number"
        raise ApiError(f"{name} has the id {shown}, and the ids of this model go from 0 to {size - 1}.", param=name)


def _check_length(length: int, added: int, model: ServedModel) -> None:
    most = model.engine.limits.max_length
    if length + added > most:
        raise ApiError(
            f"The prompt has {counted(length, 'token')} and asks for {added} more, and this model has room for {most}.",
            param="max_tokens" if length < most else "prompt",
            code="context_length_exceeded",
        )


def _messages(fields: Fields) -> list[dict[str, Any]]:
    """Returns the messages with their contents as plain text."""
    given: Any = fields.get("messages")
    if not isinstance(given, list) or not given:
        if given is None:
            raise ApiError("messages is missing: give a list of objects with role and content.", param="messages")
        fields.refuse("messages", "a list of messages, and not empty")
    return [_message(each, f"messages[{place}]") for place, each in enumerate(cast("list[Any]", given))]


def _message(given: Any, where: str) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise ApiError(f"{where} must be an object with role and content.", param=where)
    known = ("role", "content", "name")
    fields = Fields(
        cast("dict[str, Any]", given),
        known,
        ("tool_calls", "tool_call_id", "function_call", "refusal", "audio", "annotations", "reasoning_content"),
        f"{where}.",
    )
    role = fields.text("role")
    if role not in _ROLES:
        fields.refuse("role", f"one of {', '.join(_ROLES)}")
    found = {"role": role, "content": _content(fields, where)}
    return found | ({"name": fields.text("name")} if fields.get("name") is not None else {})


def _content(fields: Fields, where: str) -> str:
    content = fields.get("content")
    if not isinstance(content, list):
        if content is None:
            raise ApiError(f"{where}.content is missing.", param=f"{where}.content")
        return fields.text("content")
    parts: list[str] = []
    for place, part in enumerate(cast("list[Any]", content)):
        name = f"{where}.content[{place}]"
        if not isinstance(part, dict) or cast("dict[str, Any]", part).get("type") != "text":
            raise ApiError(f'{name} must be an object of type "text"; this server reads text alone.', param=name)
        parts.append(Fields(cast("dict[str, Any]", part), ("type", "text"), where=f"{name}.").text("text"))
    return "".join(parts)


def _chat_ids(text: str, model: ServedModel) -> tuple[int, ...]:
    """Returns the ids of a template's text, which spells out special tokens.

    A begin token that the vocabulary or the engine puts before every text is not there twice.
    """
    ids, begin = _ids_with_special(model.vocabulary, text), model.vocabulary.begin_id
    if begin is not None and ids[:2] == (begin, begin):
        ids = ids[1:]
    return ids[1:] if model.start_id is not None and ids[:1] == (model.start_id,) else ids


def _ids_with_special(vocabulary: Any, text: str) -> tuple[int, ...]:
    if isinstance(vocabulary, SentencePieceVocabulary | HuggingFaceVocabulary):
        return tuple(vocabulary.encode_with_special(text))
    return tuple(vocabulary.encode(text))


@dataclasses.dataclass(frozen=True)
class ScoreRequest:
    """A request for scores.

    Attributes:
      texts: the texts.
      client: the client's name. The engine divides its queue fairly among clients. It is empty if none is given.
    """

    texts: tuple[Prompt, ...]
    client: str


def score_request(body: Mapping[str, Any], model: ServedModel) -> ScoreRequest:
    """Reads the body of a score.

    Raises:
      ApiError: if something in it is wrong.
    """
    fields = Fields(body, ("model", "input", "user"))
    model.check_name(fields)
    texts = prompts_of(fields, "input", model)
    for text in texts:
        if len(text.ids) > model.engine.limits.max_scored:
            raise ApiError(
                f"A text has {counted(len(text.ids), 'token')}, and this model has room for "
                f"{model.engine.limits.max_scored}.",
                param="input",
                code="context_length_exceeded",
            )
    return ScoreRequest(texts, fields.text("user"))
