"""Mistakes in flags and gin files: each ends with status 2, and a message that names it, where it is, and what to do.

`meshtf-plan` reads configurations as every program does, and starts nothing.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Iterator
from pathlib import Path

import gin
import pytest

from meshtf.bin import checkpoint, decode, eval, export, plan, train, vocab  # noqa: A004
from meshtf.bin.shared.run_program import error_message
from meshtf.errors import UsageError
from meshtf_programs.exit_status import ExitStatus

PROGRAMS = {module.PROGRAM: module for module in (checkpoint, decode, eval, export, plan, train, vocab)}
DIGITS = "--gin_file=digits_mlp.gin"
LM = "--gin_file=lm_tiny.gin"
MINE = "--gin_file=mine.gin"


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path / "nothing"))  # and takes away, after the test, what imports have added
    yield
    gin.clear_config()


def complaint(capsys: pytest.CaptureFixture[str], program: str, *arguments: str) -> str:
    """What a program says of arguments that it refuses: the same where that is known before meshtf is imported."""
    early = importlib.import_module(f"meshtf_programs.command_lines.{program[7:]}").answer([program, *arguments])
    told_early = capsys.readouterr().err
    assert PROGRAMS[program].main([program, *arguments]) == ExitStatus.BAD_CONFIGURATION
    error = capsys.readouterr().err
    assert early is None or (early, told_early) == (ExitStatus.BAD_CONFIGURATION, error)
    assert error.startswith(f"{program}: error: ")
    assert "Traceback" not in error
    return error


FLAGS = [
    ("meshtf-train", ["--gin_fiel=a"], "Unknown command line flag 'gin_fiel'"),
    ("meshtf-train", ["--gin_file="], "--gin_file is empty"),
    ("meshtf-train", ["--gin_file"], "Missing value for flag --gin_file"),
    ("meshtf-train", [DIGITS, "--gin_param="], "--gin_param is empty"),
    ("meshtf-train", [DIGITS, "--gin_param= "], "is empty; it takes a binding, as 'Training.num_steps=100'"),
    ("meshtf-train", [DIGITS, "--model_dir="], "--model_dir is empty"),
    ("meshtf-train", [DIGITS, "--mesh_shape="], "--mesh_shape is empty"),
    ("meshtf-train", [DIGITS, "--layout=batch:rows", "--layout="], "--layout is given 2 times, but takes one value"),
    ("meshtf-train", [DIGITS, "--model_dir=a", "--model_dir=b"], "--model_dir is given 2 times, but takes one value"),
    ("meshtf-train", [DIGITS, "--report", "--noreport"], "--report is given 2 times"),
    ("meshtf-train", [DIGITS, "--report=perhaps"], "flag --report=perhaps"),
    ("meshtf-train", [DIGITS, "--backend="], "value should be one of <cpu|gpu|tpu>"),
    ("meshtf-train", [DIGITS, "--flagfile=none.txt"], "none.txt"),
    ("meshtf-train", [DIGITS, "more"], "unexpected argument 'more'"),
    ("meshtf-train", [DIGITS, "--", "more"], "unexpected argument 'more'"),
    ("meshtf-train", ["--gin_file=no.gin"], 'there is no gin file "no.gin"'),
    ("meshtf-train", ["--gin_file=."], 'there is no gin file "."'),
    ("meshtf-train", [f"--gin_file={'a' * 300}"], 'there is no gin file "aaa'),
    ("meshtf-plan", [DIGITS, "--search_seconds=9"], "--search_seconds has no effect without --layout=auto"),
    ("meshtf-plan", [DIGITS, "--backend=cpu"], "Unknown command line flag 'backend'"),
    ("meshtf-plan", [], "--gin_file or --model_dir is needed, for example: meshtf-plan --gin_file=lm_tiny.gin"),
    ("meshtf-eval", [], "--model_dir is needed"),
    ("meshtf-eval", ["--model_dir=none"], "none is not the folder of a run"),
    ("meshtf-eval", ["--model_dir=none", "--step=newest"], "flag --step=newest"),
    ("meshtf-eval", ["--model_dir=none", "--step=-1"], "flag --step=-1"),
    ("meshtf-eval", ["--model_dir=none", "--step=1.0"], "flag --step=1.0"),
    ("meshtf-eval", ["--model_dir=none", "--weights=averages"], "value should be one of <trained|average>"),
    ("meshtf-decode", ["--model_dir=none", "--method=greed"], "value should be one of <greedy|sample|beam|rank>"),
    ("meshtf-decode", ["--model_dir=none", "--top_k=many"], "flag --top_k=many"),
    ("meshtf-decode", ["--model_dir=none", "--temperature=hot"], "flag --temperature=hot"),
    ("meshtf-decode", ["--model_dir=none", "--prompt_file="], "--prompt_file is empty"),
    ("meshtf-decode", ["--model_dir=none", "--format=json"], "value should be one of <text|jsonl>"),
    ("meshtf-export", ["--model_dir=none"], "--output is needed"),
    ("meshtf-export", ["--model_dir=none", "--output="], "--output is empty"),
    ("meshtf-export", ["--model_dir=none", "--output=a", "--max_gib=-1"], "flag --max_gib=-1"),
    ("meshtf-export", ["--model_dir=none", "--output=a", "--max_gib=nan"], "must be a finite number, and is nan"),
    ("meshtf-decode", ["--model_dir=none", "--alpha=inf"], "--alpha must be a finite number, and is inf"),
    ("meshtf-vocab", ["--python_library", "--output="], "--output is empty"),
    ("meshtf-vocab", ["--files=", "--output=a"], "--files is empty"),
    ("meshtf-vocab", ["--files=*.txt", "--output=a", "--size=8k"], "flag --size=8k"),
    ("meshtf-vocab", ["--files=*.txt", "--output=a", "--files=b", "--size=1", "--size=2"], "--size is given 2 times"),
    ("meshtf-vocab", ["--files=*.none", "--output=a"], 'no file matches "*.none"'),
    ("meshtf-checkpoint", ["convert", "a"], "convert needs --output"),
    ("meshtf-checkpoint", ["average", "a", "--output=b", "--pattern=c"], "average does not take --pattern"),
    ("meshtf-checkpoint", ["conver", "a"], 'there is no command "conver"; did you mean "convert"?'),
]


@pytest.mark.parametrize(
    ("program", "arguments", "words"), FLAGS, ids=[f"{program[7:]} {arguments}" for program, arguments, _ in FLAGS]
)
def test_a_flag_that_is_wrong_is_named(
    program: str, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert words in complaint(capsys, program, *arguments)


PARAMETERS = [
    # names
    ("Training.num_step=3", ["'num_step'", 'did you mean "num_steps"?']),
    ("Trainin.num_steps=3", ["No configurable matching 'Trainin'", 'did you mean "Training"?']),
    ("meshtf.trian.Training.num_steps=3", ["No configurable matching", 'did you mean "Training"?']),
    ("Training.optimizer=@AdamOptimiser()", ["@AdamOptimiser()", 'did you mean "AdamOptimizer"?']),
    ("Training.num_steps=%steps", ["the macro %steps has no value", "set it with `steps = ...`"]),
    ("Training.num_steps=%gin.REQUIRD", ["gin.REQUIRD"]),
    ("nothing", ["Couldn't parse statement", "A value is a Python literal"]),
    ("=3", ["Unexpected token"]),
    ("Training.=3", ["malformed scope or selector"]),
    ("Training..seed=3", ["malformed scope or selector"]),
    ("import no.module", ["there is no module no.module", "Looked in"]),
    ("import meshtf.models.mlp_clasifier", ['did you mean "meshtf.models.mlp_classifier"?']),
    ("include 'digit_mlp.gin'", ['there is no gin file "digit_mlp.gin"; did you mean "digits_mlp.gin"?']),
    ("include digits_mlp.gin", ["digits_mlp is no value", "include digits_mlp.gin"]),
    # values that are none
    ("Training.layout=batch:rows", ["batch is no value", "a string in quotes of its own"]),
    ("Training.seed=2**70", ["Expected newline", "It cannot be an expression"]),
    ("Training.seed=1+1", ["Expected newline", "It cannot be an expression"]),
    ("Training.seed=nan", ["nan is no value"]),
    ("Training.seed=true", ["true is no value"]),
    ("Training.seed=", ["Unable to parse value"]),
    ("Training.seed=[1, 2", ["a bracket or a quote is not closed"]),
    ("Training.layout='batch:rows", ["--gin_param"]),
    ("Training.seed=@", ["Unexpected token"]),
    ("Training.optimizer=@SgdOptimizer(0.1)", ["Expected ')'"]),
    # integers
    ("Training.seed=1180591620717411303424", ["Training.seed must be an integer, less than 2^63"]),
    ("Training.seed=-1", ["Training.seed must be an integer, 0 or more, and is -1"]),
    ("Training.seed=1.5", ["Training.seed must be an integer", "and is 1.5"]),
    ("Training.seed=1e999", ["Training.seed must be an integer", "and is inf"]),
    ("Training.seed='1'", ["Training.seed must be an integer", "and is '1'"]),
    ("Training.seed=True", ["Training.seed must be an integer", "and is True"]),
    ("Training.seed=None", ["Training.seed must be an integer", "and is None"]),
    ("Training.num_steps=0", ["Training.num_steps must be an integer, 1 or more, and is 0"]),
    ("Training.batch_size=-64", ["Training.batch_size must be an integer, 1 or more, and is -64"]),
    ("Training.num_microbatches=5", ["does not divide the batch_size 64", "Training.num_microbatches = 5  is from"]),
    ("Training.evaluate_every=0", ["Training.evaluate_every must be an integer, 1 or more"]),
    ("Training.keep_checkpoints=0", ["Training.keep_checkpoints must be an integer, 1 or more"]),
    ("Training.log_every=[10]", ["Training.log_every must be an integer"]),
    ("MLPClassifier.num_classes=0", ["num_classes must be a positive integer", "num_classes = 0  is from"]),
    ("MLPClassifier.num_classes=1000000000000000000000", ["MLPClassifier.num_classes must be", "2^63"]),
    ("MLPClassifier.num_classes='ten'", ["MLPClassifier.num_classes must be an integer, and is 'ten'"]),
    ("MLPClassifier.num_classes=True", ["MLPClassifier.num_classes must be an integer, and is True"]),
    ("MLPClassifier.hidden_sizes=512", ["hidden_sizes must be a list, each an integer, and is 512"]),
    ("MLPClassifier.hidden_sizes=(256, 'wide')", ["hidden_sizes must be a list, each an integer"]),
    ("MLPClassifier.hidden_sizes=(256, 0)", ["hidden_sizes a sequence of them", "hidden_sizes = (256, 0)"]),
    ("digits.num_held_out=1797", ["digits.num_held_out must be from 1 to 1796, and is 1797", "is from --gin_param"]),
    ("digits.num_held_out=0.2", ["digits.num_held_out must be an integer, and is 0.2"]),
    ("digits.num_validation=None", ["digits.num_validation must be an integer, and is None"]),
    # numbers
    ("Training.checkpoint_every_minutes=0", ["checkpoint_every_minutes must be a number above 0, or None"]),
    ("Training.checkpoint_every_minutes='often'", ["checkpoint_every_minutes must be a number above 0, or None"]),
    ("AdamWOptimizer.learning_rate='fast'", ["learning_rate must be a number", "learning_rate = 'fast'  is from"]),
    ("AdamWOptimizer.beta_1='0.9'", ["AdamWOptimizer.beta_1 must be a number, and is '0.9'"]),
    ("AdamWOptimizer.beta_1=1.5", ["AdamWOptimizer.beta_1 = 1.5  is from --gin_param"]),
    ("AdamWOptimizer.epsilon=1e999", ["AdamWOptimizer.epsilon must be a number, and is inf", "no infinity"]),
    ("AdamWOptimizer.weight_decay=True", ["AdamWOptimizer.weight_decay must be a number, and is True"]),
    ("VarianceScalingInitializer.scale='big'", ["VarianceScalingInitializer.scale must be a number, and is 'big'"]),
    ("VarianceScalingInitializer.scale=-1", ["scale must be above 0, and is -1", "scale = -1  is from --gin_param"]),
    # one of a few
    ("VarianceScalingInitializer.mode='fan_inn'", ["must be one of 'fan_in'", 'did you mean "fan_in"?']),
    ("VarianceScalingInitializer.distribution=1", ["must be one of 'normal', 'untruncated_normal'"]),
    ("MLPClassifier.activation='rellu'", ['did you mean "relu"?', "MLPClassifier.activation = 'rellu'  is from"]),
    ("MLPClassifier.activation=[]", ["MLPClassifier.activation must be a string"]),
    ("Training.activation_dtype='float16'", ["must be one of float32, bfloat16, and is 'float16'"]),
    ("Training.activation_dtype=[]", ["Training.activation_dtype must be one of float32, bfloat16"]),
    ("Training.gradient_sum_dtype={}", ["Training.gradient_sum_dtype must be one of"]),
    ("Training.check_gradients='yes'", ["Training.check_gradients must be True or False, and is 'yes'"]),
    ("Training.shard_weight_update=1", ["Training.shard_weight_update must be True or False, and is 1"]),
    # what is made
    ("Training.model=@MLPClassifier", ["Training.model is no model", "parentheses included", "is from --gin_param"]),
    ("Training.model=None", ["Training.model is no model: None"]),
    ("Training.model=@digits()", ["Training.model is no model"]),
    ("Training.task=@MLPClassifier()", ["Training.task is no task"]),
    ("Training.quantization_aware=@Quantization()", ["must be a QuantizationAware", "gin @QuantizationAware() makes"]),
    ("Training.optimizer=0.1", ["Training.optimizer is no optimizer: 0.1"]),
    ("Training.optimizer=@WarmUpSchedule()", ["no gin file and no --gin_param gives WarmUpSchedule.num_steps"]),
    # layouts
    ("Training.mesh_shape='rows'", ["not of the form name:size", "Training.mesh_shape = 'rows'  is from --gin_param"]),
    ("Training.mesh_shape='rows:0'", ["Training.mesh_shape = 'rows:0'  is from --gin_param"]),
    ("Training.layout='batch'", ["not of the form dimension:axis", "Training.layout = 'batch'  is from --gin_param"]),
    ("Training.layout='batch:row'", ['did you mean "rows"?', "Training.layout = 'batch:row'  is from --gin_param"]),
    ("Training.layout='bath:rows'", ['did you mean "batch"?', "Training.layout = 'bath:rows'  is from --gin_param"]),
    ("Training.parameter_layout='hiden:rows'", ["hiden", "Training.parameter_layout = 'hiden:rows'  is from"]),
    # what nothing reads
    ("d_modle=64", ["nothing reads this binding", "d_modle = 64  is from --gin_param", "no binding that is read has"]),
    ("eval/Training.num_steps=3", ["nothing reads this binding", "and not in eval"]),
    ("AdamOptimizer.beta_1=0.8", ["nothing reads", "no @AdamOptimizer() is made", 'did you mean "AdamWOptimizer"?']),
    ("Decoding.top_k=3", ["nothing reads this binding", "--allow_unread_bindings"]),
]  # fmt: skip


@pytest.mark.parametrize(("parameter", "words"), PARAMETERS, ids=[parameter for parameter, _ in PARAMETERS])
def test_a_binding_that_is_wrong_is_named(parameter: str, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    error = complaint(capsys, "meshtf-plan", DIGITS, f"--gin_param={parameter}")
    assert [word for word in ["--gin_param", *words] if word not in error] == [], error


@pytest.mark.parametrize(
    ("name", "before"),
    [
        ("TextFiles.patterns", ["TextTask.source=@TextFiles()"]),
        ("JsonLines.patterns", ["TextTask.source=@JsonLines()"]),
        ("HuggingFaceDataset.path", ["TextTask.source=@HuggingFaceDataset()"]),
        ("TextTask.tokens", []),
        ("SentencePieceVocabulary.path", ["TextTask.vocabulary=@SentencePieceVocabulary()"]),
        ("HuggingFaceVocabulary.path", ["TextTask.vocabulary=@HuggingFaceVocabulary()"]),
        ("Training.initial_checkpoint", []),
    ],
)
def test_a_path_of_no_user_names_its_binding(name: str, before: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    path = "~no_such_user_here/x"
    given = [f"--gin_param={each}" for each in ["import meshtf.train.data", *before, f"{name}={path!r}"]]
    error = complaint(capsys, "meshtf-train", LM, "--mesh_shape=one:1", "--layout=", *given)
    assert f'{path}: this machine has no user "no_such_user_here"' in error
    assert f"{name} = '{path}'  is from --gin_param" in error


def test_an_included_file_of_no_user_names_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.gin").write_text("# mine\ninclude '~no_such_user_here/x.gin'\n")
    error = complaint(capsys, "meshtf-plan", MINE)
    assert 'mine.gin:2: ~no_such_user_here/x.gin: this machine has no user "no_such_user_here"' in error


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--layout=batch:row"], ['did you mean "rows"?', "Training.layout = 'batch:row'  is from --layout"]),
        (
            ["--layout=classes:rows+cols"],
            ["does not divide into 8 parts", "  is from --layout", "is from digits_mlp.gin:10"],
        ),
        (["--mesh_shape=rows"], ["not of the form name:size", "Training.mesh_shape = 'rows'  is from --mesh_shape"]),
        (["--mesh_shape=rows:2"], ["cols", "is from digits_mlp.gin:11", "is from --mesh_shape"]),
        (["--gin_param=Training.axis_parts='row:2x1'"], ["Training.axis_parts = 'row:2x1'  is from --gin_param="]),
    ],
)
def test_a_layout_that_is_wrong_names_its_flag(
    flags: list[str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    error = complaint(capsys, "meshtf-plan", DIGITS, *flags)
    assert [word for word in words if word not in error] == [], error


@dataclasses.dataclass(frozen=True)
class Files:
    """What lies in the folder, and what is said of `mine.gin`."""

    name: str
    files: dict[str, str | bytes]
    words: tuple[str, ...]


MODEL = """
import dataclasses
import gin
import meshtf as mtf

