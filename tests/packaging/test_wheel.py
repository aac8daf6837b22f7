"""The wheel holds the whole tree, and works installed in a virtual environment of its own, from another folder.

Nothing is downloaded: the build runs without isolation, and the new environment sees the running one's packages through
a .pth file. It does not see an editable meshtf there, since .pth files are not followed from a .pth file.
"""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path, PurePosixPath

import pytest

TREE = Path(__file__).resolve().parents[2]
# Folder of the tree -> where its files install.
INSTALLED_FOLDERS = {
    "meshtf": "meshtf",
    "layers": "meshtf/layers",
    "models": "meshtf/models",
    "gin_configs": "meshtf/gin_configs",
    "meshtf_programs": "meshtf_programs",
}
BUILD_FILES = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE")
INSTALLED_SUFFIXES = (".py", ".gin", ".toml", ".html", ".css", ".js", ".typed")

IMPORT_EVERYTHING = """
import importlib.resources
import pathlib
import sys

import meshtf
import meshtf.gin_configs
import meshtf.layers
import meshtf.models

for module in (meshtf, meshtf.layers, meshtf.models, meshtf.gin_configs):
    assert pathlib.Path(module.__file__).is_relative_to(sys.prefix), module.__file__
print(meshtf.__version__)
print("\\n".join(sorted(file.name for file in importlib.resources.files("meshtf.gin_configs").iterdir())))
"""


@dataclasses.dataclass(frozen=True)
class Environment:
    """A virtual environment with meshtf installed, and an empty folder to run in."""

    folder: Path
    working_folder: Path

    def run(self, *command: str) -> str:
        """What a command of the environment prints."""
        program = self.folder / "bin" / command[0]
        return run(str(program), *command[1:], folder=self.working_folder)


def run(*command: str, folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, f"{' '.join(command)} failed:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def installed_files(tree: Path) -> set[str]:
    """Path in the wheel of every file in the tree that has to be there."""
    return {
        str(PurePosixPath(target) / path.relative_to(tree / source).as_posix())
        for source, target in INSTALLED_FOLDERS.items()
        for path in (tree / source).rglob("*")
        if path.suffix in INSTALLED_SUFFIXES or path.name in INSTALLED_SUFFIXES
    }


def copy_of_the_tree(folder: Path) -> Path:
    """What the build reads, copied, so that it leaves nothing in the tree and finds nothing stale there."""
    folder.mkdir()
    for name in BUILD_FILES:
        shutil.copy(TREE / name, folder / name)
    for name in INSTALLED_FOLDERS:
        shutil.copytree(TREE / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def make_environment(folder: Path, *install: str) -> Environment:
    """A new environment, after `pip install <install>` without dependencies."""
    environment = folder / "environment"
    venv.create(environment, with_pip=False, symlinks=True)
    names = {"base": str(environment), "platbase": str(environment)}
    site_packages = Path(sysconfig.get_path("purelib", scheme="venv", vars=names))
    running = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (site_packages / "dependencies.pth").write_text("\n".join(sorted(running)) + "\n")
    target = ("--python", str(environment / "bin" / "python"))
    options = (
        "--quiet",
        "--no-deps",
        "--no-index",
        "--disable-pip-version-check",
        "--no-build-isolation",
        "--no-compile",
    )
    run(sys.executable, "-m", "pip", *target, "install", *options, *install, folder=folder)
    working_folder = folder / "elsewhere"
    working_folder.mkdir()
    return Environment(environment, working_folder)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the sdist."""
    tree = copy_of_the_tree(tmp_path_factory.mktemp("build") / "tree")
    # Without --wheel or --sdist, `build` makes the sdist, and the wheel from that.
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", "dist", ".", folder=tree)
    (path,) = (tree / "dist").glob("*.whl")
    return path


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return make_environment(tmp_path_factory.mktemp("installed"), str(wheel))


def test_every_folder_of_modules_is_a_package() -> None:
    """A folder without __init__.py is a namespace, to which other projects can add, and editable installs differ."""
    folders = {module.parent for name in INSTALLED_FOLDERS for module in (TREE / name).rglob("*.py")}
    assert [str(folder.relative_to(TREE)) for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


def test_wheel_holds_exactly_the_tree(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    expected = installed_files(TREE)
    assert {"meshtf/py.typed", "meshtf/gin_configs/digits_mlp.gin", "meshtf/layers/__init__.py"} <= expected
    assert packed == expected


def test_wheel_carries_its_license(wheel: Path) -> None:
    project = tomllib.loads((TREE / "pyproject.toml").read_text())["project"]
    citation = (TREE / "CITATION.cff").read_text()
    with zipfile.ZipFile(wheel) as archive:
        (license_file,) = [name for name in archive.namelist() if name.endswith("licenses/LICENSE")]
        (metadata,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        assert archive.read(license_file).decode() == (TREE / "LICENSE").read_text()
        assert f"License-Expression: {project['license']}\n" in archive.read(metadata).decode()
    assert f"\nversion: {project['version']}\n" in citation
    assert f"\nlicense: {project['license']}\n" in citation


def test_installed_wheel_runs_from_another_folder(environment: Environment) -> None:
    version, *names = environment.run("python", "-W", "error", "-c", IMPORT_EVERYTHING).split()
    assert version == tomllib.loads((TREE / "pyproject.toml").read_text())["project"]["version"]
    in_tree = {path.name for path in (TREE / "gin_configs").glob("*.gin")}
    assert in_tree
    assert in_tree <= set(names)
    assert "--gin_file" in environment.run("meshtf-train", "--help")


@pytest.mark.long
def test_editable_install_finds_the_mapped_packages(tmp_path: Path) -> None:
    tree = copy_of_the_tree(tmp_path / "tree")
    editable = make_environment(tmp_path, "--editable", str(tree))
    new_package = tree / "layers" / "added_later"
    new_package.mkdir()
    (new_package / "__init__.py").write_text("FOUND = True\n")
    find = "import importlib.util as u; print([u.find_spec(n).origin for n in ('meshtf', 'meshtf.layers.added_later')])"
    origins = editable.run("python", "-c", find)
    assert origins.strip() == str([str(tree / "meshtf" / "__init__.py"), str(new_package / "__init__.py")])
