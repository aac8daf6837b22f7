"""Writes the gin files of an imported folder: the model with its weights, and its use without training."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from meshtf.checkpoint.conversion.huggingface import read_json
from meshtf.checkpoint.conversion.in_use.begin_token import PIECES, SAID_BESIDE, TOKENIZER, begins_texts
from meshtf.checkpoint.conversion.in_use.generation import Generation
from meshtf.checkpoint.conversion.in_use.text_pairs import WORD_PIECES, TextPairs

DECODER, BOTH, MASKED, CLASSIFIER = "TransformerLM", "EncoderDecoder", "MaskedLM", "TextClassifier"
"""The classes of models for which a gin file for use can be written."""

_T5_PIECES = "spiece.model"
_T5_SENTINELS = 100
_OF_BERT = TextPairs()
_OF_PAIRS = ("ends_between", "second_type")

_LENGTH_KEYS = ("max_position_embeddings", "n_positions", "seq_length", "n_ctx")
_LONGEST, _USUAL_LENGTH = 2048, 512

_WEIGHTS = """
# Paths that begin with {{here}} are in the folder of this file.
import meshtf.train.data

Training.initial_checkpoint = "{{here}}"
{tokenizer}{pairs}{decoding}{begin}
# What of this a training does not need.
optional_bindings.names = {optional}
"""

_ALONE = """\
# How meshtf-decode, -eval, -export and -plan take the model of this folder without a training. A training takes
# model.gin. To evaluate, put a text beside this file as held_out.{ending}, or give {patterns}.
include "model.gin"

