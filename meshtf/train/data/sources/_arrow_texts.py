"""Texts in an Arrow column."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from meshtf.errors import nearest
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.sources.document import Document

TEXT_TYPES = frozenset({"string", "large_string", "string_view", "binary", "large_binary", "binary_view"})


def check_column(schema: Any, column: str, name: str, option: str) -> None:
    """Checks that a schema has a column of texts.

    Raises:
      ConfigurationError: if there is no such column, or it has no texts. `option`: the option that names the column.
    """
    names = list(schema.names)
    if column not in names:
        raise ConfigurationError(
            f'{name} has no column "{column}", only {", ".join(sorted(names)) or "none at all"}'
            f"{nearest(column, names)}\n{option} says which column is the text."
        )
    kind = schema.field(column).type
    if str(_plain(kind)) not in TEXT_TYPES:
        raise ConfigurationError(f'{name}: the column "{column}" holds {kind}, and no text')


def _plain(kind: Any) -> Any:
    """Returns the type of a column's values, which a dictionary, run-end or extension type may wrap."""
    for start, inner in (
        ("dictionary<", "value_type"),
        ("run_end_encoded<", "value_type"),
        ("extension<", "storage_type"),
    ):
        if str(kind).startswith(start):
            return _plain(getattr(kind, inner))
    return kind


def texts_in(batches: Iterable[Any], column: str, name: str) -> Iterator[Document]:
    """Yields the texts of a column that are not blank and not null."""
    number = 0
    for batch in batches:
        for value in batch.column(column).to_pylist():
            number += 1
            if value is not None and value.strip():
                content = value.encode(errors="surrogatepass") if isinstance(value, str) else value
                yield Document(f"{name}, row {number}", content)
