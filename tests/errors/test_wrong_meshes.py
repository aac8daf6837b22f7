"""Meshes, layouts, options and programs that there cannot be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DeviceError, FeedError, GraphError, LayoutError, ShapeError, UsageError

MESH = mtf.Mesh(mtf.Graph())
X = mtf.placeholder(MESH, "batch:4 hidden:8", name="x")


PAPER, SPECS = mtf.PlanMeshImpl("r:2", ""), {"x": mtf.TensorSpec("a:2")}


def interpreted(*layouts: str, **options: Any) -> Any:
    return mtf.testing.interpret(lambda x: x, {"x": ("a:2", np.ones(2))}, *layouts, **options)


def program(fn: Callable[..., Any], mesh: str = "rows:2", layout: str = "batch:rows") -> mtf.Function:
    return mtf.function(fn, mtf.PlanMeshImpl(mesh, layout), {"x": mtf.TensorSpec("batch:4 hidden:8")}, name="program")


# fmt: off
WRONG: list[tuple[str, Callable[[], Any], type[Exception], str]] = [
    ("mesh None", lambda: mtf.PlanMeshImpl(None, ""),
     ShapeError, 'the shape of a mesh is needed, such as "rows:2;cols:4"'),
    ("mesh int", lambda: mtf.PlanMeshImpl(8, ""),
     ShapeError, "not a shape: 8; give an mtf.Shape, a list of dimensions, or text such as"),
    ("mesh twice", lambda: mtf.PlanMeshImpl("r:2;r:2", ""),
     ShapeError, 'dimension "r" stands twice in [r:2 r:2]; rename one of them'),
    ("mesh zero", lambda: mtf.PlanMeshImpl("r:0", ""),
     DeviceError, "mesh [r:0] has no cores; every axis has at least size 1"),
    ("mesh neg", lambda: mtf.PlanMeshImpl("r:-2", ""),
     ShapeError, "not of the form name:size:"),
    ("mesh bad text", lambda: mtf.PlanMeshImpl("r=2", ""),
     ShapeError, "not of the form name:size:"),
    ("mesh spaces in layout ok", lambda: mtf.PlanMeshImpl("r:2", " batch:r ; hidden: r"),
     LayoutError, "bad layout, not of the form dimension:axis or dimension:axis+axis:"),
    ("layout unknown axis", lambda: mtf.PlanMeshImpl("rows:2", "batch:row"),
     LayoutError, 'layout rule "batch:row" names mesh axis "row", which mesh [rows:2] does'),
    ("layout int", lambda: mtf.PlanMeshImpl("rows:2", 5),
     LayoutError, "not a layout rule: 5; a layout is text such as"),
    ("layout None", lambda: mtf.PlanMeshImpl("rows:2", None),
     LayoutError, 'a layout is needed; for one that splits nothing give ""'),
    ("layout missing colon", lambda: mtf.PlanMeshImpl("rows:2", "batch"),
     LayoutError, "bad layout, not of the form dimension:axis or dimension:axis+axis:"),
    ("layout empty axis", lambda: mtf.PlanMeshImpl("rows:2", "batch:"),
     LayoutError, "bad layout, not of the form dimension:axis or dimension:axis+axis:"),
    ("layout plus plus", lambda: mtf.PlanMeshImpl("rows:2;cols:2", "batch:rows++cols"),
     LayoutError, 'layout rule "batch:rows++cols" names an axis twice, or an empty one'),
    ("layout axis twice", lambda: mtf.PlanMeshImpl("rows:2;cols:2", "batch:rows+rows"),
     LayoutError, 'layout rule "batch:rows+rows" names an axis twice, or an empty one'),
    ("layout two rules", lambda: mtf.PlanMeshImpl("rows:2;cols:2", "batch:rows;batch:cols"),
     LayoutError, 'two layout rules for dimension "batch": batch:rows and batch:cols; for'),
    ("layout dict of int", lambda: mtf.PlanMeshImpl("rows:2", {"batch": 1}),
     LayoutError, "not a layout rule: ('batch', 1); a layout is text such as"),
    ("layout pairs bad", lambda: mtf.PlanMeshImpl("rows:2", [("batch",)]),
     LayoutError, "not a layout rule: ('batch',); a layout is text such as"),
    ("layout list of text", lambda: mtf.PlanMeshImpl("rows:2", ["batch:rows"]),
     LayoutError, "not a layout rule: 'batch:rows'; a layout is text such as"),
    ("layout dict None", lambda: mtf.PlanMeshImpl("rows:2", {"batch": None}),
     LayoutError, "not a layout rule: ('batch', None); a layout is text such as"),
    ("option unknown", lambda: mtf.PlanMeshImpl("rows:2", "", bucketbytes=3),
     UsageError, 'a mesh has no option "bucketbytes"; did you mean "bucket_bytes"?; its'),
    ("option bucket", lambda: mtf.PlanMeshImpl("rows:2", "", bucket_bytes=-1),
     UsageError, "bucket_bytes must be an integer, 0 or more, and is "),
    ("option text", lambda: mtf.PlanMeshImpl("rows:2", "", bucket_bytes="4"),
     UsageError, "bucket_bytes must be an integer, 0 or more, and is "),
    ("option timeout", lambda: mtf.PlanMeshImpl("rows:2", "", collective_timeout_seconds="3"),
     DeviceError, "collective_timeout_seconds must be positive, and is '3'"),
    ("option timeout nan", lambda: mtf.PlanMeshImpl("rows:2", "", collective_timeout_seconds=float("nan")),
     DeviceError, "collective_timeout_seconds must be positive, and is nan"),
    ("option sum dtype", lambda: mtf.PlanMeshImpl("rows:2", "", gradient_sum_dtype=tf.int32),
     UsageError, "gradient_sum_dtype must be one of float32, bfloat16, or None, and is "),
    ("option parameter_layout", lambda: mtf.PlanMeshImpl("rows:2", "", parameter_layout="w:row"),
     LayoutError, 'layout rule "w:row" names mesh axis "row", which mesh [rows:2] does not'),
    ("options wrong type", lambda: mtf.PlanMeshImpl("rows:2", "", options={"bucket_bytes": 0}),
     UsageError, "options must be an mtf.MeshOptions, not dict"),
    ("spmd devices int", lambda: mtf.SpmdMeshImpl("r:2", "", 5),
     DeviceError, "devices must be a list of names, one for each core, and not 5"),
    ("spmd devices text", lambda: mtf.SpmdMeshImpl("r:2", "", "CPU:0"),
     DeviceError, "devices must be a list of names, one for each core, and not the text"),
    ("spmd devices generated", lambda: mtf.SpmdMeshImpl("r:2", "", (f"CPU:{n}" for n in range(2))),
     DeviceError, "devices must be a list of names, one for each core, and not <generator"),
    ("spmd devices without order", lambda: mtf.SpmdMeshImpl("r:*", "", {"CPU:0"}),
     DeviceError, "devices must be a list of names, one for each core, and not {'CPU:0'}"),
    ("spmd devices few", lambda: mtf.SpmdMeshImpl("r:2", "", ["CPU:0"]),
     DeviceError, "mesh [r:2] has 2 cores, and 1 device was given for it"),
    ("spmd devices twice", lambda: mtf.SpmdMeshImpl("r:2", "", ["CPU:0", "CPU:0"]),
     DeviceError, "given for more than one core: /device:CPU:0; each core needs a device of"),
    ("spmd devices none there", lambda: mtf.SpmdMeshImpl("r:2", "", ["CPU:0", "CPU:99"]),
     DeviceError, "no such device: 'CPU:99'; TensorFlow has /device:CPU:0, /device:CPU:1,"),
    ("spmd devices None in", lambda: mtf.SpmdMeshImpl("r:2", "", [None, "CPU:0"]),
     DeviceError, "no such device: None; TensorFlow has /device:CPU:0, /device:CPU:1,"),
    ("cpus text", lambda: mtf.virtual_cpus("8"),
     UsageError, "mtf.virtual_cpus('8'): the number of CPUs is a whole number, as in"),
    ("cpus 0", lambda: mtf.virtual_cpus(0),
     DeviceError, "mtf.virtual_cpus(0): a mesh has at least one core"),
    ("cpus huge", lambda: mtf.virtual_cpus(100000),
     DeviceError, "mtf.virtual_cpus(100000): virtual CPUs share this machine's 2 processors,"),
    ("cpus float", lambda: mtf.virtual_cpus(2.0),
     UsageError, "mtf.virtual_cpus(2.0): the number of CPUs is a whole number, as in"),
    ("tpu torus", lambda: mtf.TpuMeshImpl("r:8", "", physical_torus="4x"),
     DeviceError, 'the physical torus is written as "4x4" or "4x4x8", in chips, and not \'4x\''),
    ("tpu fit", lambda: mtf.TpuMeshImpl("r:7", "", physical_torus="2x2"),
     DeviceError, "mesh [r:7] does not fit a torus of 2x2 chips with 2 cores each: it has 8"),
    ("layout size", lambda: program(lambda x: x, mesh="rows:5;more:3", layout="batch:rows+more"),
     LayoutError, 'dimension "batch" of size 4 does not divide into 15 parts (rule'),
    ("layout size plus", lambda: program(lambda x: mtf.zeros(x.mesh, "h:5"), mesh="r:2;c:2", layout="h:r+c"),
     LayoutError, 'dimension "h" of size 5 does not divide into 4 parts (rule "h:r+c", mesh'),
    ("max_padding", lambda: mtf.PlanMeshImpl("r:2", "", max_padding=1.5),
     UsageError, "max_padding must be a share, from 0 to 1, and is 1.5"),
    ("layout two dims", lambda: program(lambda x: x, layout="batch:rows;hidden:rows"),
     LayoutError, 'dimensions "batch" and "hidden" are both split over mesh axis "rows" in'),
    ("testing axis", lambda: interpreted("rows:2", "a:row"),
     LayoutError, 'layout rule "a:row" names mesh axis "row", which mesh [rows:2] does not'),
    ("testing param axis", lambda: interpreted("rows:2", "", parameter_layout="a:row"),
     LayoutError, 'layout rule "a:row" names mesh axis "row", which mesh [rows:2] does not'),
    ("testing shape", lambda: mtf.testing.interpret(lambda x: x, {"x": ("a:3", np.ones(2))}, "rows:2", ""),
     FeedError, 'input "x" must be [a:3] float64, and has shape [2]'),
    ("testing missing", lambda: mtf.testing.interpret(lambda x, y: x, {"x": ("a:2", np.ones(2))}, "rows:2", ""),
     GraphError, ""),
    ("testing noarray", lambda: mtf.testing.interpret(lambda x: x, {"x": np.ones(2)}, "rows:2", ""),
     FeedError, 'input "x" is given as a named shape and an array, ("batch:4", x), not'),
    ("testing list", lambda: mtf.testing.interpret(lambda x: x, [("a:2", np.ones(2))], "rows:2", ""),
     FeedError, 'inputs must be a dict such as {"x": ("batch:4", x)}, not list'),
    ("invariance noarray", lambda: mtf.testing.assert_layout_invariant(lambda x: x, {"x": np.ones(3)}),
     FeedError, 'input "x" is given as a named shape and an array, ("batch:4", x), not'),
    ("invariance one layout",
     lambda: mtf.testing.assert_layout_invariant(lambda x: x, {"x": ("a:2", np.ones(2))}, "a:rows"),
     LayoutError, "layouts must be a list of layouts, and is the one layout 'a:rows'; write ['a:rows']"),
    ("initialize list", lambda: program(lambda x: x).initialize([np.ones(2)]),
     UsageError, 'values must be a dict from names of variables to arrays, such as {"w": w}, not list'),
    ("layers misspelt", lambda: mtf.layers.desne,
     AttributeError, 'module \'meshtf.layers\' has no attribute \'desne\'; did you mean "dense"?'),
    ("testing misspelt", lambda: mtf.testing.interpet,
     AttributeError, "module 'meshtf.testing' has no attribute 'interpet'; did you mean"),
    ("optimize misspelt", lambda: mtf.optimize.AdamOptimzer,
     AttributeError, "module 'meshtf.optimize' has no attribute 'AdamOptimzer'; did you mean"),
    ("models misspelt", lambda: mtf.models.TransformerLm,
     AttributeError, "module 'meshtf.models' has no attribute 'TransformerLm'; did you mean"),
    ("checkpoint misspelt", lambda: mtf.checkpoint.restor,
     AttributeError, "module 'meshtf.checkpoint' has no attribute 'restor'; did you mean"),
    ("function mesh", lambda: mtf.function(lambda x: x, "rows:2", {"x": mtf.TensorSpec("a:2")}),
     GraphError, "mesh_impl must be an mtf.SpmdMeshImpl, GpuMeshImpl, TpuMeshImpl or PlanMeshImpl, not str"),
    ("function variable_dtype", lambda: mtf.function(lambda x: x, PAPER, SPECS, variable_dtype="bfloat16"),
     GraphError, "variable_dtype must be an mtf.VariableDType, and is 'bfloat16'; mtf.VariableDType("),
    ("predict name", lambda: mtf.costs.predict(program(lambda x: x).report(), "v5e"),
     UsageError, "predict needs a machine, such as mtf.costs.load_machine(\"v5e\"), not 'v5e'"),
    ("predict program", lambda: mtf.costs.predict(program(lambda x: x), mtf.costs.load_machine("v5e")),
     UsageError, "predict needs a report, such as step.report(), not Function"),
    ("function inputs list", lambda: mtf.function(lambda x: x, mtf.PlanMeshImpl("r:2", ""), [mtf.TensorSpec("a:2")]),
     GraphError, "inputs must be a dict from names to mtf.TensorSpecs, not list"),
    ("function spec np", lambda: mtf.function(lambda x: x, mtf.PlanMeshImpl("r:2", ""), {"x": np.ones(3)}),
     GraphError, 'input "x" must be an mtf.TensorSpec, not numpy.ndarray'),
    ("function not callable", lambda: mtf.function(3, mtf.PlanMeshImpl("r:2", "")),
     GraphError, "the first argument must be a function over mtf.Tensors, not int"),
    ("function returns np", lambda: program(lambda x: np.ones(3)),
     GraphError, "program returned an array of NumPy, ndarray, known before it runs; it must"),
    ("function params", lambda: program(lambda y: y),
     GraphError, 'inputs names "x", which'),
    ("function seed text", lambda: mtf.function(lambda x: x, PAPER, SPECS, seed="a"),
     UsageError, "seed must be a whole number of 64 bits, and is 'a'"),
    ("function seed huge", lambda: mtf.function(lambda x: x, PAPER, SPECS, seed=2 ** 70),
     UsageError, "seed must be a whole number of 64 bits, and is 1180591620717411303424"),
    ("plan called", lambda: program(lambda x: x)(x=np.ones([4, 8], np.float32)),
     UsageError, 'program "program" was lowered for mesh [rows:2] on paper, which runs'),
    ("variables of another", lambda: mtf.function(lambda x: x, PAPER, SPECS, variables={}),
     UsageError, "variables must be an mtf.VariableStore, not dict"),
    ("builtin fn", lambda: mtf.function(max, PAPER, SPECS),
     GraphError, "<built-in function max> does not name its parameters; give a"),
    ("fetch str", lambda: program(lambda x: x).lowering.execution("nope"),
     GraphError, "the fetch must be an mtf.Tensor, not str; bring values in as inputs of"),
    ("lowering run", lambda: program(lambda x: x).lowering.run("nope"),
     GraphError, 'no tensor was exported as "nope" (mtf.export) in program "program"; there'),
    ("lowering run nested", lambda: (p := program(lambda x: x)).lowering.run([[p.results]]),
     GraphError, "the fetch must be an mtf.Tensor, not list; bring values in as inputs of"),
    ("lowering export list", lambda: (p := program(lambda x: x)).lowering.export_to_tf_tensor([p.results]),
     GraphError, "the fetch must be an mtf.Tensor, not list; bring values in as inputs of"),
    ("interpret NaN layouts", lambda: mtf.testing.plan(lambda x: x, {"x": 3}, "r:2", ""),
     GraphError, 'input "x" must be an mtf.TensorSpec, not 3'),
]
# fmt: on


@pytest.mark.parametrize(("wrong", "kind", "words"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG])
def test_what_no_mesh_or_program_can_be_is_named(
    refused: Callable[..., None], wrong: Callable[[], Any], kind: type[Exception], words: str
) -> None:
    refused(wrong, kind, words)
