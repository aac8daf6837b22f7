"""Notebooks become pages: text as it is, code as blocks, and what was printed or drawn below it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Puts a page in place of each notebook; the notebook itself stays, to be downloaded."""
    for path in sorted(Path(config.docs_dir).glob("*.ipynb")):
        notebook = json.loads(path.read_text())
        files.append(File.generated(config, f"{path.stem}.md", content=page_of(notebook, path.name)))
    return files


def page_of(notebook: Mapping[str, Any], name: str) -> str:
    """The page of a notebook, which it links to."""
    cells = "\n\n".join(part for cell in notebook["cells"] for part in _parts(cell))
    title, _, rest = cells.partition("\n")
    return f"{title}\n\nThis page is a notebook: [{name}]({name}).\n{rest}\n"


def _parts(cell: Mapping[str, Any]) -> Iterator[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"```python\n{source}\n```"
    for output in cell["outputs"]:
        yield _shown(output)


def _shown(output: Mapping[str, Any]) -> str:
    if output["output_type"] == "stream":
        return _block(output["text"])
    data = output["data"]
    if "image/png" in data:
        return f"![what the cell draws](data:image/png;base64,{''.join(data['image/png']).strip()})"
    return _block(data["text/plain"])


def _block(text: str | list[str]) -> str:
    lines = _COLOURS.sub("", "".join(text)).rstrip("\n")
    return f"```{{.text .output}}\n{lines}\n```"
