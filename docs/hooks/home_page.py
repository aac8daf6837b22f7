"""Pages of the site that stand elsewhere in the tree: README.md is its home."""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

_PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
_CONFIGURATIONS = "gin_configs"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds them, and the configurations to which they link."""
    tree = Path(config.docs_dir).parent
    for source, page in _PAGES.items():
        files.append(File.generated(config, page, content=moved((tree / source).read_text())))
    for path in sorted((tree / _CONFIGURATIONS).glob("*.gin")):
        files.append(File.generated(config, f"{_CONFIGURATIONS}/{path.name}", abs_src_path=str(path)))
    return files


def moved(text: str) -> str:
    """A page of the tree's top, as it reads inside docs/, where notebooks are pages."""
    for source, page in _PAGES.items():
        text = text.replace(f"]({source})", f"]({page})")
    return re.sub(r"\]\((\w+)\.ipynb\)", r"](\1.md)", text.replace("](docs/", "]("))
