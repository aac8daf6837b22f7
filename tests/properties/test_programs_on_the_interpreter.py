"""Promise 1, on paper: random programs under random layouts, planned, and their plans interpreted."""

from __future__ import annotations

import contextlib
import random
import re
import zlib

import hypothesis
import pytest
from hypothesis import strategies

import meshtf as mtf
from meshtf import control_flow
from meshtf.ops.variables.program_step import count_step
from tests.house.sharpest import sharpest
from tests.properties.random_programs.builder import ANY_SIZE, USUAL, Builder, RejectedError, Space
from tests.properties.random_programs.cases import CASES as CASES_BY_NAME
from tests.properties.random_programs.cases import COMPOUND_CASES, EVERY_CASE, layer_stacks, window_gradients
from tests.properties.random_programs.checking import check_on_interpreter
from tests.properties.random_programs.generate import draw_layouts, random_program
from tests.properties.random_programs.seeds import LARGE_MESHES, MESHES, case_of, failure_of

pytestmark = pytest.mark.timeout(900)  # a failing program is made as small as it can be, which takes its time

_TRIES = 60
_PROGRAMS, _PROGRAMS_OF_A_TEST = 1000, 50

OF_KERNELS = re.compile("einsum|grouped_matmul|conv|pool|fft|softmax|cumsum|random|sample|triangular")
"""Cases of operations that TensorFlow leaves to kernels which differ between CPUs."""

# What computes nothing, has a case under another name, is in every program, or makes pipelines, which have tests alone.
NOT_DRAWN = {
    "DropoutInBlocks", "DropoutInBoxes", "Print", "RandomNormal", "RandomUniform", "TruncatedNormal", "Variable",
    "export", "histogram_summary", "is_range", "vectorized_layers", "like_variable", "matmul", "placeholder",
    "print_tensor", "read_variable", "scalar_summary",
}  # fmt: skip

CASES = list(CASES_BY_NAME)
OF_LARGE_MESHES = [case for case in CASES[::8] if case != "serialize_training_step"]
CASES_OF_ANY_SIZE = [*CASES, *layer_stacks.CASES, *window_gradients.CASES]
OF_ANY_SIZE = [case for case in CASES_OF_ANY_SIZE if case not in CASES[::2]]


def check_program(rng: random.Random, case: str, mesh_shape: str, layouts: int, space: Space) -> None:
    """Draws a program with the case in it, and runs it under several layouts.

    Raises:
      RejectedError: there is none with these numbers.
    """
    mesh, shape = mtf.Mesh(mtf.Graph("program")), mtf.convert_to_shape(mesh_shape)
    with mesh.graph:
        program = random_program(rng, mesh, shape, case, space=space)
        count_step(mesh)
    for _ in range(layouts):
        check_on_interpreter(program, shape, *draw_layouts(rng, program, shape))


def check_case(case: str, mesh_shapes: list[str], layouts: int, space: Space = USUAL) -> None:
    """Draws a program with this case in it, the same in every run."""
    rng = random.Random(zlib.crc32(case.encode()))
    for _ in range(_TRIES):
        with contextlib.suppress(RejectedError):
            return check_program(rng, case, rng.choice(mesh_shapes), layouts, space)
    raise AssertionError(f"no program with case {case!r} was found")


def check_case_to_the_smallest(case: str, mesh_shapes: list[str], examples: int, space: Space = USUAL) -> None:
    """As `check_case`, with other draws, the simplest program first; what fails is made as small as it can be."""

    @hypothesis.seed(zlib.crc32(case.encode()))
    @hypothesis.settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink],
    )
    @hypothesis.given(rng=strategies.randoms(use_true_random=False), mesh_shape=strategies.sampled_from(mesh_shapes))
    def check(rng: random.Random, mesh_shape: str) -> None:
        try:
            check_program(rng, case, mesh_shape, 3, space)
        except RejectedError:
            hypothesis.reject()

    check()


def marks_of(number: int, case: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.plain_cpu] * bool(OF_KERNELS.search(case)) + [pytest.mark.long] * (number % 4 != 2)


@pytest.mark.parametrize("case", [pytest.param(c, marks=marks_of(i, c)) for i, c in enumerate(CASES[::2])])
def test_case(case: str) -> None:
    """Every eighth one; every second in the long run. Others are drawn of any size, and on large meshes."""
    check_case(case, MESHES[1:], 1)


@pytest.mark.parametrize("case", sharpest(OF_ANY_SIZE, [*OF_ANY_SIZE[::4], *layer_stacks.CASES]))
def test_case_of_any_size(case: str) -> None:
    """Dimensions of sizes 1 to 13, split over any mesh axes, whether these divide them or not."""
    check_case(case, MESHES[1:], 1, ANY_SIZE)


@pytest.mark.parametrize("case", sharpest(CASES[::8], OF_LARGE_MESHES[1::2]))
def test_case_on_a_large_mesh(case: str) -> None:
    check_case(case, LARGE_MESHES, 1)


@pytest.mark.long
@pytest.mark.parametrize("case", CASES_OF_ANY_SIZE)
def test_more_programs_of_a_case(case: str) -> None:
    if case in CASES:
        check_case_to_the_smallest(case, MESHES, 4)
    check_case_to_the_smallest(case, MESHES, 4, ANY_SIZE)


@pytest.mark.parametrize("number", sharpest(range(0, len(COMPOUND_CASES), 4), range(0, len(COMPOUND_CASES), 8)))
def test_compound_case(number: int) -> None:
    """Programs of several operations, of every dtype, with dimensions of sizes 0 and 1."""
    failure = failure_of(len(CASES) + number)
    assert failure is None, failure


def test_a_program_that_goes_wrong_says_what_it_is_and_how_to_run_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(b: Builder) -> None:
        x = b.fresh(mtf.Shape([b.new_dim(2)]), b.dtype)
        b.step("doubled", [x], x.tensor * 2.0, lambda p: p * 3.0)

    monkeypatch.setitem(EVERY_CASE, case_of(7), wrong)
    failure = failure_of(7)
    assert failure is not None
    for text in (
        "seed 7: ",
        "doubled(",
        "mesh ",
        "further off than rounding goes",
        "python -m tests.properties.random_programs 7",
    ):
        assert text in failure


@pytest.mark.long
@pytest.mark.parametrize("number", range(_PROGRAMS // _PROGRAMS_OF_A_TEST))
def test_programs_of_this_run(seed: int, number: int) -> None:
    first = seed + number * _PROGRAMS_OF_A_TEST
    found = [failure_of(one) for one in range(first, first + _PROGRAMS_OF_A_TEST)]
    failures = [failure for failure in found if failure is not None]
    assert not failures, f"{len(failures)} programs failed\n\n" + "\n\n".join(failures)


def test_every_operation_is_drawn_of_any_size() -> None:
    words = set(" ".join(CASES_OF_ANY_SIZE).split())
    public = {*mtf.ops.__all__, *filter(str.islower, control_flow.__all__)}
    missing = sorted(public - NOT_DRAWN - words)
    assert not missing, f"no random program draws {missing}; add a case"
    assert not (stale := sorted(NOT_DRAWN & words)), f"{stale} are drawn"
