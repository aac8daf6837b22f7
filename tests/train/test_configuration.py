from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gin
import pytest
import tensorflow as tf
from absl import flags

import meshtf as mtf
from meshtf.bin.shared.mesh import mesh_for
from meshtf.train.configuration import ConfigurationError, find_gin_file, read_configuration
from meshtf.train.trainer import mesh_of
from meshtf.train.training import Training, configured_training
from meshtf_programs.command_lines.shared.flag_groups import define_mesh_flags
from tests.fresh_process import run_fresh


@pytest.fixture(autouse=True)
def _clear_gin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield
    gin.clear_config()


def error_of(*parameters: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        read_configuration([find_gin_file("digits_mlp.gin")], parameters)
    return str(caught.value)


def training(*parameters: str) -> Training:
    read_configuration([find_gin_file("digits_mlp.gin")], parameters)
    return configured_training()


def test_packaged_configuration_is_found_from_any_folder() -> None:
    assert find_gin_file("digits_mlp.gin").read_text().startswith("#")


def test_local_file_is_found_by_relative_and_absolute_path(tmp_path: Path) -> None:
    (tmp_path / "mine.gin").touch()
    assert find_gin_file("mine.gin").resolve() == tmp_path / "mine.gin"
    assert find_gin_file(str(tmp_path / "mine.gin")) == tmp_path / "mine.gin"


def test_unknown_file_lists_what_there_is() -> None:
    with pytest.raises(ConfigurationError) as caught:
        find_gin_file("digit_mlp.gin")
    assert 'no gin file "digit_mlp.gin"; did you mean "digits_mlp.gin"?' in str(caught.value)
    assert str(Path.cwd()) in str(caught.value)


def test_a_local_file_never_hides_or_is_hidden_silently(tmp_path: Path) -> None:
    local = tmp_path / "digits_mlp.gin"
    local.write_text("# mine\n")
    with pytest.raises(ConfigurationError, match=r"could be either of two"):
        find_gin_file("digits_mlp.gin")
    assert find_gin_file("./digits_mlp.gin").resolve() == local


def test_an_identical_local_file_is_no_question(tmp_path: Path) -> None:
    (tmp_path / "digits_mlp.gin").write_bytes(find_gin_file("digits_mlp.gin").read_bytes())
    assert find_gin_file("digits_mlp.gin").is_file()


def test_unknown_parameter_names_the_nearest() -> None:
    message = error_of("Training.num_step = 3")
    assert "doesn't have a parameter named 'num_step'" in message
    assert 'did you mean "num_steps"?' in message


def test_unknown_configurable_names_the_nearest() -> None:
    assert 'did you mean "Training"?' in error_of("Trainning.num_steps = 3")
    assert 'did you mean "SgdOptimizer"?' in error_of("Training.optimizer = @SdgOptimizer()")


def test_unquoted_string_gets_a_hint() -> None:
    assert "a string in quotes of its own" in error_of("Training.layout = batch:rows")


def test_unknown_import_is_a_clear_error() -> None:
    assert "there is no module meshtf.models.nothing" in error_of("import meshtf.models.nothing")


def test_include_finds_a_packaged_configuration(tmp_path: Path) -> None:
    (tmp_path / "mine.gin").write_text("include 'digits_mlp.gin'\nTraining.num_steps = 7\n")
    read_configuration([find_gin_file("mine.gin")], [])
    assert gin.query_parameter("Training.num_steps") == 7
    assert gin.query_parameter("Training.layout") == "batch:rows;hidden:cols"


def test_later_bindings_win() -> None:
    read_configuration([find_gin_file("digits_mlp.gin")], ["Training.num_steps = 7"])
    assert gin.query_parameter("Training.num_steps") == 7


def test_how_gradients_are_summed_reaches_the_mesh() -> None:
    chosen = training(
        "Training.gradient_sum_dtype = 'bfloat16'",
        "Training.bucket_bytes = 0",
        "Training.shard_weight_update = False",
        "Training.compile_loops = False",
        "Training.parameter_layout = 'hidden:rows'",
    )
    of_mesh_flags = flags.FlagValues()
    define_mesh_flags(of_mesh_flags)
    of_mesh_flags(["a program"])
    for mesh_impl in (mesh_of(chosen), mesh_for(of_mesh_flags, chosen)):
        assert mesh_impl.options == mtf.MeshOptions(
            parameter_layout="hidden:rows",
            shard_weight_update=False,
            bucket_bytes=0,
            gradient_sum_dtype=tf.bfloat16,
            compile_loops=False,
        )
    assert mesh_of(training()).options == mtf.MeshOptions()
    assert mesh_of(training("Training.bucket_bytes = None")).options == mtf.MeshOptions()  # as runs before have it
    patient = training("Training.collective_timeout_seconds = 3600")
    assert mesh_of(patient).options.collective_timeout_seconds == 3600


WRONG = {
    "gradient_sum_dtype = 'floats32'": "or None, and is 'floats32'; did you mean \"float32\"?: gradients",
    "gradient_sum_dtype = 'int32'": "one of float32, bfloat16, or None, and is 'int32'",
    "activation_dtype = 'float16'": "one of float32, bfloat16, and is 'float16'",
    "bucket_bytes = -1": "must be an integer, 0 or more, and is -1",
    "shard_weight_update = 'no'": "must be True or False, and is 'no'",
    "keep_freed_memory = 1": "must be True or False, and is 1",
    "max_padding = 2": "must be a share, from 0 to 1, and is 2",
    "collective_timeout_seconds = 0": "must be positive, and is 0",
    "num_processes = 0": "must be positive, or None for one, and is 0",
    "axes_over_processes = 'rows'": "must be a list of names",
    "axis_parts = 'rows'": ": not of the form axis:sizexsize",
    "activation_layout = 'batch'": ": bad layout, not of the form dimension:axis",
}


@pytest.mark.parametrize("binding", WRONG)
def test_a_wrong_value_says_what_would_do(binding: str) -> None:
    name, words = f"Training.{binding.split()[0]}", WRONG[binding]
    with pytest.raises(ConfigurationError) as caught:
        training(f"Training.{binding}")
    assert str(caught.value).startswith((f"{name} must be ", f"{name}: "))
    assert words in str(caught.value)


def test_a_model_may_be_the_first_to_use_a_layer() -> None:
    """gin takes no more configurables once a configuration is read, and layers are some, imported when asked for."""
    program = """
import meshtf
from meshtf.train.configuration import read_configuration
read_configuration([], [])
assert callable(meshtf.layers.dense)
"""
    done = run_fresh(["-c", program])
    assert done.status == 0, done.stderr
