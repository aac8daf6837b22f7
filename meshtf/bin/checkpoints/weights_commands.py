"""The commands `import` and `export` of meshtf-checkpoint, for weights of other libraries."""

from __future__ import annotations

from pathlib import Path

from meshtf.bin.checkpoints._transformers_check import check_installed, compare_logits
from meshtf.checkpoint.checkpoint_paths import open_source
from meshtf.checkpoint.conversion.converted import listed
from meshtf.checkpoint.conversion.exporting import FLOATING, Original, export_huggingface
from meshtf.checkpoint.conversion.imported_folder import ImportedFolder
from meshtf.checkpoint.conversion.importing import Import
from meshtf.checkpoint.conversion.operative_config import read_bindings
from meshtf.checkpoint.conversion.optimizer_slots import OptimizerSlots
from meshtf.errors import CheckpointError, counted
from meshtf.train.configuration import OPERATIVE_CONFIG
from meshtf.train.model_forms import factored_sides, model_forms
from meshtf_programs.command_lines.checkpoint import GOOGLE_BERT, HUGGINGFACE, MESH_TENSORFLOW, Options
from meshtf_programs.user_paths import UserPathError, user_path

_OPENERS = {
    HUGGINGFACE: Import.of_huggingface,
    MESH_TENSORFLOW: Import.of_mesh_tensorflow,
    GOOGLE_BERT: Import.of_google_bert,
}

_NO_STATE = """\
--optimizer_state is for --format=mesh_tensorflow and google_bert: folders of {format_name} have only weights.
Nothing was written."""

_NO_KEYS = """\
--ignore_key is for --format=huggingface: an import of {format_name} reads no config.json. Nothing was written."""

_NO_CHECK = "--check is for --format=huggingface: Transformers cannot open {format_name}. Nothing was written."

_NO_CONFIGURATION = """\
{path} does not name its model of Transformers: it is neither an import, nor a checkpoint of a training that began with
one. Give --config: the folder that was imported, a folder of Transformers, or a config.json."""

_UNMATCHED = "meshtf-decode has no counterpart of {settings}, and continues text without them"


def import_weights(source: Path, output: Path, options: Options) -> str:
    """Imports weights of another library. Returns text on the result."""
    if options.with_slots and options.format == HUGGINGFACE:
        raise CheckpointError(_NO_STATE.format(format_name=options.format))
    if options.ignored_keys and options.format != HUGGINGFACE:
        raise CheckpointError(_NO_KEYS.format(format_name=options.format))
    if options.checks:
        if options.format != HUGGINGFACE:
            raise CheckpointError(_NO_CHECK.format(format_name=options.format))
        check_installed()
    dtype = options.dtype or "float32"
    more = {"ignored_keys": options.ignored_keys} if options.ignored_keys else {}
    rules = user_path(options.rules) if options.rules else None
    found = _OPENERS[options.format](source, rules, FLOATING[dtype], is_strict=options.is_strict, **more)
    written = found.write(output, model_forms, factored_sides if options.with_slots else None)
    folder = ImportedFolder(output)
    lines = [
        f"{output} has the {counted(len(found.weights.tensors), 'tensor')} of {source}, as {dtype}",
        *(f"rounded:    numbers of {wide} to {dtype}" for wide in found.rounded_to(FLOATING[dtype])),
        f"model:      {folder.model_gin}",
        f"weights:    {folder.checkpoint}",
        f"kept:       {', '.join(written.tokenizer) or 'no tokenizer was there'}",
        *([f"generation: {_UNMATCHED.format(settings=', '.join(written.unmatched))}"] if written.unmatched else []),
        *_slots_text(written.slots),
        *listed("left out, taken by no rule", found.left_out),
        *([compare_logits(source, folder)] if options.checks else []),
    ]
    return "\n".join(lines)


def _slots_text(slots: OptimizerSlots | None) -> list[str]:
    if slots is None:
        return []
    title = f"optimizer:  {counted(len(slots.tensors), 'tensor')} of its state"
    return [title, *listed("left out of the optimizer's state", slots.left_out)]


def export_weights(path: Path, output: Path, options: Options) -> str:
    """Exports a checkpoint as a folder for Transformers. Returns text on the result."""
    source = open_source(path)
    original = Original.of(user_path(options.config) if options.config else _imported(path))
    dtype, ignored = FLOATING[options.dtype] if options.dtype else None, options.ignored_keys
    names = export_huggingface(source, original, output, dtype, is_strict=options.is_strict, ignored_keys=ignored)
    return f"{output} has {', '.join(names)}"


def _imported(path: Path, seen: frozenset[Path] = frozenset()) -> Path:
    """Returns the imported folder of a checkpoint, or the one that its training, or an earlier training, began with.

    `seen`: the configurations of runs that were already followed. They are not followed again.
    """
    for folder in (path, path.parent, path.parent.parent):
        if ImportedFolder(folder).is_there:
            return folder
        configuration = (folder / OPERATIVE_CONFIG).resolve()
        if configuration.is_file() and configuration not in seen:
            return _imported(_beginning_of(configuration, path), seen | {configuration})
    raise CheckpointError(_NO_CONFIGURATION.format(path=path))


def _beginning_of(configuration: Path, path: Path) -> Path:
    """Returns the initial checkpoint of a run."""
    bindings = {binding.name: binding for binding in read_bindings(configuration)}
    given = bindings.get("Training.initial_checkpoint")
    if given is not None and given.resolved.startswith("@"):
        given = bindings.get(f"{given.resolved[1:].removesuffix('()')}.path")
    if given is None or not isinstance(given.value, str):
        raise CheckpointError(_NO_CONFIGURATION.format(path=path))
    try:
        beginning = user_path(given.value)
    except UserPathError as error:
        raise CheckpointError(f"{_NO_CONFIGURATION.format(path=path)}\nIts training began with {error}.") from None
    if not beginning.exists():
        raise CheckpointError(_NO_CONFIGURATION.format(path=path))
    return beginning
