"""Chat templates of checkpoints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from meshtf.serving.http.api_error import ApiError
from meshtf.serving.http.chat_template import ChatTemplate, ChatTemplateError

CHAT_ML = """\
{{ bos_token }}{% for message in messages %}
{%- if message.role == 'tool' %}{{ raise_exception('no tools here') }}{% endif %}
<|{{ message.role }}|>{{ message.content | trim }}<|end|>
{% endfor %}
{% if add_generation_prompt %}<|assistant|>{% endif %}"""
MESSAGES = [{"role": "system", "content": " be brief "}, {"role": "user", "content": "<b> ü"}]
PROMPT = "<s><|system|>be brief<|end|>\n<|user|><b> ü<|end|>\n<|assistant|>"


def test_the_forms_of_hugging_face(tmp_path: Path) -> None:
    """By the reading of transformers: blocks take their line's end, and nothing is escaped."""
    assert ChatTemplate.of_checkpoint([tmp_path]) is None
    config = tmp_path / "tokenizer_config.json"
    config.write_text(json.dumps({"bos_token": {"content": "<s>"}, "chat_template": CHAT_ML}))
    found = ChatTemplate.of_checkpoint([tmp_path / "gone", tmp_path])
    assert found is not None
    assert found.prompt(MESSAGES) == PROMPT
    named = [{"name": "rag", "template": "x"}, {"name": "default", "template": CHAT_ML}]
    config.write_text(json.dumps({"bos_token": "<s>", "chat_template": named}))
    assert ChatTemplate.of_checkpoint([tmp_path]) == found
    (tmp_path / "chat_template.jinja").write_text("own {{ messages | length }}")
    own = ChatTemplate.of_checkpoint([tmp_path])
    assert own is not None
    assert own.prompt(MESSAGES) == "own 2"
    assert ChatTemplate.of_file(tmp_path / "chat_template.jinja").prompt(MESSAGES) == "own 2"


def test_the_mark_of_the_assistants_part_changes_no_text() -> None:
    """SmolLM3's template has this tag, from which transformers makes masks for training."""
    text = "{% for m in messages %}{% generation %}{% set x = m.role %}{{ x }};{% endgeneration %}{{ x }}{% endfor %}"
    assert ChatTemplate(text).prompt(MESSAGES) == "system;user;"
    with pytest.raises(ChatTemplateError, match="no template of Jinja2: Unexpected end of template"):
        ChatTemplate("{% generation %}")


def test_a_template_can_refuse_and_reaches_nothing() -> None:
    template = ChatTemplate(CHAT_ML)
    with pytest.raises(ApiError, match=r"chat template refuses these messages: no tools here\.$"):
        template.prompt([{"role": "tool", "content": ""}])
    for attack in ("{{ ''.__class__.__mro__ }}", "{{ messages.append(1) }}", "{{ [].__class__() }}{{ 1 / 0 }}"):
        with pytest.raises(ApiError, match="chat template refuses these messages"):
            ChatTemplate(attack).prompt(MESSAGES)


def test_wrong_templates_are_named(tmp_path: Path) -> None:
    with pytest.raises(ChatTemplateError, match="no template of Jinja2: unexpected '}'"):
        ChatTemplate("{{ }")
    with pytest.raises(ChatTemplateError, match="gone cannot be read"):
        ChatTemplate.of_file(tmp_path / "gone")
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(ChatTemplateError, match=r"tokenizer_config.json is no JSON"):
        ChatTemplate.of_checkpoint([tmp_path])
