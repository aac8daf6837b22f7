"""The form of a reply, as requests write it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from meshtf.serving.http.api_error import ApiError
from meshtf.serving.http.reading.fields import Fields
from meshtf.serving.http.reading.response_format import constraint_of

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}
NAMED = {"name": "count", "description": "a count", "strict": True, "schema": SCHEMA}


def fields(form: Any) -> Fields:
    return Fields({"response_format": form}, ("response_format",))


@pytest.mark.parametrize(
    ("form", "schema"),
    [
        (None, None),
        ({"type": "text"}, None),
        ({"type": "json_object"}, {"type": "object"}),
        ({"type": "json_schema", "json_schema": NAMED}, SCHEMA),
    ],
)
def test_forms(form: Any, schema: Any) -> None:
    found = constraint_of(fields(form))
    assert (found and (found.kind, json.loads(found.text))) == (schema and ("json_schema", schema))


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ("json", 'response_format must be an object, and is "json".'),
        ({}, 'response_format.type must be "text", "json_object" or "json_schema", and is null.'),
        ({"type": 1}, "response_format.type must be a string, and is 1."),
        ({"type": "json_schema"}, "response_format.json_schema must be an object, and is null."),
        (
            {"type": "json_schema", "json_schema": {"name": "a"}},
            "response_format.json_schema.schema must be an object, and is null.",
        ),
        (
            {"type": "json_schema", "json_schema": {"shema": {}}},
            'There is no field "response_format.json_schema.shema"; did you mean "schema"?',
        ),
    ],
)
def test_wrong_forms(form: Any, message: str) -> None:
    with pytest.raises(ApiError) as raised:
        constraint_of(fields(form))
    assert str(raised.value) == message
