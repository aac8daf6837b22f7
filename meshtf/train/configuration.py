"""gin configurations: found by name, read with errors that a person can act on, and written down as they were used."""

from __future__ import annotations

import contextlib
import importlib.resources
import inspect
import logging
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import gin

import meshtf.layers
import meshtf.train.gin_optimizers  # noqa: F401  (the same)
from meshtf.errors import MeshtfError, nearest

OPERATIVE_CONFIG = "operative_config.gin"

TWO_FILES = """\
gin file "{name}" could be either of two:
  {packaged}
  {local}
Write ./{name} for the second, or rename it."""

QUOTES_HINT = """\
A value is a Python literal, so a string needs quotes of its own: --gin_param='Training.layout="batch:rows"'."""


class ConfigurationError(MeshtfError, ValueError):
    """A configuration that cannot be read, or asks for what there is not."""


def packaged_folder() -> Path:
    """The folder of the configurations that meshtf brings along."""
    return Path(str(importlib.resources.files("meshtf.gin_configs")))


def find_gin_file(name: str) -> Path:
    """The file of a configuration: one of meshtf's own by its name, or a path from the current folder.

    Raises:
      ConfigurationError: there is none, or it could be either of two different files.
    """
    local, packaged = Path(name), packaged_folder() / name
    if local.is_absolute() or name.startswith((".", "~")):
        packaged, local = None, local.expanduser()
    found = [path for path in (packaged, local) if path is not None and path.is_file()]
    if not found:
        raise ConfigurationError(_no_file(name))
    if len(found) == 2 and found[0].read_bytes() != found[1].read_bytes():
        raise ConfigurationError(TWO_FILES.format(name=name, packaged=found[0], local=found[1].resolve()))
    return found[0]


def read_configuration(files: Sequence[Path], parameters: Sequence[str]) -> None:
    """Makes gin's configuration anew from files, and bindings that override them.

    Raises:
      ConfigurationError: gin's own message, with the nearest match of a name that there is not.
    """
    gin.clear_config()
    gin.add_config_file_search_path(str(packaged_folder()))  # for `include "<name>.gin"` in a file
    with configuration_errors(), _without_log():
        gin.parse_config_files_and_bindings([str(path) for path in files], list(parameters))


@contextlib.contextmanager
def configuration_errors() -> Iterator[None]:
    """Turns what gin, and the constructors it calls, raise for a bad configuration into a ConfigurationError."""
    try:
        yield
    except MeshtfError:
        raise
    except SyntaxError as error:
        raise ConfigurationError(f"{error}\n{QUOTES_HINT}") from error
    except (ImportError, OSError, RuntimeError, TypeError, ValueError) as error:
        if match := re.search(r"No bindings specified for '(\w+)/gin\.macro'", str(error)):
            known = re.findall(r"^(\w+) = ", str(error), re.MULTILINE)
            raise ConfigurationError(f"the macro %{match[1]} has no value{nearest(match[1], known)}") from error
        raise ConfigurationError(f"{error}{_suggestion(str(error))}") from error


@contextlib.contextmanager
def _without_log() -> Iterator[None]:
    """gin logs an error for each place where an included file is not, before it finds it in another."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(before)


def _no_file(name: str) -> str:
    names = sorted(path.name for path in packaged_folder().glob("*.gin"))
    return (
        f'there is no gin file "{name}"{nearest(name, names)}\n'
        f"meshtf's own are: {', '.join(names)}. Any other is given by its path; the current folder is {Path.cwd()}."
    )


def _suggestion(message: str) -> str:
    """The nearest match, where gin says that a name is unknown."""
    if match := re.search(r"Configurable '([^']+)' doesn't have a parameter named '([^']+)'", message):
        parameters = sorted(inspect.signature(gin.get_configurable(match[1])).parameters)
        return f"\n{match[1]} has the parameters {', '.join(parameters)}{nearest(match[2], parameters)}"
    if match := re.search(r"No configurable matching (?:reference )?'@?([^'()]+)", message):
        hint = nearest(match[1].rpartition(".")[2], _configurable_names())
        return f"\nA configurable is known once its module is imported in the gin file{hint}"
    return ""


def _configurable_names() -> list[str]:
    # gin lists its configurables nowhere public; without the private registry there is no hint, and nothing else lost.
    registry = getattr(gin.config, "_REGISTRY", {})
    return sorted({selector.rpartition(".")[2] for selector, _ in registry.items()})
