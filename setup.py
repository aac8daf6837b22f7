"""The packages of meshtf, found rather than listed. Everything else about the project is in pyproject.toml.

`layers/`, `models/` and `gin_configs/` stand at the top of the tree and install under `meshtf`, so that a user's own
`models/` never clashes with ours. `meshtf_programs/` installs beside it, since importing anything of `meshtf` takes the
seconds of TensorFlow's import. pyproject.toml can either find packages or map them onto folders, not both.
"""

from __future__ import annotations

from setuptools import find_namespace_packages, setup

MAPPED_FOLDERS = ("layers", "models", "gin_configs")


def find_under(folder: str) -> list[str]:
    """The package in `folder` and all that are inside it, dotted."""
    return find_namespace_packages(include=[folder, f"{folder}.*"], exclude=["*.__pycache__"])


setup(
    packages=[
        *find_under("meshtf"),
        *find_under("meshtf_programs"),
        *(f"meshtf.{name}" for folder in MAPPED_FOLDERS for name in find_under(folder)),
    ],
    package_dir={f"meshtf.{folder}": folder for folder in MAPPED_FOLDERS},
    package_data={"": ["*.gin", "*.toml", "*.html", "*.css", "*.js", "py.typed"]},
    include_package_data=False,  # else whatever the sdist holds, READMEs too
)
