"""Entries of the reference go by their public names, also where a module is called as the function in it.

mkdocstrings reads files, and takes `meshtf.scan` for the module scan.py that a package has beside the function. Such an
entry is sent to the place of the function, with its public name as the heading.
"""

from __future__ import annotations

import importlib
import re

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

_ENTRY = re.compile(r"^::: (\S+)$", re.MULTILINE)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrites the entries of a page of the reference."""
    return _ENTRY.sub(lambda match: entry_of(match[1]), markdown)


def entry_of(name: str) -> str:
    """The entry of a public name."""
    package, _, own_name = name.rpartition(".")
    module = getattr(getattr(importlib.import_module(package), own_name), "__module__", "")
    if not module.endswith(f".{own_name}"):
        return f"::: {name}"
    return f"::: {module}.{own_name}\n    options: {{ heading: {name}, toc_label: {own_name} }}"
