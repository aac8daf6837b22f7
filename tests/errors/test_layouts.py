"""Layouts that the mesh or the program cannot have, and meshes that the devices cannot carry."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DeviceError, LayoutError, LayoutWarning, ShapeError

SPECS = {"x": mtf.TensorSpec("batch:4 hidden:6")}


def body(x: mtf.Tensor) -> mtf.Tensor:
    return mtf.rename_dimension(mtf.tanh(x), "batch", "examples")


def program(layout: str, mesh: str = "rows:2;cols:4", fn: Callable[..., Any] = body) -> mtf.Function:
    return mtf.function(fn, mtf.SpmdMeshImpl(mesh, layout), SPECS)


def test_an_unknown_mesh_axis(read: Callable[..., str]) -> None:
    text = read(LayoutError, lambda: mtf.SpmdMeshImpl("rows:2;cols:4", "batch:row"))
    assert 'layout rule "batch:row" names mesh axis "row", which mesh [rows:2 cols:4] does not have' in text
    assert 'did you mean "rows"?' in text


def test_an_indivisible_size(read: Callable[..., str]) -> None:
    def build() -> mtf.Function:
        mesh = mtf.SpmdMeshImpl("rows:2;cols:4", "hidden:cols", max_padding=0.2)
        return mtf.function(body, mesh, SPECS)  # here

    text = read(LayoutError, build)
    assert (
        'dimension "hidden" of size 6 does not divide into 4 parts (rule "hidden:cols", mesh [rows:2 cols:4])' in text
    )
    assert "): 25% of what cores hold would be padding, more than 20%; " in text
    assert '"hidden:rows" would divide, or make the size a multiple of 4 such as 8, or allow more with max_pad' in text
    assert "in operation x [batch:4 hidden:6] float32" in text


def test_inside_a_loop_the_message_names_the_operation_inside() -> None:
    steps = mtf.Dimension("steps", 3)

    def scanned(x: mtf.Tensor) -> mtf.Tensor:
        def one(carried: list[mtf.Tensor], _: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
            clash = mtf.rename_dimension(carried[0], "batch", "examples")
            return carried, [clash * float(n) for n in range(9)]

        return mtf.scan(one, x, [], steps)[1][0]

    with pytest.raises(LayoutError) as caught:
        program("hidden:rows;examples:rows", fn=scanned)
    text = str(caught.value)
    assert (text.count("\n  in operation "), text.count("\n  at ")) == (1, 1)
    assert "in operation rename_dimension [examples:4 hidden:6]" in text
    assert max(map(len, text.splitlines())) < 300


def test_two_dimensions_on_one_axis(read: Callable[..., str]) -> None:
    def renames(x: mtf.Tensor) -> mtf.Tensor:
        return mtf.rename_dimension(x, "batch", "examples")  # here

    with pytest.raises(LayoutError) as caught:
        program("hidden:rows;examples:rows", fn=renames)
    text = str(caught.value)
    assert 'dimensions "examples" and "hidden" are both split over mesh axis "rows" in [examples:4 hidden:6]' in text
    assert (
        "leave one of them unsplit in this layout, or override this tensor's with mtf.with_layout or mtf.repl" in text
    )
    assert "in operation rename_dimension [examples:4 hidden:6] float32" in text
    assert f"at {__file__}:{renames.__code__.co_firstlineno + 1} in renames" in text


def test_a_misspelt_dimension() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        step = program("bach:rows;hiden:cols;hidden:rows")
    messages = [(w.category, str(w.message), w.filename) for w in caught]
    assert messages == [
        (LayoutWarning, f'layout rule "{rule}" has no effect: the program has no dimension "{name}"; did you mean '
                        f'"{meant}"?', __file__)
        for rule, name, meant in [("bach:rows", "bach", "batch"), ("hiden:cols", "hiden", "hidden")]
    ]  # fmt: skip
    assert step(tf.ones([4, 6])).shape == [4, 6]


def test_a_misspelt_dimension_of_the_parameter_layout() -> None:
    mesh_impl = mtf.PlanMeshImpl("rows:2;cols:2", "batch:rows", parameter_layout="hiden:cols")
    with pytest.warns(LayoutWarning, match=r'^parameter layout rule "hiden:cols" has .*; did you mean "hidden"\?$'):
        mtf.function(lambda x: x + 1.0, mesh_impl, inputs={"x": mtf.TensorSpec("batch:4;hidden:6")})


def test_text_that_is_no_layout(read: Callable[..., str]) -> None:
    text = read(LayoutError, lambda: mtf.SpmdMeshImpl("rows:2", "batch rows"))
    assert "not of the form dimension:axis or dimension:axis+axis:\n    batch rows\n    ^^^^^\n" in text
    text = read(ShapeError, lambda: mtf.SpmdMeshImpl("rows:2;cols", ""))
    assert "not of the form name:size:\n    rows:2;cols\n           ^^^^\n" in text
    text = read(LayoutError, lambda: mtf.SpmdMeshImpl("rows:2;cols:2", "batch:rows;batch:cols"))
    assert 'two layout rules for dimension "batch": batch:rows and batch:cols; for several axes write' in text
    assert "names an axis twice" in read(LayoutError, lambda: mtf.SpmdMeshImpl("rows:2", "batch:rows+rows"))
    assert 'for one that splits nothing give ""' in read(LayoutError, lambda: mtf.SpmdMeshImpl("rows:2", None))  # type: ignore[arg-type]


def test_overrides(read: Callable[..., str]) -> None:
    def unknown_dimension(x: mtf.Tensor) -> mtf.Tensor:
        return mtf.with_layout(x, "hiden:rows")

    def unknown_axis(x: mtf.Tensor) -> mtf.Tensor:
        return mtf.with_layout(x, "hidden:row")

    def clash(x: mtf.Tensor) -> mtf.Tensor:
        return mtf.with_layout(x, "batch:rows") + mtf.with_layout(x, "batch:cols")

    for fn, parts in {
        unknown_dimension: ['no dimension "hiden" in [batch:4 hidden:6]; did you mean "hidden"?'],
        unknown_axis: ['the override names mesh axis "row", which mesh [rows:2 cols:4] does not have', '"rows"?'],
        clash: [
            'dimension "batch" is split over (rows) in with_layout',
            "(cols) in with_layout_1",
            "both layouts were",
        ],
    }.items():
        with pytest.raises(LayoutError) as caught:
            program("", fn=fn)
        text = str(caught.value)
        assert all(part in text for part in parts), text
        assert f"\n  at {__file__}:{fn.__code__.co_firstlineno + 1}" in text


def test_more_cores_than_devices(read: Callable[..., str]) -> None:
    text = read(DeviceError, lambda: mtf.SpmdMeshImpl("rows:40;cols:4", ""))
    cpus = len(tf.config.list_logical_devices("CPU"))
    assert f"mesh [rows:40 cols:4] has 160 cores, and TensorFlow has {cpus} logical CPUs" in text
    assert (
        "before the first TensorFlow op and the first mesh:\n    mtf.virtual_cpus(160)\nor make the mesh smaller"
        in text
    )


def test_devices(read: Callable[..., str]) -> None:
    unknown = read(DeviceError, lambda: mtf.SpmdMeshImpl("rows:2", "", devices=["CPU:0", "CPU:999"]))
    assert "no such device: 'CPU:999'" in unknown
    assert "mtf.virtual_cpus(2)" in unknown
    twice = read(DeviceError, lambda: mtf.SpmdMeshImpl("rows:2", "", devices=["CPU:0", "CPU:0"]))
    assert "given for more than one core: /device:CPU:0" in twice
    few = read(DeviceError, lambda: mtf.SpmdMeshImpl("rows:2", "", devices=["CPU:0"]))
    assert "mesh [rows:2] has 2 cores, and 1 device was given for it" in few


@pytest.mark.parametrize("mesh", ["r:2;c:2", "r:2;c:4", "r:3;c:2", "r:8", "r:2;c:3;d:5"])
def test_advised_sizes_and_rules_pass(mesh: str) -> None:
    shape = mtf.convert_to_shape(mesh)
    names = shape.dimension_names
    rules = ["+".join(names[:n]) for n in range(1, len(names) + 1)] + names[1:]

    def check(size: int, rule: str) -> None:
        dims = mtf.Shape([("h", size), ("other", 60)])
        taken = next((n for n in names if n not in rule.split("+")), None)
        layout = mtf.convert_to_layout_rules(f"h:{rule}" + (f";other:{taken}" if taken else ""))
        layout.tensor_layout(dims, shape, max_padding=0.0)

    for size in range(1, 31):
        for rule in rules:
            try:
                check(size, rule)
            except LayoutError as error:
                text = str(error)
                check(int(re.search(r"such as (\d+)", text)[1]), rule)
                for advised in re.findall(r'"h:([^"]+)" would divide', text):
                    mtf.convert_to_layout_rules(f"h:{advised}").tensor_layout(mtf.Shape([("h", size)]), shape, 0.0)
