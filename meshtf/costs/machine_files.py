"""Files that describe machines: some come with this package, and a probe or people write others.

A file is TOML, with the fields of `Machine`. Its links are a table `[torus]` or tables `[[levels]]`.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

import gin

from meshtf.costs.machine import Machine, NetworkLevel, TorusLinks
from meshtf.errors import MachineError, nearest
from meshtf_programs.strict_json import json_text
from meshtf_programs.user_paths import user_path

_UNKNOWN = """\
there is no machine "{name}".{nearest} The known machines are {known}.
To use a file that meshtf-probe wrote, give its path, which ends in .toml."""


def machine_names() -> list[str]:
    """Lists the names of the machines that come with this package.

    Examples:
      >>> "v5p" in mtf.costs.machine_names()
      True
    """
    return sorted(file.name.removesuffix(".toml") for file in _folder().iterdir() if file.name.endswith(".toml"))


@gin.configurable(module="meshtf")
def load_machine(name: str) -> Machine:
    """Loads a machine by its name, or by the path of its file.

    Args:
      name: one of `machine_names()`, or a path that ends in .toml.

    Raises:
      MachineError: if there is none of this name (the message lists the names), or if a field of its file is wrong.

    Examples:
      >>> mtf.costs.load_machine("v3").memory_bytes / 2**30
      16.0
    """
    name = str(name)
    if name in machine_names():
        return _parsed((_folder() / f"{name}.toml").read_text(), f"machine {name}")
    path = user_path(name)
    if path.suffix != ".toml" and not path.is_file():
        known = machine_names()
        raise MachineError(
            _UNKNOWN.format(name=name, nearest=nearest(name, known).replace("; d", " D"), known=", ".join(known))
        )
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise MachineError(f"the machine's file {path} cannot be read: {error}") from error
    return _parsed(text, str(path))


def machine_text(machine: Machine) -> str:
    """The text of a file from which `load_machine` loads an equal machine."""
    fields = {f.name: getattr(machine, f.name) for f in dataclasses.fields(machine)}
    links, peaks = fields.pop("links"), fields.pop("peak_flops")
    lines = [f"{key} = {_toml(value)}" for key, value in fields.items() if value is not None]
    lines += ["", "[peak_flops]", *(f"{dtype} = {_toml(flops)}" for dtype, flops in peaks.items())]
    for level in [links] if isinstance(links, TorusLinks) else links:
        lines += ["", "[torus]" if isinstance(links, TorusLinks) else "[[levels]]"]
        lines += [f"{k} = {_toml(v)}" for k, v in dataclasses.asdict(level).items() if v is not None]
    return "\n".join(lines) + "\n"


def _folder() -> Traversable:
    return files("meshtf.costs.machines")


def _parsed(text: str, where: str) -> Machine:
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise MachineError(f"{where} is not TOML: {error}") from error
    torus, levels = data.pop("torus", None), data.pop("levels", None)
    if (torus is None) == (levels is None):
        raise MachineError(f"{where}: links must be a table [torus] or tables [[levels]], exactly one of the two")
    listed = levels if isinstance(levels, list) else [levels]
    if not all(isinstance(table, dict) for table in ([torus] if levels is None else listed)):
        raise MachineError(f"{where}: links must be a table [torus] or tables [[levels]], not {torus or levels!r}")
    try:
        if torus is not None:
            data["links"] = _made(TorusLinks, torus, "[torus] ")
        else:
            data["links"] = tuple(_made(NetworkLevel, {"cores": None} | level, "[[levels]] ") for level in listed)
        if isinstance(data.get("product_tile"), list):
            data["product_tile"] = tuple(data["product_tile"])
        return _made(Machine, data, "")
    except MachineError as error:
        raise MachineError(f"{where}: {error}") from error


def _made(cls: type, given: Mapping[str, Any], place: str) -> Any:
    fields = {f.name: f for f in dataclasses.fields(cls)}
    for key in given:
        if key not in fields:
            known = nearest(key, [n for n in fields if n != "links"])
            raise MachineError(f'{place}"{key}" is not a field of a machine{known}')
    needed = (dataclasses.MISSING,)
    missing = [n for n, f in fields.items() if f.default in needed and n not in given]
    if missing:
        raise MachineError(f"{place}{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing")
    return cls(**given)


def _toml(value: Any) -> str:
    if isinstance(value, str):
        return json_text(value, ensure_ascii=False)  # its escapes are TOML's
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, float):
        return repr(float(value))  # also of NumPy's numbers
    return str(value)
