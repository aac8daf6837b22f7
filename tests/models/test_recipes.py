"""Recipes: layouts by name, which give one core's values with the models that meshtf brings along."""

from __future__ import annotations

import gin
import numpy as np
import pytest

import meshtf as mtf
from meshtf.errors import LayoutError
from meshtf.layout import convert_to_layout_rules
from meshtf.planning.layouts.rules_by_place import unused_rules
from meshtf.testing import assert_close, build, largest, rounding_bound
from meshtf_programs.packaged_configurations import recipe_file, recipes
from tests.models.transformers import MODELS, TERMS, TOKENS, WITH_TASKS_OR_EXPERTS, Case, case, like
from tests.optimize.interpreted_training import InterpretedTraining

LEARNING_RATE = 0.1
SIZES = ("d_model = 32", "AttentionConfig.num_heads = 4", "AttentionConfig.d_kv = 8", "FeedForward.d_ff = 64")
LIKE_LM_TINY = (*SIZES, "TransformerStack.num_layers = 2", "VocabularyEmbedding.vocab_size = 100")
LIKE_MOE_TINY = (*LIKE_LM_TINY, "MixtureOfExperts.d_ff = 16", "TransformerStack.num_layers = 1")
OF_EXPERTS = ("experts", "experts_tensor")
RING = "ring"
ROUND = ("SelfAttention.algorithm = 'ring'",)
DENSE = [name for name in recipes() if name not in (*OF_EXPERTS, RING)]


def layouts_of(recipe: str) -> dict[str, str | None]:
    gin.clear_config()
    gin.parse_config_file(str(recipe_file(recipe)), skip_unknown=True)
    names = ("layout", "parameter_layout", "activation_layout")
    try:
        return {name: _parameter(f"Training.{name}") for name in names}
    finally:
        gin.clear_config()


def _parameter(name: str) -> str | None:
    try:
        return gin.query_parameter(name)
    except ValueError:  # the recipe does not give it
        return None


def trained(made: Case, mesh_shape: str, **layouts: str | None) -> InterpretedTraining:
    return InterpretedTraining(made.training_step(LEARNING_RATE), made.specs, mesh_shape, **layouts)  # type: ignore[arg-type]


def made_of(model: str, *parameters: str) -> Case:
    if model == "moe_tiny":
        return case(model, *LIKE_MOE_TINY, sizes="")
    sizes = LIKE_LM_TINY if model == "lm_tiny" else ()
    return case(model, *sizes, *parameters, sizes="" if sizes else "size_tiny.gin")


@pytest.mark.parametrize(
    ("model", "recipes_of_it"),
    [
        ("lm_tiny", ["two_dimensional", RING]),
        ("moe_tiny", ["experts_tensor"]),
        pytest.param("moe_tiny", list(OF_EXPERTS), marks=pytest.mark.long),
        *(pytest.param(model, [*DENSE, RING], marks=pytest.mark.long) for model in ("lm_tiny", "llama")),
    ],
    ids=str,
)
def test_every_recipe_gives_the_loss_and_the_gradients_of_one_core(model: str, recipes_of_it: list[str]) -> None:
    made = made_of(model)
    batch, one = made.batch(), trained(made, "rows:1;cols:1", layout="")
    before, loss = one.variables, one.step(**batch)
    gradients = {v: (before[v] - value) / LEARNING_RATE for v, value in one.variables.items()}
    for name in recipes_of_it:
        if name == RING:
            made = made_of(model, *ROUND)
        many = trained(made, "rows:2;cols:2", **layouts_of(name))
        assert_close(many.step(**batch), loss, terms=TERMS, dtype="float32", what=name)
        for variable, gradient in gradients.items():
            found = (before[variable] - many[variable]) / LEARNING_RATE
            atol = rounding_bound("float32", TERMS, largest(gradients[like(variable)]))
            atol += rounding_bound("float32", 2, largest(before[variable]) / LEARNING_RATE)
            np.testing.assert_allclose(found, gradient, rtol=0, atol=atol, err_msg=f"{variable} by {name}")