@gin.configurable
@dataclasses.dataclass(frozen=True)
class {model}:
    size: int = 4

    def metrics(self, features, is_training):
        x = mtf.layers.dense(features["images"], [mtf.Dimension("classes", 10)])
        {body}
"""

USE_MODEL = """\
include "digits_mlp.gin"
import {module}
Training.model = @{model}()
Training.layout = "batch:rows"
"""


def of_model(name: str, body: str, *words: str) -> Files:
    """A model of the user's own."""
    model = name.title().replace("_", "")
    files = {
        f"{name}.py": MODEL.format(body=body, model=model),
        "mine.gin": USE_MODEL.format(module=name, model=model),
    }
    return Files(name, files, words)


FILES = [
    Files(
        "undecodable",
        {"mine.gin": b"# a\nTraining.layout = '\xff'\n"},
        ("mine.gin is not a gin file", "line 2", "0xff"),
    ),
    Files("not_text", {"mine.gin": b"\x89PNG\r\n\x1a\n\0"}, ("mine.gin is not a gin file", "byte 0")),
    Files("a_null", {"mine.gin": "Training.seed = 1\0\n"}, ("mine.gin:1",)),
    Files("includes_itself", {"mine.gin": "include 'mine.gin'\n"}, ("mine.gin:1", "mine.gin includes mine.gin")),
    Files(
        "cycle",
        {"mine.gin": "\ninclude 'b.gin'\n", "b.gin": "include 'c.gin'", "c.gin": "include 'mine.gin'"},
        ("c.gin:1", "mine.gin includes b.gin includes c.gin includes mine.gin"),
    ),
    Files("no_include", {"mine.gin": "# one\ninclude 'none.gin'\n"}, ('mine.gin:2: there is no gin file "none.gin"',)),
    Files("a_misspelt_include", {"mine.gin": "include 'gpt.gin'"}, ("mine.gin:1", 'did you mean "gpt2.gin"?')),
    Files("within_an_include", {"mine.gin": "include 'b.gin'", "b.gin": "\n\nTraining.see = 1"}, ("b.gin:3", '"seed"')),
    Files("empty", {"mine.gin": ""}, ("no gin file and no --gin_param gives Training.model",)),
    Files("no_block", {"mine.gin": "Training:\nseed = 1\n"}, ("mine.gin:2", "Expected indentation")),
    Files("a_block", {"mine.gin": "import meshtf.train\nTrainig:\n    seed = 1\n"}, ("mine.gin:2", '"Training"')),
    Files("no_end", {"mine.gin": 'Training.layout = """batch\n'}, ("mine.gin", "a bracket or a quote is not closed")),
    Files("a_python_line", {"mine.gin": "x = 1; y = 2\n"}, ("mine.gin:1", "Expected newline")),
    Files("by_itself", {"mine.gin": "include 'digits_mlp.gin'\na = %a\nTraining.seed = %a\n"}, ("refers to itself",)),
    Files(
        "no_macro",
        {"mine.gin": "seed = 1\nTraining.seed = %sed\n"},
        ("mine.gin:2", '%sed has no value; did you mean "seed"?'),
    ),
    Files(
        "a_list_of_macros", {"mine.gin": "Training.seed = [1, %two]\n"}, ("mine.gin:1", "the macro %two has no value")
    ),
    Files(
        "a_macro_of_a_string",
        {"mine.gin": "include 'digits_mlp.gin'\nn = '3'\nMLPClassifier.num_classes = %n\n"},
        ("MLPClassifier.num_classes must be an integer, and is '3'", "is from mine.gin:3"),
    ),
    Files(
        "no_module",
        {"mine.gin": "import mine.modle", "mine/model.py": "", "mine/__init__.py": ""},
        ("mine.gin:1: there is no module mine.modle", 'did you mean "mine.model"?', "Looked in"),
    ),
    Files("no_package", {"mine.gin": "import seris", "series.py": ""}, ('did you mean "series"?',)),
    Files("from_import", {"mine.gin": "from nowhere import it"}, ("mine.gin:1: there is no module nowhere.it",)),
    Files(
        "divides",
        {"mine.gin": "\nimport divides", "divides.py": "x = 1\ny = x / 0\n"},
        ("mine.gin:2: import divides fails at divides.py:2: ZeroDivisionError: division by zero",),
    ),
    Files(
        "no_syntax",
        {"mine.gin": "import no_syntax", "no_syntax.py": "a = 1\ndef f(:\n"},
        ("import no_syntax fails at no_syntax.py:2: SyntaxError: invalid syntax: def f(:",),
    ),
    Files(
        "wants_more",
        {"mine.gin": "import wants_more", "wants_more.py": "import not_installed_at_all\n"},
        ("fails at wants_more.py:1: ModuleNotFoundError: No module named 'not_installed_at_all'",),
    ),
    Files(
        "ends",
        {"mine.gin": "import ends", "ends.py": "import sys\nsys.exit(3)\n"},
        ("ends.py:2", "it ends the program"),
    ),
    Files(
        "twice",
        {
            "mine.gin": "import twice",
            "twice.py": "import gin\n@gin.configurable\ndef f(): ...\n@gin.configurable\ndef f(): ...\n",
        },
        ("import twice fails at twice.py:4", "already exists"),
    ),
    Files(
        "statistics",
        {"mine.gin": "import statistics", "statistics.py": ""},
        ("import statistics finds", "and not", "Rename the file"),
    ),
    of_model(
        "returns_none",
        "return None",
        ".metrics(features, is_training=True)",
        "returned nothing",
        "a dict of metrics by name",
    ),
    Files(
        "ambiguous",
        {f"{name}.py": "import gin\n@gin.configurable\ndef of_both(): ...\n" for name in ("one", "other")}
        | {"mine.gin": "import one\nimport other\nTraining.model = @of_both()\n"},
        ("mine.gin:3: Ambiguous selector 'of_both'", "one.of_both", "write it whole"),
    ),
    of_model(
        "returns_loss", "return x", ".metrics(features, is_training=True)", "must return a dict of metrics by name"
    ),
    of_model("returns_numbered", "return {0: x}", "returned a dict with keys [0]"),
    of_model("has_no_loss", 'return {"los": x}', 'no metric "loss"', "it has los"),
    of_model("gives_a_number", 'return {"loss": 3.0}', 'the metric "loss"', "must be a tensor or a pair"),
    of_model("gives_three", 'return {"loss": (x, x, x)}', 'the metric "loss"', "must be a tensor or a pair"),
    of_model(
        "lacks_a_feature",
        'return {"loss": features["image"]}',
        'asks for the feature "image"',
        "handwritten digits has images, labels",
        'did you mean "images"?',
    ),
    of_model("misspells_a_layer", "return mtf.layers.desne(x)", "desne", "misspells_a_layer.py:13 in metrics"),
    of_model(
        "divides_by_nothing", "return {'loss': x * (1 / 0)}", "ZeroDivisionError", "divides_by_nothing.py:13 in metrics"
    ),
    of_model("sizes_below_nothing", "mtf.Dimension('d', -1)", "must not be negative", "sizes_below_nothing.py:13"),
    of_model("takes_none", "raise KeyError(3)", "KeyError: 3", "takes_none.py:13 in metrics"),
    Files(
        "half_a_task",
        {
            "mine.gin": "include 'digits_mlp.gin'\nimport half_a_task\nTraining.task = @Half()\n",
            "half_a_task.py": "import gin\n@gin.configurable\nclass Half:\n  name = 'half'\n  vocabulary = None\n"
            "  tokens_per_example = None\n  def inputs(self, batch): ...\n",
        },
        ("Training.task is no task", "it lacks evaluation_batches, num_bytes, training_batches", "mine.gin:3"),
    ),
    Files(
        "perceptron_on_text",
        {
            "mine.gin": "include 'lm_tiny.gin'\nimport meshtf.models.mlp_classifier\n"
            "Training.model = @MLPClassifier()\nMLPClassifier.num_classes = 10\nTraining.layout = 'batch:rows'\n"
        },
        ('MLPClassifier asks for the feature "images"', "targets", "do not fit together"),
    ),
    Files(
        "text_on_digits",
        {
            "mine.gin": "include 'lm_tiny.gin'\nimport meshtf.train.digits\n"
            "Training.task = @digits()\nTraining.layout = 'batch:rows'\n"
        },
        ('asks for the feature "targets"', "images, labels", "do not fit together"),
    ),
    Files(
        "wrong_macro",
        {"mine.gin": "include 'lm_tiny.gin'\nd_modle = 64\n"},
        ("d_modle = 64  is from mine.gin:2", '"d_model"'),
    ),
    Files(
        "wrong_scope",
        {"mine.gin": "include 'digits_mlp.gin'\nmodel/MLPClassifier.num_classes = 9\n"},
        ("model/MLPClassifier.num_classes = 9  is from mine.gin:2", "not in model"),
    ),
    Files(
        "one_text",
        {
            "mine.gin": "include 'lm_tiny.gin'\nTextTask.source = @TextFiles()\nTextFiles.document = 'paragraf'\n"
            "TextFiles.patterns = '*.txt'\n"
        },
        ('did you mean "paragraph"?', "TextFiles.document = 'paragraf'  is from mine.gin:3"),
    ),
    Files(
        "a_share",
        {"mine.gin": "include 'lm_tiny.gin'\nTextTask.held_out = 5\n"},
        ("TextTask.held_out must be a share",),
    ),
    Files(
        "no_length",
        {"mine.gin": "include 'lm_tiny.gin'\nTextTask.length = {'input': 5}\n"},
        ("TextTask.length names 'input'", "mine.gin:2"),
    ),
    Files(
        "rates",
        {"mine.gin": "include 'lm_tiny.gin'\nWarmUpSchedule.then = 'cosine'\n"},
        ("WarmUpSchedule.then must be", "mine.gin:2"),
    ),
    Files(
        "sublayers",
        {"mine.gin": "include 'lm_tiny.gin'\nTransformerStack.sublayers = @SelfAttention()\n"},
        ("sublayers", "mine.gin:2"),
    ),
    Files(
        "bare",
        {"mine.gin": "include 'lm_tiny.gin'\nSelfAttention.config = @AttentionConfig\n"},
        ("SelfAttention.config must be an AttentionConfig", "parentheses included", "mine.gin:2"),
    ),
]


@pytest.mark.parametrize("case", FILES, ids=[case.name for case in FILES])
def test_a_file_that_is_wrong_is_named_with_its_line(case: Files, capsys: pytest.CaptureFixture[str]) -> None:
    for name, content in case.files.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
    error = complaint(capsys, "meshtf-plan", MINE)
    assert [word for word in case.words if word not in error] == [], error
    assert error.count("\n  at ") <= 1, error


def test_a_mesh_that_no_machine_has(capsys: pytest.CaptureFixture[str]) -> None:
    error = complaint(capsys, train.PROGRAM, DIGITS, "--mesh_shape=rows:100000", "--layout=")
    assert "more than 4096 take minutes to start" in error
    assert "Training.mesh_shape = 'rows:100000'  is from --mesh_shape" in error
    assert "_mesh.py" not in error  # a line of the program's own tells its user nothing


def test_the_script_that_starts_a_program_is_no_line_of_the_users() -> None:
    script, own = "\n  at /opt/bin/meshtf-plan:8 in <module>", "\n  at /home/me/model.py:3 in layer"
    assert error_message(UsageError(f"a mesh{script}")) == "a mesh"
    assert error_message(UsageError(f"a mesh{own}")) == f"a mesh{own}"
