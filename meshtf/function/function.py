"""`mtf.function`: a Python function over named tensors becomes a program for a mesh."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, Protocol, overload

import tensorflow as tf

from meshtf.annotations.tensor_annotation import TensorAnnotation
from meshtf.call_sites import says_where
from meshtf.function.checks import check_arguments, check_state
from meshtf.function.program import Function
from meshtf.function.program_plans import ProgramPlans
from meshtf.function.signature import signature_of
from meshtf.function.tensor_spec import TensorSpec
from meshtf.function.tracing import Tracing
from meshtf.garbage_collection import garbage_collection_paused
from meshtf.graph.platform_kernels import PlatformKernels
from meshtf.graph.variable_dtype import VariableDType
from meshtf.lowering.passes.pass_options import DEFAULT_PASS_OPTIONS, PassOptions
from meshtf.lowering.variable_store import VariableStore
from meshtf.mesh_impl.mesh_impl import MeshImpl, is_mesh_impl

MAX_PLANS = 8


class MakesFunction(Protocol):
    """The decorator `@mtf.function(mesh_impl)`."""

    def __call__(self, fn: Callable[..., Any], /) -> Function: ...


@overload
def function(
    fn: Callable[..., Any],
    mesh_impl: MeshImpl,
    inputs: Mapping[str, TensorSpec | TensorAnnotation] | None = None,
    variables: VariableStore | None = None,
    seed: int = 0,
    *,
    name: str | None = None,
    variable_dtype: VariableDType | None = None,
    pass_options: PassOptions = DEFAULT_PASS_OPTIONS,
    max_plans: int = MAX_PLANS,
) -> Function: ...
@overload
def function(
    mesh_impl: MeshImpl,
    /,
    *,
    inputs: Mapping[str, TensorSpec | TensorAnnotation] | None = None,
    variables: VariableStore | None = None,
    seed: int = 0,
    name: str | None = None,
    variable_dtype: VariableDType | None = None,
    pass_options: PassOptions = DEFAULT_PASS_OPTIONS,
    max_plans: int = MAX_PLANS,
) -> MakesFunction: ...
def function(  # noqa: PLR0913  # one more than eight: how many plans are kept goes with nothing else
    fn: Any = None,
    mesh_impl: Any = None,
    inputs: Mapping[str, TensorSpec | TensorAnnotation] | None = None,
    variables: VariableStore | None = None,
    seed: int = 0,
    *,
    name: str | None = None,
    variable_dtype: VariableDType | None = None,
    pass_options: PassOptions = DEFAULT_PASS_OPTIONS,
    max_plans: int = MAX_PLANS,
) -> Any:
    """Turns a function over named tensors into a program for a mesh. Its graph is built and lowered once.

    You can call it, `mtf.function(fn, mesh_impl, inputs)`, or use it as a decorator, `@mtf.function(mesh_impl)`.

    Without `inputs`, the annotations of `fn` define them: `x: mtf.f32["batch pixels:784"]`. If no input states the size
    of `batch`, the size is open. The program is then planned when it is called, again for each new size of the arrays.
    All plans share the variables, the seed and the count of steps. A size that one input states is fixed for all
    inputs. An array of another size is then an error. The results must fit the annotation of the result.

    Args:
      fn: a function that takes an mtf.Tensor for each of `inputs`, by name, and the mesh if it names a parameter
        `mesh`. It returns any structure of mtf.Tensors.
      mesh_impl: the mesh, its devices and the layout.
      inputs: named shape and dtype of each input, as specs or annotations. The default is the annotations of `fn`.
      variables: a store to share with other programs. The default is a new one.
      seed: the seed of the random bits and the initial values.
      name: the name of the program. The default is the function's own.
      variable_dtype: the default element types of the program's variables.
      pass_options: the sizes at which passes begin to change a plan. Results do not depend on them.
      max_plans: the largest number of plans. Each choice of the open sizes has one plan.

    Raises:
      ShapeError, DtypeError, GraphError: for a mistake in `fn`, with its line.
      ContractError: if the tensors that `fn` returns do not fit its annotation.
      LayoutError: if the layout does not fit the program.
      UsageError: if it has variables of its own inside a tf.function, or if `seed` is no whole number of 64 bits.

    Examples:
      >>> two_cores = mtf.SpmdMeshImpl("rows:2", "batch:rows")
      >>> row_sums = lambda x: mtf.reduce_sum(x, reduced_dim="hidden")
      >>> step = mtf.function(row_sums, two_cores, inputs={"x": mtf.TensorSpec("batch:4 hidden:8")})
      >>> step(x=np.ones([4, 8], np.float32)).numpy()
      array([8., 8., 8., 8.], dtype=float32)
      >>> @mtf.function(two_cores)
      ... def scaled(x: mtf.f32["batch:4 hidden:8"]) -> mtf.f32["batch hidden"]:
      ...     return x * mtf.get_variable("scale", "hidden:8", initializer=mtf.ones)
      >>> scaled(x=np.ones([4, 8], np.float32)).shape
      TensorShape([4, 8])
    """
    options = _Options(inputs, variables, seed, name, variable_dtype, pass_options, max_plans)
    if mesh_impl is None and is_mesh_impl(fn):
        return functools.partial(_program, mesh_impl=fn, options=options)
    if fn is None and is_mesh_impl(mesh_impl):
        return functools.partial(_program, mesh_impl=mesh_impl, options=options)
    return _program(fn, mesh_impl=mesh_impl, options=options)


@dataclasses.dataclass(frozen=True)
class _Options:
    """The arguments of `mtf.function` other than the function and the mesh."""

    inputs: Mapping[str, TensorSpec | TensorAnnotation] | None
    variables: VariableStore | None
    seed: int
    name: str | None
    variable_dtype: VariableDType | None
    pass_options: PassOptions
    max_plans: int


@tf.autograph.experimental.do_not_convert
@garbage_collection_paused()
@says_where
def _program(fn: Callable[..., Any], *, mesh_impl: MeshImpl, options: _Options) -> Function:
    check_arguments(fn, mesh_impl, options.inputs)
    check_state(options.variables, options.seed, options.max_plans)
    signature, kernels = signature_of(fn, options.inputs), _kernels_of(mesh_impl)
    tracing = Tracing(fn, signature, options.name, options.variable_dtype, options.seed, kernels)
    store = VariableStore() if options.variables is None else options.variables
    is_lasting = options.variables is not None or not tf.inside_function()
    plans = ProgramPlans(tracing, mesh_impl, store, options.seed, options.pass_options, options.max_plans, is_lasting)
    return Function(plans, None if tracing.signature.open else ())


def _kernels_of(mesh_impl: MeshImpl) -> PlatformKernels:
    options = mesh_impl.options
    every = (mesh_impl.layout_rules, options.activation_layout_rules)
    split = frozenset(name for rules in every if rules is not None for name, axes in rules.rules if axes)
    return PlatformKernels(mesh_impl.kernel_platform, split)
