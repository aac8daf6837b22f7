"""What an imported folder's gin files say beside the model, and programs that take the folder as they take a run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import gin
import numpy as np
import pytest
from safetensors.numpy import load_file

from meshtf.bin import decode, export, train
from meshtf.bin import eval as evaluation
from meshtf.checkpoint.checkpoint_paths import open_source
from meshtf.checkpoint.conversion.in_use.gin_text import GinText
from meshtf.train.configuration import read_configuration
from tests.checkpoint.conversion.imported_models import MODELS, run

TOKENIZER = {  # a token for each of 20 words; nothing is put before a text
    "version": "1.0",
    "model": {"type": "WordLevel", "vocab": {f"w{n}": n for n in range(20)}, "unk_token": "w0"},
    "pre_tokenizer": {"type": "Whitespace"},
    "added_tokens": [],
}
TRAINING = """
import meshtf.train.data

Training.task = @TextTask()
TextTask.source = @TextFiles()
TextFiles.patterns = "text.txt"
TextFiles.document = "line"
TextTask.held_out = 0.3
TextTask.objective = @LanguageModel()
TextTask.length = 12
Training.optimizer = @SgdOptimizer()
SgdOptimizer.learning_rate = 0.0
Training.mesh_shape = "rows:1"
Training.layout = ""
Training.batch_size = 2
Training.num_steps = 1
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's folder, with an imported GPT-2 in it, whose tokenizer adds no begin token."""
    pytest.importorskip("tokenizers")
    source = shutil.copytree(MODELS / "gpt2", tmp_path / "gpt2")
    (source / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    (source / "tokenizer_config.json").write_text('{"eos_token": "w2"}')
    (source / "generation_config.json").write_text('{"eos_token_id": [2, 7], "max_new_tokens": 6, "typical_p": 0.2}')
    (tmp_path / "text.txt").write_text("".join(f"w{n % 20} w{(n * 3) % 20} w5\n" for n in range(40)))
    (tmp_path / "fine_tuning.gin").write_text(TRAINING)
    monkeypatch.chdir(tmp_path)
    assert run("import", "gpt2", "imported") == 0
    return tmp_path


def main(program: ModuleType, *flags: str, status: int = 0) -> None:
    gin.clear_config()
    assert program.main([f"meshtf-{program.__name__.rpartition('.')[2]}", *flags]) == status
    gin.clear_config()


def test_an_imported_folder_is_taken_as_a_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Decoded, with Transformers' tokens; exported; moved; without its tokenizer. A page plans one."""
    stored = json.loads((MODELS.parent / "continuations.json").read_text())
    own = {"max_new_tokens": 6, "eos_token_id": [2, 7], "num_beams": 3, "early_stopping": True, "length_penalty": 1.0}
    (case, *_) = [c for c in stored if c["model"] == "gpt2" and c["settings"] == own]
    prompt = " ".join(f"w{token}" for token in case["prompt"])
    (folder / "elsewhere").mkdir()
    shutil.move(folder / "imported", folder / "elsewhere" / "moved")
    place = "--model_dir=elsewhere/moved"
    beams = ["--method=beam", "--beam_size=3", "--early_stopping=true"]
    main(decode, place, f"--prompt={prompt}", *beams, "--format=jsonl", "--output=found.jsonl")
    found = [json.loads(line) for line in (folder / "found.jsonl").read_text().splitlines()]
    assert [one["ids"] for one in found] == case["ids"]
    np.testing.assert_allclose([one["score"] for one in found], case["scores"], rtol=2e-5)
    main(evaluation, place, status=2)
    assert f'no file matches "{folder}/elsewhere/moved/held_out.txt"' in capsys.readouterr().err
    main(export, place, "--output=saved")
    assert (folder / "saved" / "saved_model.pb").is_file()
    (folder / "elsewhere" / "moved" / "original" / "tokenizer.json").unlink()
    main(decode, place, "--prompt=w5", status=2)
    assert f"there is no tokenizer {folder}/elsewhere/moved/original" in capsys.readouterr().err


def test_a_training_begins_with_the_imported_weights(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By its gin file alone, from any folder. The run that comes of it is evaluated, writes, and goes back."""
    (folder / "below").mkdir()
    monkeypatch.chdir(folder / "below")
    (folder / "below" / "text.txt").write_bytes((folder / "text.txt").read_bytes())
    main(train, "--gin_file=../imported/model.gin", "--gin_file=../fine_tuning.gin", "--model_dir=run")
    assert f"begins with:   36 tensors of {folder}/imported" in capsys.readouterr().out
    before, after = open_source(folder / "imported"), open_source(folder / "below" / "run")
    for name in before.tensors:  # the learning rate is 0
        np.testing.assert_array_equal(before.read(name), after.read(name))
    main(evaluation, "--model_dir=run")
    assert "held-out examples)" in capsys.readouterr().out
    main(decode, "--model_dir=run", "--prompt=w5", "--max_new_tokens=2")
    assert "w5 w" in capsys.readouterr().out
    assert run("export", "run", "exported") == 0
    source, exported = (load_file(path / "model.safetensors") for path in (folder / "gpt2", Path("exported")))
    assert {name: x.tobytes() for name, x in exported.items()} == {name: x.tobytes() for name, x in source.items()}
    shutil.rmtree(folder / "imported" / "checkpoints")
    main(train, "--gin_file=../imported/model.gin", "--gin_file=../fine_tuning.gin", "--model_dir=third", status=2)
    assert f"{folder}/imported is not the folder of a checkpoint, such as step_00001000, and" in capsys.readouterr().err


@pytest.mark.long
def test_a_training_may_begin_without_the_imported_weights(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    files = ("--gin_file=imported/model.gin", "--gin_file=fine_tuning.gin")
    main(train, *files, "--model_dir=other", "--gin_param=Training.initial_checkpoint=None")
    assert "begins with:" not in capsys.readouterr().out


WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "dull", "film", "play", "a"]
CLASSES = {"LABEL_0": "bad", "LABEL_1": "dull", "LABEL_2": "good"}
OF_LABELS = """
import meshtf.train.data

Training.task = @LabelledTextTask()
LabelledTextTask.source = @LabelledFiles()
LabelledFiles.patterns = "reviews.csv"
LabelledFiles.text = "review"
LabelledFiles.label = "verdict"
LabelledTextTask.labels = ["bad", "dull", "good"]
LabelledTextTask.held_out = @LabelledFiles()
LabelledTextTask.length = 8
Training.optimizer = @AdamWOptimizer()
AdamWOptimizer.learning_rate = 1e-2
Training.mesh_shape = "rows:1"
Training.layout = "batch:rows"
Training.batch_size = 6
Training.num_steps = 120
TextClassifier.dropout_rate = 0.0
dropout_rate = 0.0
"""


def test_an_imported_bert_learns_the_classes_of_a_csv(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which hang on one word. Its evaluation says how many are right; the import alone guesses."""
    pytest.importorskip("tokenizers")
    source = shutil.copytree(MODELS / "bert_classifier", tmp_path / "bert")
    (source / "vocab.txt").write_text("".join(f"{word}\n" for word in [*WORDS, *(f"[{n}]" for n in range(9))]))
    rows = [f"a {word} {what},{word}" for word in CLASSES.values() for what in ("film", "play")]
    (tmp_path / "reviews.csv").write_text("\n".join(["review,verdict", *rows]))
    (tmp_path / "held_out.csv").write_text("\n".join(["text,label", *(f"a {w},{name}" for name, w in CLASSES.items())]))
    (tmp_path / "tuning.gin").write_text(OF_LABELS)
    monkeypatch.chdir(tmp_path)
    assert run("import", "bert", "imported") == 0
    shutil.copy("held_out.csv", "imported")
    main(evaluation, "--model_dir=imported")
    assert "(on 3 held-out examples)" in capsys.readouterr().out
    main(train, "--gin_file=imported/model.gin", "--gin_file=tuning.gin", "--model_dir=run")
    assert "accuracy 1.0000 (on 6 held-out examples)" in capsys.readouterr().out
    assert run("export", "run", "exported") == 0
    (tmp_path / "reviews.csv").write_text("review,verdict\na film,goood\n")
    main(evaluation, "--model_dir=run", status=2)
    told = (
        'reviews.csv, row 1, column "verdict": \'goood\' is not one of the labels bad, dull, good; did you mean "good"?'
    )
    assert told in capsys.readouterr().err


def test_what_has_no_counterpart_is_told_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("import", "gpt2", "again") == 0
    told = "generation: meshtf-decode has no counterpart of typical_p = 0.2, and continues text without them\n"
    assert capsys.readouterr().out.count(told) == 1


TOKENIZERS = {
    "tokenizer.json": ("HuggingFaceVocabulary", "{here}/original"),
    "vocab.txt": ("HuggingFaceVocabulary", "{here}/original"),
    "tokenizer.model": ("SentencePieceVocabulary", "{here}/original/tokenizer.model"),
    "spiece.model": ("SentencePieceVocabulary", "{here}/original/spiece.model"),
}


@pytest.mark.parametrize("name", TOKENIZERS)
def test_each_tokenizer_has_its_vocabulary(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("{}")
    vocabulary, path = TOKENIZERS[name]
    text = GinText("Training.model = @EncoderDecoder()\n", tmp_path, {}, {}).model_gin
    assert f'TextTask.vocabulary = @{vocabulary}()\n{vocabulary}.path = "{path}"\n' in text
    assert ("SentencePieceVocabulary.extra_ids = 100" in text) == (name == "spiece.model")


@pytest.mark.parametrize(
    ("processor", "begins"),
    [
        ({"type": "RobertaProcessing", "cls": ["<s>", 0], "sep": ["</s>", 2]}, True),
        ({"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A"}}], "special_tokens": {}}, False),
        (None, False),
    ],
    ids=["BART's", "T5's", "none"],
)
def test_texts_of_an_encoder_begin_as_the_tokenizer_begins_them(processor: Any, begins: bool, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps({"post_processor": processor}))
    for kind, expected in (("EncoderDecoder", begins), ("TransformerLM", False), ("MaskedLM", True)):
        text = GinText(f"Training.model = @{kind}()\n", tmp_path, {}, {}).model_gin
        assert ("HuggingFaceVocabulary.add_begin = True" in text) == expected


