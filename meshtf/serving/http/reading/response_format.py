"""The form of a reply that a request asks for."""

from __future__ import annotations

from typing import Any, cast

from meshtf.serving.http.reading.fields import Fields
from meshtf.train.decoding.forms.constraints import JSON_SCHEMA, Constraint
from meshtf_programs.strict_json import json_text

FIELD = "response_format"


def constraint_of(fields: Fields) -> Constraint | None:
    """Returns the form in the field `response_format`, or None for any text.

    Raises:
      ApiError: if the field is wrong.
    """
    if fields.get(FIELD) is None:
        return None
    said = Fields(_object(fields, FIELD), ("type", "json_schema"), where=f"{FIELD}.")
    match said.text("type"):
        case "text":
            return None
        case "json_object":
            return Constraint(JSON_SCHEMA, json_text({"type": "object"}))
        case "json_schema":
            known, where = ("name", "description", "schema", "strict"), f"{FIELD}.json_schema."
            named = Fields(_object(said, "json_schema"), known, where=where)
            return Constraint(JSON_SCHEMA, json_text(_object(named, "schema")))
        case _:
            said.refuse("type", '"text", "json_object" or "json_schema"')


def _object(fields: Fields, name: str) -> dict[str, Any]:
    value = fields.get(name)
    if not isinstance(value, dict):
        fields.refuse(name, "an object")
    return cast("dict[str, Any]", value)