@pytest.mark.long
@pytest.mark.parametrize("recipe", ["two_dimensional", RING])
def test_steps_on_devices_are_those_of_one_core(recipe: str) -> None:
    made = made_of("lm_tiny", *(ROUND if recipe == RING else ()))
    batches = [made.batch(seed) for seed in range(3)]
    one, own = trained(made, "rows:1;cols:1", layout=""), layouts_of(recipe)
    options = {name: own[name] for name in ("parameter_layout", "activation_layout")}
    mesh_impl = mtf.SpmdMeshImpl("rows:2;cols:2", own["layout"] or "", **options)
    step = mtf.function(made.training_step(LEARNING_RATE), mesh_impl, inputs=made.specs)
    found, expected = ([float(run(**batch)) for batch in batches] for run in (step, one.step))
    assert_close(found, expected, terms=TERMS, steps=np.arange(3), dtype="float32", what=recipe)


def fits(made: Case, recipe: str) -> bool:
    """Whether the model has the dimensions that the recipe is for."""
    graph, _ = build(made.training_step(), made.specs)
    rules = [convert_to_layout_rules(text) for text in layouts_of(recipe).values() if text is not None]
    return not [message for own in rules for message in unused_rules(own, graph.operations)]


@pytest.mark.parametrize(
    ("model", "recipes_of_it"),
    [
        ("llama", ["fsdp_tensor_sequence", "two_dimensional", RING]),
        *(pytest.param(n, [*recipes()], marks=pytest.mark.long) for n in (*MODELS, *WITH_TASKS_OR_EXPERTS)),
    ],
    ids=lambda value: value if isinstance(value, str) else len(value),
)
def test_no_recipe_gathers_for_want_of_a_way_to_work_on_slices(model: str, recipes_of_it: list[str]) -> None:
    """Of every Transformer that meshtf brings along, in its own size, on 8 cores on paper."""
    tokens = mtf.Shape([("batch", 512), ("length", 256)])
    for recipe in recipes_of_it:
        made = case(model, *(ROUND if recipe == RING else ()), sizes="")
        made = Case(made.model, {name: mtf.TensorSpec(tokens, spec.dtype) for name, spec in made.specs.items()})
        if not fits(made, recipe):
            continue
        own = layouts_of(recipe)
        options = {name: own[name] for name in ("parameter_layout", "activation_layout")}
        mesh_impl = mtf.PlanMeshImpl("rows:4;cols:2", own["layout"] or "", **options)
        try:
            report = mtf.function(made.training_step(), mesh_impl, inputs=made.specs).report()
        except LayoutError as error:
            if "does not divide" in str(error):  # 25 heads on two cores
                continue
            raise
        assert report.gathers_for_want == (), recipe


def test_sequence_parallelism_sends_what_tensor_parallelism_sends() -> None:
    """Korthikanti et al. 2022, section 4.2.2: an allgather and a reduce-scatter in place of an allreduce."""
    made = case("llama")

    def loss(**features: mtf.Tensor) -> mtf.Tensor:
        return made.loss(features)

    sent: dict[str, dict[str, int]] = {}
    for name in ("megatron", "megatron_sequence"):
        own = layouts_of(name)
        mesh_impl = mtf.PlanMeshImpl("rows:1;cols:2", own["layout"] or "", activation_layout=own["activation_layout"])
        report = mtf.function(loss, mesh_impl, inputs=made.specs).report()
        inside = [c for c in report.collectives if "/feed_forward/" in c.operation]
        sent[name] = {c.kind: c.bytes_sent for c in inside}
    x, layers = 4 * TOKENS.size * 32, 2  # bytes of [batch, length, d_model]
    assert sent["megatron"] == {"all_reduce": layers * x}  # 2 (n - 1) / n of it, by n = 2 cores
    assert sent["megatron_sequence"] == dict.fromkeys(["all_gather", "reduce_scatter"], layers * x // 2)