def test_a_model_whose_tokenizer_has_no_sentinels_reads_pairs(tmp_path: Path) -> None:
    """BART and Marian: for SpanCorruption no program would take the folder."""
    for settings, objective in (({"reads_pairs": True}, "TextPairs"), ({}, "SpanCorruption")):
        text = GinText("Training.model = @EncoderDecoder()\n", tmp_path, {}, settings).alone_gin or ""
        assert f"TextTask.objective = @{objective}()\n" in text
        assert ("TextTask.arrangement = @Pad()\n" in text) == bool(settings)


def test_models_of_which_nothing_is_known_are_used_by_their_owners(tmp_path: Path) -> None:
    own = GinText("Training.model = @MyModel()\n", tmp_path, {"eos_token_id": 1}, {})
    assert own.alone_gin is None
    assert 'Training.initial_checkpoint = "{here}"' in own.model_gin
    assert "Decoding" not in own.model_gin


def test_a_path_from_the_folder_of_a_gin_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In lists and tables, too; a flag's is from the current folder, and other texts stay as they are."""
    (tmp_path / "below").mkdir()
    values = '["{here}", {"a": ("{here}/b", "x{here}", "{hereabouts}")}]'
    (tmp_path / "below" / "own.gin").write_text(f"own = {values}\nTraining.seed = %own\n")
    monkeypatch.chdir(tmp_path)
    for parameters, place in (([], f"{tmp_path}/below"), ([f"own = {values}"], str(tmp_path))):
        read_configuration([Path("below/own.gin")], parameters)
        assert gin.query_parameter("%own") == [place, {"a": (f"{place}/b", "x{here}", "{hereabouts}")}]
        gin.clear_config()
