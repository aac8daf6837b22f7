"""Policies that select the tensors of the forward pass to keep for the backward pass. It recomputes the others."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence

from meshtf.control_flow._blocks import reads_or_assigns_state
from meshtf.control_flow._cheapest_to_keep import cheapest_to_keep
from meshtf.errors import GraphError, nearest
from meshtf.field_checks import check_kinds
from meshtf.graph.graph import Graph
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor


@dataclasses.dataclass(frozen=True)
class RecomputePolicy:
    """Selects the tensors of a block to keep for its gradient. The others are recomputed.

    Attributes:
      keep: "everything"; "nothing" (only the block's inputs); "products"; or "costly": the tensors of fewest bytes from
        which elementwise operations recompute the others.
      names: the names of operations whose results are kept as well.
      nested: whether a scan keeps only the values that enter every sqrt(n)-th of n iterations.
      only_in_loops: whether layers that a backend unrolls may ignore the policy. The compiler then sees a layer's
        forward pass and gradient together, and keeps whatever is faster, as with "everything".

    Examples:
      >>> keep_products = mtf.RecomputePolicy("products")
      >>> mtf.recompute_grad(lambda x: mtf.tanh(mtf.square(x)), [x], recompute=keep_products)
      recompute_grad [batch:4 hidden:8] float32
    """

    keep: str = "everything"
    names: tuple[str, ...] = ()
    nested: bool = False
    only_in_loops: bool = False

    def __post_init__(self) -> None:
        choices = ("costly", "everything", "nested", "nothing", "products")
        if self.keep == "nested":
            raise GraphError('RecomputePolicy("nested") is written RecomputePolicy("nothing", nested=True)')
        if self.keep not in choices:
            known = nearest(str(self.keep), choices)
            raise GraphError(f'a policy keeps one of {", ".join(choices)}, not "{self.keep}"{known}')
        check_kinds(self, GraphError)

    def keeps(self, tensor: Tensor) -> bool:
        """Whether the policy keeps a tensor.

        A tensor that costs nothing to make again, such as a constant, is not kept.
        """
        operation = tensor.operation
        if not operation.inputs:
            return False
        if any(operation.name == n or operation.name.endswith(f"/{n}") for n in self.names):
            return True
        return self.keep == "everything" or (self.keep == "products" and operation.is_product)

    def check(self, operations: Sequence[Operation]) -> None:
        """Checks that each name is the name of an operation of the block.

        Raises:
          GraphError: the block has no operation of a name.
        """
        known = {o.name.rsplit("/", 1)[-1] for o in operations} | {o.name for o in operations}
        for name in self.names:
            if not any(o.name == name or o.name.endswith(f"/{name}") for o in operations):
                raise GraphError(f'the policy keeps "{name}", which is no operation of the block{nearest(name, known)}')


def unnested_policy(policy: RecomputePolicy | str | bool | None) -> RecomputePolicy:
    """The policy of `as_policy`, where "nested" is not possible because there are no iterations.

    Raises:
      GraphError: the policy is "nested".
    """
    found = as_policy(policy)
    if found.nested:
        raise GraphError('"nested" recomputation is for mtf.scan, which knows how many iterations it has')
    return found


KEEP_EVERYTHING = RecomputePolicy("everything")


def as_policy(policy: RecomputePolicy | str | bool | None) -> RecomputePolicy:
    """Converts to a policy: from a policy, from the value of its `keep`, from "nested", or from a bool.

    True recomputes everything. False and None recompute nothing.

    Raises:
      GraphError: it is none of these.
    """
    if isinstance(policy, RecomputePolicy):
        return policy
    if isinstance(policy, str):
        return RecomputePolicy("nothing", nested=True) if policy == "nested" else RecomputePolicy(policy)
    if policy not in (None, True, False):
        raise GraphError(f'recompute must be a policy, its name such as "costly", or a bool, and is {policy!r}')
    return RecomputePolicy("nothing" if policy else "everything")


_FROM_MOST = ("everything", "costly", "products", "nothing")


def layers_policy(graph: Graph, policy: RecomputePolicy | str | bool | None) -> RecomputePolicy:
    """The policy of `as_policy` for layers of a graph.

    A layout search may make the layers of the graph keep less than that, whether unrolled or not.
    """
    said, most = as_policy(policy), graph.layers_keep
    if most is None:
        return said
    least = max(most, said.keep, key=_FROM_MOST.index)
    return dataclasses.replace(said, keep=least, only_in_loops=False)


def split_kept(
    used: Sequence[Tensor],
    given: set[Tensor],
    operations: Sequence[Operation],
    policy: RecomputePolicy,
    there: Collection[Tensor] = (),
) -> tuple[list[Tensor], list[Operation]]:
    """Returns the tensors to keep for a gradient, and the operations to rerun for the other tensors that it uses.

    `given` are the block's inputs. They are kept if the gradient needs them; those in `there` take no additional
    memory. A tensor that depends on when it is computed, such as a variable's value, is kept under every policy.
    """
    inside = {t for o in operations for t in o.outputs}
    chosen = cheapest_to_keep(used, given, operations, there=there) if policy.keep == "costly" else set()
    kept: dict[Tensor, None] = {}
    again: set[Operation] = set()
    # Walks back from the tensors that the gradient uses to kept tensors. All operations on the way are rerun.
    waiting = list(used)
    while waiting:
        tensor = waiting.pop()
        if tensor in kept or tensor.operation in again:
            continue
        is_kept = tensor in chosen or policy.keeps(tensor)
        if tensor in given or (tensor in inside and (is_kept or reads_or_assigns_state(tensor.operation))):
            kept[tensor] = None
        # Any other tensor comes from outside the block, so it exists in any case.
        elif tensor in inside:
            again.add(tensor.operation)
            waiting.extend(tensor.operation.inputs)
    return list(kept), [o for o in operations if o in again]
