"""gin configurations: finds them by name, reads them with errors that say what to do, and checks that every binding
is used.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import gin
from gin import config as gin_config

import meshtf.layers
import meshtf.train.gin_files.optimizers  # noqa: F401  (the same)
from meshtf.errors import MeshtfError
from meshtf.files.remote.failures import without_secrets
from meshtf.files.remote.local_copies import local_copy
from meshtf.files.remote.remote_folder import is_remote
from meshtf.train.gin_files.bindings import Parameter, keep, present_bindings
from meshtf.train.gin_files.errors import ConfigurationError, explained
from meshtf.train.gin_files.kinds import check_kinds
from meshtf.train.gin_files.reading import read
from meshtf.train.gin_files.unread import check_bindings_are_read
from meshtf_programs.packaged_configurations import gin_file_choices, no_gin_file
from meshtf_programs.user_paths import UserPathError, user_path

OPERATIVE_CONFIG = "operative_config.gin"

TWO_FILES = """\
gin file "{name}" could be either of two:
  {packaged}
  {local}
Write ./{name} for the second, or rename it."""

_REFERS_TO_ITSELF = """\
the configuration refers to itself: a macro or a configurable needs a value that needs it in turn"""

if hasattr(sys, "ps1"):  # a notebook, or Python's prompt, where a cell that defines a configurable is run again
    gin.enter_interactive_mode()


def find_gin_file(name: str) -> Path:
    """Finds the file of a configuration: one of meshtf's own by its name, a path from the current folder, or a copy of
    one on remote storage.

    Raises:
      ConfigurationError: if there is none, or if it could be either of two different files.
    """
    if is_remote(name):
        try:
            return local_copy(name)
        except OSError as error:
            raise ConfigurationError(f"the gin file {without_secrets(name)}: {error.strerror or error}") from None
    try:
        found = gin_file_choices(str(user_path(name)) if "://" in name else name)
    except UserPathError as error:
        raise ConfigurationError(f"the gin file {error}") from None
    if not found:
        raise ConfigurationError(no_gin_file(name))
    if len(found) == 2 and found[0].read_bytes() != found[1].read_bytes():
        raise ConfigurationError(TWO_FILES.format(name=name, packaged=found[0], local=found[1].resolve()))
    return found[0]


def read_configuration(files: Sequence[Path], parameters: Sequence[str | Parameter]) -> None:
    """Replaces gin's configuration by files, and by bindings that override them.

    An `include` is searched for in the folder of its file, and then as `find_gin_file` does. An `import` is searched
    for among the installed modules, then in the folder of its file, then in the current folder. A text that begins with
    `{here}/` is a path in the folder of its file.

    Raises:
      ConfigurationError: if something is wrong. The message has the line or the flag, and for an unknown name the
        nearest match.
    """
    gin.clear_config()
    keep([])
    with configuration_errors():
        bindings, all_files = read(files, parameters, find_gin_file)
        check_kinds(bindings)
        keep(bindings, all_files)
        gin.finalize()
    # Finalizing locks gin against new configurables. But a model may be the first to import a layer that is one.
    gin_config._set_config_is_locked(False)


def check_every_binding_is_read(*, of_flags_alone: bool = False) -> None:
    """Checks that every binding was read. Call it when the configured objects are made and the programs are built.

    Args:
      of_flags_alone: whether to check only bindings from flags. A program need not read all of a run's configuration.

    Raises:
      ConfigurationError: if a binding was not read, and is not named in `optional_bindings.names`.
    """
    check_bindings_are_read([b for b in present_bindings() if b.origin.is_flag or not of_flags_alone])


@contextlib.contextmanager
def configuration_errors() -> Iterator[None]:
    """Turns errors of gin, and of the constructors that it calls, into a ConfigurationError."""
    try:
        yield
    except RecursionError as error:
        raise ConfigurationError(_REFERS_TO_ITSELF) from error
    except MeshtfError as error:
        if (text := explained(error)) == str(error):
            raise
        raise ConfigurationError(text) from error
    except Exception as error:  # a user's own configurable may raise anything
        raise ConfigurationError(explained(error)) from error
