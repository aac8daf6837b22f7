"""A checkpoint's own template for chats, in Jinja2's sandbox."""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NoReturn

from meshtf.errors import MeshtfError
from meshtf.files.regular_file import read_regular
from meshtf.serving.http.api_error import ApiError
from meshtf_programs.strict_json import json_text

_LARGEST = 1 << 20
_TEMPLATE_FILE, _CONFIGURATION = "chat_template.jinja", "tokenizer_config.json"
_LARGEST_CONFIGURATION = 64 << 20
_SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


class ChatTemplateError(MeshtfError, ValueError):
    """A template for chats that cannot be read."""


@dataclasses.dataclass(frozen=True)
class ChatTemplate:
    """A template that turns a chat's messages into one prompt, in the form of Hugging Face's tokenizers.

    A template comes with a checkpoint, so it runs in a sandbox: it changes nothing, and reaches no file.

    Attributes:
      text: the template.
      special_tokens: the special tokens that it may name, as "bos_token".

    Raises:
      ChatTemplateError: if it is no template.
    """

    text: str
    special_tokens: Mapping[str, str] = dataclasses.field(default_factory=lambda: {})

    def __post_init__(self) -> None:
        self._compiled()

    def prompt(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """Returns the prompt, up to where the assistant's answer begins.

        Raises:
          ApiError: if the template refuses the messages.
        """
        from jinja2 import TemplateError

        values = {**self.special_tokens, "messages": list(messages), "add_generation_prompt": True}
        try:
            return str(self._compiled().render(values, tools=None, documents=None))
        except (TemplateError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
            raise ApiError(f"The model's chat template refuses these messages: {error}.", param="messages") from None

    def _compiled(self) -> Any:
        from jinja2 import TemplateError
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _generation_tag()]
        )
        environment.filters["tojson"] = _to_json
        environment.globals.update(raise_exception=_refuse, strftime_now=_now)
        try:
            return environment.from_string(self.text)
        except TemplateError as error:
            raise ChatTemplateError(f"the chat template is no template of Jinja2: {error}") from error

    @classmethod
    def of_file(cls, path: Path, folders: Sequence[Path] = ()) -> ChatTemplate:
        """Reads a template. `folders` are searched for the names of special tokens."""
        said = [_configuration(folder) for folder in folders]
        return cls(_read(path), _special_tokens(next((each for each in said if each), {})))

    @classmethod
    def of_checkpoint(cls, folders: Sequence[Path]) -> ChatTemplate | None:
        """Returns the template in the first of these folders that has one.

        It is `chat_template.jinja`, or the entry `chat_template` of `tokenizer_config.json`.
        """
        for folder in folders:
            said = _configuration(folder)
            path = folder / _TEMPLATE_FILE
            text = _read(path) if path.is_file() else _default_of(said.get("chat_template"))
            if text is not None:
                return cls(text, _special_tokens(said))
        return None


def _read(path: Path) -> str:
    try:
        return read_regular(path, _LARGEST).decode()
    except (OSError, ValueError) as error:
        raise ChatTemplateError(f"the chat template {path} cannot be read: {error}") from error


def _configuration(folder: Path) -> dict[str, Any]:
    path = folder / _CONFIGURATION
    if not path.is_file():
        return {}
    try:
        found = json.loads(read_regular(path, _LARGEST_CONFIGURATION))
    except (OSError, ValueError) as error:
        raise ChatTemplateError(f"{path} is no JSON: {error}") from error
    return found if isinstance(found, dict) else {}


def _default_of(said: Any) -> str | None:
    """Returns the default template of a configuration. Some configurations have a list of named templates."""
    if isinstance(said, list):
        named = {each.get("name"): each.get("template") for each in said if isinstance(each, dict)}
        said = named.get("default")
    return said if isinstance(said, str) else None


def _special_tokens(said: Mapping[str, Any]) -> dict[str, str]:
    found = {name: said.get(name) for name in _SPECIAL}
    texts = {name: value.get("content") if isinstance(value, dict) else value for name, value in found.items()}
    return {name: text for name, text in texts.items() if isinstance(text, str)}


def _to_json(value: Any, indent: int | None = None) -> str:
    return json_text(value, ensure_ascii=False, indent=indent)


def _refuse(message: object) -> NoReturn:
    from jinja2 import TemplateError

    raise TemplateError(str(message).rstrip("."))


def _generation_tag() -> Any:
    """Jinja2's extension for `{% generation %}`, which marks the assistant's part of a template for training."""
    from jinja2 import nodes
    from jinja2.ext import Extension

    class Generation(Extension):
        tags: ClassVar = {"generation"}

        def parse(self, parser: Any) -> nodes.Node:
            line = next(parser.stream).lineno
            return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)

    return Generation


def _now(form: str) -> str:
    return datetime.datetime.now().strftime(form)
