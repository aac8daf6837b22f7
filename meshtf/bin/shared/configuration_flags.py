"""Converts the flags of configurations to gin files and bindings."""

from __future__ import annotations

from pathlib import Path

from absl import flags

from meshtf.train.configuration import find_gin_file
from meshtf.train.gin_files.bindings import Parameter
from meshtf.train.runs.run_folder import RunFolder
from meshtf_programs.packaged_configurations import recipe_file


def gin_files(values: flags.FlagValues) -> list[Path]:
    """Returns the files of --gin_file, and then the recipe's file, whose bindings win."""
    recipe = [] if values.recipe is None else [str(recipe_file(values.recipe))]
    return [find_gin_file(name) for name in [*values.gin_file, *recipe]]


def run_files(values: flags.FlagValues) -> list[Path]:
    """Returns the configuration of the run or imported folder that --model_dir names, or nothing without that flag.

    Raises:
      ConfigurationError: if it names no such folder, or if the configuration needs trust.
    """
    if values.model_dir is None:
        return []
    return [RunFolder.existing(values.model_dir).trusted_configuration(trust_config=values.trust_config)]


def mesh_bindings(values: flags.FlagValues) -> list[Parameter]:
    """Returns the gin bindings for --mesh_shape and --layout."""
    names = [name for name in ("mesh_shape", "layout") if values[name].value is not None]
    return [Parameter(f"--{name}", f"Training.{name} = {values[name].value!r}") for name in names]