Training.task = @{task}()
{lines}
Training.optimizer = @AdamWOptimizer()
AdamWOptimizer.learning_rate = 1e-5
Training.mesh_shape = "all:1"
Training.layout = ""
Training.batch_size = 8
Training.num_steps = 1
"""

_OF_TEXT = """\
TextTask.source = @TextFiles()
TextTask.held_out = @TextFiles()
TextFiles.patterns = "{{here}}/held_out.txt"
TextTask.objective = @{objective}()
TextTask.length = {length}
"""

_OF_PAIRED_TEXTS = """\
TextTask.arrangement = @Pad()
TextFiles.document = "line"
"""

_OF_LABELS = """\
LabelledTextTask.source = @LabelledFiles()
LabelledTextTask.held_out = @LabelledFiles()
LabelledFiles.patterns = "{{here}}/held_out.csv"
LabelledTextTask.labels = {labels}
LabelledTextTask.length = {length}
"""

_OBJECTIVES = {DECODER: "LanguageModel", BOTH: "SpanCorruption", MASKED: "MaskedLanguageModel"}


@dataclasses.dataclass(frozen=True)
class GinText:
    """The texts of an imported model's gin files.

    Attributes:
      model: the model's gin, from the rules.
      original: the folder that has its tokenizer.
      configuration: the configuration of Transformers; empty if there is none.
      settings: the settings of the model, from the rules.
    """

    model: str
    original: Path
    configuration: Mapping[str, Any]
    settings: Mapping[str, Any]

    @property
    def kind(self) -> str | None:
        """The model's class."""
        found = re.search(r"^Training\.model = @(\w+)\(\)", self.model, re.MULTILINE)
        return found[1] if found else None

    @property
    def generation(self) -> Generation | None:
        """The settings for continuing text. None if the model does not continue text, or has no configuration."""
        is_asked = self.kind in (DECODER, BOTH) and bool(self.configuration)
        return Generation.of(self.original, self.configuration) if is_asked else None

    @property
    def model_gin(self) -> str:
        """The model, its weights, its tokenizer, and how it continues text."""
        tokenizer, pairs, generation = self._tokenizer, self._pairs, self.generation
        decoding = "" if generation is None else f"\nimport meshtf.train.decoding\n\n{generation.gin}"
        names = [f"{self._task}.vocabulary", *re.findall(r"@(\w+)\(\)", tokenizer)] * bool(tokenizer)
        names += re.findall(r"^(\S+) =", pairs, re.MULTILINE)
        others = [MASKED] * (self.kind == CLASSIFIER)  # the packaged gin file also binds its parts
        optional = [*names, *others, "Training.initial_checkpoint", *(["Decoding"] if generation else [])]
        return self.model + _WEIGHTS.format(
            tokenizer=tokenizer, pairs=pairs, decoding=decoding, begin=self._begin, optional=optional
        )

    @property
    def alone_gin(self) -> str | None:
        """A configuration that stands in for a training. None for classes of models with no known use."""
        if self.kind not in (*_OBJECTIVES, CLASSIFIER):
            return None
        is_labelled = self.kind == CLASSIFIER
        task, ending = self._task, "csv" if is_labelled else "txt"
        source = "LabelledFiles" if is_labelled else "TextFiles"
        if is_labelled:
            lines = _OF_LABELS.format(labels=self._labels, length=self._length)
        else:
            pairs = bool(self.settings.get("reads_pairs"))
            objective = "TextPairs" if pairs else _OBJECTIVES[str(self.kind)]
            lines = _OF_TEXT.format(objective=objective, length=self._length) + _OF_PAIRED_TEXTS * pairs
        patterns = f"--gin_param='{source}.patterns=\"FILE\"'"
        return _ALONE.format(task=task, lines=lines, ending=ending, patterns=patterns)

    @property
    def _task(self) -> str:
        return "LabelledTextTask" if self.kind == CLASSIFIER else "TextTask"

    @property
    def _length(self) -> int:
        """The length of sequences, limited so that they fit into most machines' memory."""
        known = [self.settings.get("max_length"), *(self.configuration.get(key) for key in _LENGTH_KEYS)]
        own = next((size for size in known if isinstance(size, int) and size > 0), _USUAL_LENGTH)
        return min(own, _LONGEST)

    @property
    def _labels(self) -> list[str]:
        """The names of the classes, by number."""
        named = self.configuration.get("id2label") or {}
        count = int(self.settings.get("num_classes", 2))
        return [str(named.get(str(number), f"LABEL_{number}")) for number in range(count)]

    @property
    def _tokenizer(self) -> str:
        """The gin of the tokenizer's vocabulary, or an empty text without a tokenizer."""
        if any((self.original / name).is_file() for name in (TOKENIZER, WORD_PIECES)):
            begins = "HuggingFaceVocabulary.add_begin = True\n" * (
                self.kind in (MASKED, CLASSIFIER) or self._begins_both
            )
            return self._bound("HuggingFaceVocabulary", "{here}/original") + begins
        if (self.original / PIECES).is_file():
            own = "SentencePieceVocabulary.own_ids = True\n"
            return self._bound("SentencePieceVocabulary", f"{{here}}/original/{PIECES}") + own
        if (self.original / _T5_PIECES).is_file():
            beside = self.original / SAID_BESIDE
            sentinels = read_json(beside).get("extra_ids", _T5_SENTINELS) if beside.is_file() else _T5_SENTINELS
            more = f"SentencePieceVocabulary.own_ids = True\nSentencePieceVocabulary.extra_ids = {sentinels}\n"
            return self._bound("SentencePieceVocabulary", f"{{here}}/original/{_T5_PIECES}") + more
        return ""

    def _bound(self, vocabulary: str, path: str) -> str:
        return f'{self._task}.vocabulary = @{vocabulary}()\n{vocabulary}.path = "{path}"\n'

    @property
    def _begins_both(self) -> bool:
        """Whether the tokenizer begins the texts of an encoder and of its decoder with a token, as that of BART."""
        is_said = self.kind == BOTH and (self.original / TOKENIZER).is_file()
        return is_said and begins_texts(self.original, 0) is not None

    @property
    def _pairs(self) -> str:
        """The gin of the form of pairs of texts, where it is not BERT's."""
        if self.kind != CLASSIFIER:
            return ""
        of_family = {name: self.settings[name] for name in _OF_PAIRS if name in self.settings}
        form = TextPairs.of(self.original) or TextPairs(**of_family)
        types = self.settings.get("num_token_types")
        if isinstance(types, int) and types <= form.second_type:  # the model's last type takes its place
            form = dataclasses.replace(form, second_type=max(types - 1, 0))
        changed = {name: getattr(form, name) for name in _OF_PAIRS if getattr(form, name) != getattr(_OF_BERT, name)}
        return "".join(f"{self._task}.{name} = {value}\n" for name, value in changed.items())

    @property
    def _begin(self) -> str:
        """The gin of the token before a text that a decoder continues, if the tokenizer and the model differ in it."""
        start_id = self.settings.get("start_id")
        if self.kind != DECODER or not isinstance(start_id, int):
            return ""
        begin = begins_texts(self.original, start_id)
        if begin is None:
            return "\n# The tokenizer puts no token before a text.\nTransformerLM.starts_prompts = False\n"
        return "" if begin == start_id else f"\n# As the tokenizer begins texts.\nTransformerLM.start_id = {begin}\n"
