"""Mistakes in patterns, and the whole message that each one gives: what, where, what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import meshtf as mtf
from meshtf.errors import GraphError, MeshtfError, UsageError

pytestmark = pytest.mark.quick

MESH = mtf.Mesh(mtf.Graph("patterns"))
X = mtf.placeholder(MESH, "batch:4 hidden:8", name="x")
W = mtf.placeholder(MESH, "hidden:8 d_ff:16", name="w")

Wrong = Callable[[], Any]

# The call, what is wrong, the pattern with its carets (empty where there is no pattern to show).
WRONG: list[tuple[Wrong, str, str]] = [
    (lambda: mtf.rearrange(X, "batch (heads d_kv) -> batch heads d_kv"),
     'the sizes of "heads" and "d_kv" in "hidden:8" are not known; give one, as heads=...',
     "batch (heads d_kv) -> batch heads d_kv\n"
     "      ^^^^^^^^^^^^"),
    (lambda: mtf.rearrange(X, "batch (heads d_kv) -> batch heads d_kv", heads=3),
     'dimension "hidden" of size 8 does not divide into 3',
     "batch (heads d_kv) -> batch heads d_kv\n"
     "      ^^^^^^^^^^^^"),
    (lambda: mtf.rearrange(X, "batch (heads:2 d_kv:3) -> batch heads d_kv"),
     'dimension "hidden" of size 8 is not 2 * 3',
     "batch (heads:2 d_kv:3) -> batch heads d_kv\n"
     "      ^^^^^^^^^^^^^^^^"),
    (lambda: mtf.rearrange(X, "batch (heads:4 d_kv) -> batch heads d_kv", heads=2),
     '"heads" has size 4 here, but 2 is given too',
     "batch (heads:4 d_kv) -> batch heads d_kv\n"
     "       ^^^^^^^"),
    (lambda: mtf.rearrange(X, "batch (heads d_kv) -> batch heds d_kv", heads=2),
     '"heds" is not on the left (did you mean "heads"?), and a new dimension needs its size: "heds:size"',
     "batch (heads d_kv) -> batch heds d_kv\n"
     "                            ^^^^"),
    (lambda: mtf.rearrange(X, "batch (heads d_kv) -> batch heads", heads=2),
     '"d_kv" is not on the right; to reduce it, use mtf.reduce',
     "batch (heads d_kv) -> batch heads\n"
     "             ^^^^"),
    (lambda: mtf.rearrange(X, "batch ... -> batch"),
     '"..." stands for "hidden", and is not on the right; to reduce it, use mtf.reduce',
     "batch ... -> batch\n"
     "      ^^^"),
    (lambda: mtf.rearrange(X, "batch heads d_kv -> batch (heads d_kv)"),
     "[batch:4 hidden:8] has 2 dimensions, but the left side has 3",
     "batch heads d_kv -> batch (heads d_kv)\n"
     "^^^^^^^^^^^^^^^^"),
    (lambda: mtf.rearrange(X, "batch -> batch"),
     '[batch:4 hidden:8] has 2 dimensions, but the left side has 1; name each in order, or write "..." for several',
     "batch -> batch\n"
     "^^^^^"),
    (lambda: mtf.rearrange(X, "batch hidden -> (batch hidden)"),
     "a merged dimension needs a name: write (name: batch hidden)",
     "batch hidden -> (batch hidden)\n"
     "                ^^^^^^^^^^^^^^"),
    (lambda: mtf.rearrange(X, "hidden batch -> batch hidden"),
     'dimension 0 of [batch:4 hidden:8] is "batch", not "hidden"; list dimensions in the tensor\'s order',
     "hidden batch -> batch hidden\n"
     "^^^^^^"),
    (lambda: mtf.rearrange(X, "batch (d_model: a b) -> batch a b", a=2),
     'dimension 1 of [batch:4 hidden:8] is "hidden", not "d_model"',
     "batch (d_model: a b) -> batch a b\n"
     "      ^^^^^^^^^^^^^^"),
    (lambda: mtf.rearrange(X, "batch:5 hidden -> hidden batch"),
     'dimension "batch" has size 4, not 5',
     "batch:5 hidden -> hidden batch\n"
     "^^^^^^^"),
    (lambda: mtf.rearrange(X, "batch (hidden -> batch"),
     'there is no ")" before this',
     "batch (hidden -> batch\n"
     "              ^^"),
    (lambda: mtf.rearrange(X, "batch hidden -> (d: batch hidden"),
     'there is no ")" after this',
     "batch hidden -> (d: batch hidden\n"
     "                ^"),
    (lambda: mtf.rearrange(X, "batch hidden) -> batch"),
     'there is no "(" before this',
     "batch hidden) -> batch\n"
     "            ^"),
    (lambda: mtf.rearrange(X, "batch hidden"),
     'the pattern needs "->" and the result\'s dimensions',
     "batch hidden\n"
     "            ^"),
    (lambda: mtf.rearrange(X, "batch hidden -> batch -> hidden"),
     'a pattern has only one "->"',
     "batch hidden -> batch -> hidden\n"
     "                      ^^"),
    (lambda: mtf.rearrange(X, "batch; hidden -> hidden"),
     '";" is not allowed here; separate names by spaces',
     "batch; hidden -> hidden\n"
     "     ^"),
    (lambda: mtf.rearrange(X, "batch hidden -> batch hidden 1"),
     "a dimension needs a name: write name:1",
     "batch hidden -> batch hidden 1\n"
     "                             ^"),
    (lambda: mtf.rearrange(X, "batch (4 b) -> batch b"),
     "a factor of 4 needs a name; to reduce it, use mtf.reduce",
     "batch (4 b) -> batch b\n"
     "       ^"),
    (lambda: mtf.rearrange(X, "batch ... ... -> batch ..."),
     '"..." may occur only once; it stands for all dimensions not named',
     "batch ... ... -> batch ...\n"
     "          ^^^"),
    (lambda: mtf.rearrange(X, "batch hidden -> ... batch"),
     '"..." is on the right only; write it on the left too',
     "batch hidden -> ... batch\n"
     "                ^^^"),
    (lambda: mtf.rearrange(X, "batch (batch b) -> batch b", b=2),
     '"batch" would be two dimensions; choose another name',
     "batch (batch b) -> batch b\n"
     "       ^^^^^"),
    (lambda: mtf.rearrange(X, "batch hidden -> batch batch hidden"),
     '"batch" stands twice on the right',
     "batch hidden -> batch batch hidden\n"
     "                      ^^^^^"),
    (lambda: mtf.rearrange(X, "batch hidden -> hidden (hidden: batch)"),
     'the result would have dimension "hidden" twice',
     "batch hidden -> hidden (hidden: batch)\n"
     "                       ^^^^^^^^^^^^^^^"),
    (lambda: mtf.rearrange(X, "batch () -> batch"),
     "a group needs at least one factor",
     "batch () -> batch\n"
     "      ^^"),
    (lambda: mtf.rearrange(X, "batch ((a b) c) -> batch a b c"),
     "a group inside a group is not needed; list all factors in one",
     "batch ((a b) c) -> batch a b c\n"
     "       ^"),
    (lambda: mtf.rearrange(X, "batch (a k: b) -> batch a b"),
     'the name of a group comes first, as in (k: a b); a size follows ":" without a space',
     "batch (a k: b) -> batch a b\n"
     "         ^^"),
    (lambda: mtf.rearrange(X, "k: batch hidden -> batch hidden"),
     'a name before ":" must be in a group, as in (k: a b)',
     "k: batch hidden -> batch hidden\n"
     "^^"),
    (lambda: mtf.rearrange(X, "batch (... b) -> batch b"),
     '"..." cannot be a factor of a dimension; name the factors',
     "batch (... b) -> batch b\n"
     "      ^^^^^^^"),
    (lambda: mtf.rearrange(X, "batch hidden, hidden -> batch"),
     "only one tensor is rearranged, but this is a second one",
     "batch hidden, hidden -> batch\n"
     "              ^^^^^^"),
    (lambda: mtf.rearrange(X, "batch (a b) -> a b batch", a=2, bb=3),
     'a size is given for "bb", which is not in the pattern; did you mean "b"?',
     ""),
    (lambda: mtf.rearrange(X, "batch (a b) -> a b batch", a=[2]),  # type: ignore[arg-type]
     'the size of "a" must be a whole number of at least 0, not [2]',
     ""),
    (lambda: mtf.reduce(X, "batch (hidden 3) -> batch hidden", "max"),
     'dimension "hidden" of size 8 does not divide into 3',
     "batch (hidden 3) -> batch hidden\n"
     "      ^^^^^^^^^^"),
    (lambda: mtf.reduce(X, "batch hidden -> batch hidden:4", "max"),
     '"hidden" has size 8 on the left, not 4',
     "batch hidden -> batch hidden:4\n"
     "                      ^^^^^^^^"),
    (lambda: mtf.einsum("batch hidden, hidden d_ff -> batch dff", X, W),
     'no operand has dimension "dff" (did you mean "d_ff"?), and a new dimension needs its size: "dff:size"',
     "batch hidden, hidden d_ff -> batch dff\n"
     "                                   ^^^"),
    (lambda: mtf.einsum("batch hidden, hidden d_ff, d_ff -> batch d_ff", X, W),
     "the pattern has 3 operands, but 2 tensors are given",
     "batch hidden, hidden d_ff, d_ff -> batch d_ff\n"
     "^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^"),
    (lambda: mtf.einsum("batch, hidden d_ff -> batch d_ff", X, W),
     'operand 0 [batch:4 hidden:8] has "hidden" too; name each dimension, or write "..."',
     "batch, hidden d_ff -> batch d_ff\n"
     "^^^^^"),
    (lambda: mtf.einsum("batch hiden, hidden d_ff -> batch d_ff", X, W),
     'operand 0 [batch:4 hidden:8] has no dimension "hiden"; did you mean "hidden"?',
     "batch hiden, hidden d_ff -> batch d_ff\n"
     "      ^^^^^"),
    (lambda: mtf.einsum("... hidden, hidden d_ff -> d_ff", X, W),
     '"..." stands for [batch:4]; write "..." on the right too, or name what is summed',
     "... hidden, hidden d_ff -> d_ff\n"
     "                           ^^^^"),
    (lambda: mtf.einsum("batch (a b), hidden d_ff -> d_ff", X, W),
     "einsum takes names of dimensions; split and merge them with mtf.rearrange",
     "batch (a b), hidden d_ff -> d_ff\n"
     "      ^^^^^"),
    (lambda: mtf.einsum("batch hidden:4, hidden d_ff -> d_ff", X, W),
     'dimension "hidden" has size 8, not 4',
     "batch hidden:4, hidden d_ff -> d_ff\n"
     "      ^^^^^^^^"),
    (lambda: mtf.einsum("batch hidden, hidden d_ff -> d_ff d_ff", X, W),
     '"d_ff" stands twice',
     "batch hidden, hidden d_ff -> d_ff d_ff\n"
     "                                  ^^^^"),
]  # fmt: skip


@pytest.mark.parametrize(("wrong", "fact", "shown"), WRONG)
def test_the_whole_message(wrong: Wrong, fact: str, shown: str) -> None:
    with pytest.raises(MeshtfError) as caught:
        wrong()
    name = next(n for n in ("einsum", "reduce", "rearrange") if n in wrong.__code__.co_names)
    operands = [repr(X), *([repr(W)] if name == "einsum" else [])]
    lines = [f"mtf.{name}: {fact}", *(f"    {line}" for line in shown.splitlines()), "  operands:"]
    lines += [*(f"    {x}" for x in operands)]
    message, _, site = str(caught.value).rpartition("\n  at ")
    assert message == "\n".join(lines)
    assert site == f"{__file__}:{site.rpartition(':')[2].partition(' ')[0]} in <lambda>"


def read(kind: type[MeshtfError], wrong: Wrong) -> str:
    with pytest.raises(kind) as caught:
        wrong()
    return str(caught.value)


def test_what_is_given_in_place_of_a_pattern() -> None:
    text = read(UsageError, lambda: mtf.rearrange("batch hidden -> hidden batch", X))  # type: ignore[arg-type]
    assert "the tensor comes first, and then the pattern: (x, 'batch hidden -> hidden batch')" in text
    forgotten: list[tuple[Any, str]] = [
        (
            lambda: mtf.rearrange("a b -> b a"),
            "rearrange: the tensor comes first, and then the pattern: (x, 'a b -> b a'",
        ),
        (
            lambda: mtf.reduce("a b -> b", "mean"),
            "mtf.reduce: the tensor comes first, and then the pattern: (x, 'a b ->",
        ),
        (lambda: mtf.reduce(X, "mean", "a b -> b"), "the pattern comes before the reduction: (x, 'a b -> b', 'mean')"),
        (lambda: mtf.einsum("a b -> b"), "einsum: the tensors come after the pattern, one by one: ('a b -> b', x, y)"),
        (lambda: mtf.einsum("a b -> b", [X]), "mtf.einsum: the tensors come after the pattern, one by one"),
        (lambda: mtf.einsum(X, "a b -> b"), "mtf.einsum: the pattern comes first, and then the tensors, one by one"),
        (lambda: mtf.einsum([X], "a b -> b"), "mtf.einsum: the pattern comes first, and then the tensors, one by one"),
    ]  # type: ignore[call-arg, arg-type]
    for wrong, words in forgotten:
        assert words in read(UsageError, wrong)
    assert "a pattern must be text such as" in read(UsageError, lambda: mtf.rearrange(X, ["batch"]))  # type: ignore[arg-type]
    text = read(UsageError, lambda: mtf.reduce(X, "batch hidden -> batch", "maximum"))
    assert 'reduction \'maximum\' is not one of "sum", "mean", "max", ' in text
    text = read(UsageError, lambda: mtf.einsum("... -> ...", X, output_shape="batch"))  # type: ignore[call-overload]
    assert "a pattern already says what the result is; leave out output_shape and reduced_dims" in text
    assert "too many positional arguments" in read(UsageError, lambda: mtf.einsum([X], "batch", None, "n", 5))  # type: ignore[call-overload]
    text = read(UsageError, lambda: mtf.einsum([X], "batch", output_shape="batch"))  # type: ignore[call-overload]
    assert "multiple values for argument 'output_shape'" in text
    assert "the operand must be an mtf.Tensor, not int" in read(GraphError, lambda: mtf.einsum("batch ->", 3))  # type: ignore[arg-type]
