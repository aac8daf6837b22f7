"""`import` in gin files: where modules are searched for, and the messages about those that fail."""

from __future__ import annotations

import importlib.util
import pkgutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from gin import config as gin_config
from gin import config_parser

from meshtf.errors import MeshtfError, nearest
from meshtf.train.gin_files.bindings import Origin
from meshtf.train.gin_files.errors import ConfigurationError, user_frames
from meshtf_programs.packaged_configurations import shown

_NO_MODULE = """\
{origin}: there is no module {module}{hint}
Looked in {folders}, in the installed packages and in the folders of PYTHONPATH."""

_ANOTHER_MODULE = """\
{origin}: import {module} finds {found}, and not {local}.
Rename the file, or the module's package, to a name that is not taken."""


def import_module(
    statement: config_parser.ImportStatement,
    context: gin_config.ParseContext,
    folders: Sequence[Path],
    origin: Origin,
) -> None:
    """Imports a module that a gin file names. It may be installed, in `PYTHONPATH`, or in one of `folders`, which come
    last.

    Raises:
      ConfigurationError: if there is no such module; if it fails (the message has its line); or if another module of
        this name hides one in the folders.
    """
    sys.path.extend(str(folder) for folder in folders if str(folder) not in sys.path)
    importlib.invalidate_caches()
    try:
        context.process_import(statement)
    except ModuleNotFoundError as error:
        if error.name and f"{statement.module}.".startswith(f"{error.name}."):
            raise ConfigurationError(_no_module(statement.module, folders, origin)) from error
        raise ConfigurationError(_failed(statement.module, error, origin)) from error
    except MeshtfError:
        raise
    except (Exception, SystemExit) as error:
        raise ConfigurationError(_failed(statement.module, error, origin)) from error
    _check_is_the_local_one(statement.module, folders, origin)


def _check_is_the_local_one(module: str, folders: Sequence[Path], origin: Origin) -> None:
    package = module.partition(".")[0]
    found = getattr(sys.modules.get(package), "__file__", None)
    local = [path for f in folders for path in (f / f"{package}.py", f / package / "__init__.py") if path.is_file()]
    if local and (found is None or Path(found).resolve() not in [path.resolve() for path in local]):
        raise ConfigurationError(
            _ANOTHER_MODULE.format(origin=origin, module=module, found=found or "a built-in module", local=local[0])
        )


def _no_module(module: str, folders: Sequence[Path], origin: Origin) -> str:
    places = " and ".join(dict.fromkeys(str(folder) for folder in folders))
    hint = nearest(module, _modules_in_same_folder(module, folders))
    return _NO_MODULE.format(origin=origin, module=module, hint=hint, folders=places)


def _modules_in_same_folder(module: str, folders: Sequence[Path]) -> Iterator[str]:
    """Yields the whole names of the modules in the folders where this one would be."""
    package = module.rpartition(".")[0]
    parent = sys.modules.get(package)
    paths = [str(folder) for folder in folders] if not package else list(getattr(parent, "__path__", []))
    for found in pkgutil.iter_modules(paths):
        yield f"{package}.{found.name}" if package else found.name


def _failed(module: str, error: BaseException, origin: Origin) -> str:
    if isinstance(error, SyntaxError) and error.filename:
        place, what = f"{shown(Path(error.filename))}:{error.lineno}", f"{error.msg}: {(error.text or '').strip()}"
    else:
        frames = user_frames(error)
        place, what = (f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "no line of yours"), str(error)
    if isinstance(error, SystemExit):
        what = f'it ends the program; put what runs under `if __name__ == "__main__":` ({what})'
    return f"{origin}: import {module} fails at {place}: {type(error).__name__}: {what}"
