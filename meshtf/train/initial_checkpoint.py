"""A checkpoint from which a training takes its first weights, instead of random ones."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

import gin

import meshtf as mtf
from meshtf.checkpoint import WarmStart, warm_start
from meshtf.checkpoint.checkpoint_paths import open_checkpoint, open_source
from meshtf.checkpoint.formats.tensor_source import TensorSource
from meshtf.checkpoint.reading.joined_checkpoint import JoinedCheckpoint
from meshtf.checkpoint.reading.name_rules import NameRules
from meshtf.errors import CheckpointError, DamagedCheckpointError, OtherModelError, counted
from meshtf.field_checks import check_kinds
from meshtf.files.remote.remote_folder import place_of
from meshtf.layers.low_rank import SCALE, A, B
from meshtf.quantization.quantization_aware import is_training_state
from meshtf.train.configuration import ConfigurationError

_ADVICE = """\
Nothing was started. To initialize a part afresh, such as a new head, name it in gin with a regular expression for
whole names: Training.initial_checkpoint = @InitialCheckpoint(), InitialCheckpoint.rules = [("output/.*", None)]. If a
part has another name in the checkpoint, use ("new/(.*)", r"old/\\1")."""

_ADAPTER = re.compile(f"_({A}|{B}|{SCALE})$")
_NO_PLACE = """\
the adapters {adapters} have {count} that the model has no place for, the first {first}.
AttentionConfig.low_rank must be the same as in the training that made them, above all its LowRank.projections.
Nothing was started."""


@gin.configurable(module="meshtf.train")
@dataclasses.dataclass(frozen=True)
class InitialCheckpoint:
    """A checkpoint from which a training at step 0 takes its weights.

    Attributes:
      path: the path of an imported folder, of a run (its newest checkpoint), or of a checkpoint.
      rules: pairs of a regular expression and a name, as for `mtf.checkpoint.warm_start`. They say which tensor of the
        checkpoint each tensor of the model comes from. None stands for the tensor's initial value. A tensor that no
        rule matches comes from the tensor of its own name.
      adapters: a checkpoint, or a file of tensors, with low-rank adapters that were saved separately. They take
        precedence over the tensors of `path`.
      with_optimizer_state: whether to restore the optimizer's state as well. It includes the count of steps, on which
        learning rates depend. Otherwise the state has its initial values.
    """

    path: str
    rules: Sequence[tuple[str, str | None]] = ()
    with_optimizer_state: bool = False
    adapters: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.path, str) or not self.path:
            raise ConfigurationError(f"InitialCheckpoint.path must be the path of a checkpoint, and is {self.path!r}")
        check_kinds(self, ConfigurationError)
        try:
            NameRules(self.rules)
        except CheckpointError as error:
            raise ConfigurationError(f"InitialCheckpoint.rules: {error}") from None

    def restore(self, step: mtf.Function, evaluation: mtf.Function) -> WarmStart:
        """Restores the variables of both programs of a training.

        Args:
          step: the training step, which has all variables.
          evaluation: the evaluation, which has only the model's variables.

        Raises:
          CheckpointError: if there is no checkpoint; if a tensor that no rule names is missing or has another shape; or
            if a rule matches nothing. No variable has changed then.
          DamagedCheckpointError: if its content differs from what was written.
        """
        saved = open_checkpoint(place_of(self.path))
        saved.verify()
        source = saved if self.adapters is None else JoinedCheckpoint(self._opened_adapters(step), saved)
        rules = [*self.rules, *((re.escape(name), None) for name in self._new_names(source, step, evaluation))]
        try:
            return warm_start(source, [step, evaluation], rules)
        except DamagedCheckpointError:
            raise
        except OtherModelError as error:
            raise OtherModelError(error.difference, _ADVICE) from None
        except CheckpointError as error:
            raise CheckpointError(f"{error}\n{_ADVICE}") from None

    def _opened_adapters(self, step: mtf.Function) -> TensorSource:
        """Opens the adapters. Raises CheckpointError if the model has no place for some: without them the result
        would differ.
        """
        adapters = open_source(place_of(self.adapters or ""))
        variables = [v for v in step.graph.variables.values() if isinstance(v, mtf.Variable)]
        taken = set(NameRules(self.rules).sources([name for v in variables for name in v.saved_names]).values())
        lost = [name for name in adapters.tensors if _ADAPTER.search(name) and name not in taken]
        if lost:
            raise CheckpointError(
                _NO_PLACE.format(adapters=self.adapters, count=counted(len(lost), "tensor"), first=lost[0])
            )
        return adapters

    def _new_names(self, source: TensorSource, step: mtf.Function, evaluation: mtf.Function) -> list[str]:
        """Returns the tensors that keep their initial values and that no rule names: state that is not a weight, and
        state of quantization-aware training that the checkpoint lacks.
        """
        names: list[str] = []
        for variable in step.graph.variables.values():
            if isinstance(variable, mtf.Variable):
                is_state = not self.with_optimizer_state and variable.full_name not in evaluation.graph.variables
                may_lack = is_training_state(variable.full_name)
                names += [n for n in variable.saved_names if is_state or (may_lack and n not in source.tensors)]
        return [name for name in names if not any(re.fullmatch(pattern, name) for pattern, _ in self.rules)]


def initial_checkpoint_of(given: str | InitialCheckpoint | None) -> InitialCheckpoint | None:
    """Returns the InitialCheckpoint for a path, or the given one.

    Raises:
      ConfigurationError: if it is neither.
    """
    if given is None or isinstance(given, InitialCheckpoint):
        return given
    if not isinstance(given, str):
        raise ConfigurationError(
            f"Training.initial_checkpoint must be the path of a checkpoint, or @InitialCheckpoint(), and is {given!r}"
        )
    return InitialCheckpoint(given)
