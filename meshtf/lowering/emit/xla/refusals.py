"""Explains the refusals of XLA's compiler in the user's terms."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from meshtf.tensorflow_private.xla_modules import parsed_hlo

_NODE = re.compile(r"{{node ([^}]+)}}")
_NO_KERNEL = re.compile(r"No registered '(\w+)' OpKernel")
_FRAME = re.compile(r"Failed getting HLO text: |The op is created at:.*|tf2xla conversion failed.*", re.DOTALL)
_LONGEST_FACT = 600

_REFUSED = """\
program "{program}" cannot be compiled by XLA: {fact}
  in operation {origin}
Programs for GPUs and TPUs are compiled as a whole. Write the operation in another way, or run the program \
on an mtf.SpmdMeshImpl."""


def refusal(text: str, program: str, scope_to_origin: Mapping[str, str]) -> str:
    """The message of a CompilationError.

    Args:
      text: the text of TensorFlow's error.
      program: the program's name.
      scope_to_origin: the operation and the user's line of an instruction, by its name scope, such as `Compute_17`.
    """
    return _REFUSED.format(program=program, fact=_fact(text), origin=_origin(_NODE.findall(text), scope_to_origin))


def size_from_values(hlo: bytes, program: str, scope_to_origin: Mapping[str, str]) -> str | None:
    """The error message if some tensor's size depends on values (`tf.unique`, `tf.boolean_mask`), else None.

    XLA would compile such a program with a padded tensor, which looks like a whole one.
    """
    module = parsed_hlo(hlo)
    every = (i for computation in module.computations for i in computation.instructions)
    nodes = [i.metadata.op_name for i in every if any(i.shape.is_dynamic_dimension)]
    if not nodes:
        return None
    fact = f"the size of a result of TensorFlow's {nodes[0].split('/')[-1]} depends on its values"
    return _REFUSED.format(program=program, fact=fact, origin=_origin(nodes, scope_to_origin))


def _origin(nodes: Sequence[str], scope_to_origin: Mapping[str, str]) -> str:
    """The operation of the innermost instruction whose scope contains a node."""
    for node in nodes:
        for scope in reversed(node.split("/")):
            origin = scope_to_origin.get(scope.split(".")[0])
            if origin is not None:
                return origin
    return "that the compiler does not name"


def _fact(text: str) -> str:
    kernels = list(dict.fromkeys(_NO_KERNEL.findall(text)))
    if kernels:
        return f"it has no kernel for TensorFlow's {', '.join(kernels)}"
    return _NODE.sub("", _FRAME.sub("", text)).strip(" '\n")[:_LONGEST_FACT]
