"""A torch module of one's own as a task.

May use torch; must not know clients or the protocol.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.nn.modules.batchnorm import _NormBase

from protocol.errors import ConfigurationError
from simulations.learning.models.layout import Vector
from simulations.learning.models.task import Family, Parameters, Task

Loss = Callable[[Tensor, Tensor], Tensor]
"""Scores float[m, classes] and labels int64[m], or [m, classes] of 0 and 1, to the loss of each
example, float[m]."""

_KEY: Final = "model"


class ModuleTask(Task):
    """Classification by any module that maps a batch of inputs to a score for each class.

    Where an example may have several labels, each is a question of its own: its score is the log
    odds of a yes, and an example counts as right if all answers are.

    What trains are the parameters that require a gradient; the others, and buffers, stay as they
    are. The first parameters are the module's own. Dropout is off, since an update shall be a
    function of parameters and batch alone.

    Args:
        module: float32; it is copied, and never changed.
        loss: of each example; cross entropy if left out, the mean over all labels of an example.

    Raises:
        ConfigurationError: nothing trains, a parameter is not float32 or has no values yet, or a
            layer keeps running statistics, which would leave the clients unprotected.
    """

    def __init__(self, module: nn.Module, loss: Loss | None = None) -> None:
        if not isinstance(module, nn.Module):
            raise ConfigurationError(_KEY, f"a {type(module).__name__}", "a torch.nn.Module")
        _check_layers(module)
        self._template = copy.deepcopy(module).cpu().eval()
        self._loss = loss
        self._copies = threading.local()
        self._named = {
            name: value.detach().clone()
            for name, value in self._template.named_parameters()
            if value.requires_grad
        }
        if not self._named:
            raise ConfigurationError(
                _KEY, "no parameter requires a gradient", "a module with something to train"
            )

    def __getstate__(self) -> dict[str, Any]:
        """All but the copies of this process."""
        return {name: value for name, value in self.__dict__.items() if name != "_copies"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _copies=threading.local())

    @property
    def family(self) -> Family:
        """Unknown, so clients are trained one after another."""
        return Family.OTHER

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: tuple(value.shape) for name, value in self._named.items()}

    def _initialise(self, parameters: dict[str, Tensor], generator: torch.Generator) -> None:
        """Begin with the module's own values; nothing is drawn."""
        for name, value in self._named.items():
            parameters[name].copy_(value)

    def scores(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        """Return what the module says, float32[m, classes]."""
        scores: Tensor = functional_call(self._own(inputs.device), dict(parameters), (inputs,))
        return scores

    def losses(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of each example, in the shape of the targets."""
        losses = self._losses_of_examples(scores, targets)
        return losses if targets.dim() == 1 else losses.unsqueeze(1).expand(targets.shape)

    def _losses_of_examples(self, scores: Tensor, targets: Tensor) -> Tensor:
        """The loss of each example, float[m]."""
        if self._loss is not None:
            return self._loss(scores, targets)
        if targets.dim() == 1:
            return super().losses(scores, targets)
        answers = targets.to(scores.dtype)
        return binary_cross_entropy_with_logits(scores, answers, reduction="none").mean(dim=1)

    def mean_loss(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return the mean of `losses`."""
        return self.losses(scores, targets).mean()

    def right(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return which examples are labelled rightly: bool[m]."""
        if targets.dim() == 1:
            return super().right(scores, targets)
        return ((scores > 0) == (targets > 0)).all(dim=1)

    def trained(self, vector: Vector) -> nn.Module:
        """Return a copy of the module with parameters float32[d]; in evaluation mode."""
        module = copy.deepcopy(self._template)
        values = self.layout.unflatten(torch.tensor(vector))
        with torch.no_grad():
            for name, parameter in module.named_parameters():
                if name in values:
                    parameter.copy_(values[name])
        return module

    def classes_of(self, inputs: Tensor, labels: Tensor) -> int:
        """Try the module on a few examples; return the number of its classes.

        Args:
            inputs: float32[m, ...] or int64[m, length].
            labels: int64[m] or int64[m, classes].

        Raises:
            ConfigurationError: it cannot take them, gives no scores of the right shape, has a loss
                that is not finite or not one for each example, or a parameter that no loss
                depends on.
        """
        leaves = {name: value.clone().requires_grad_() for name, value in self._named.items()}
        try:
            scores = self.scores(leaves, inputs)
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            said = str(error).partition("\n")[0]
            shape = f"{str(inputs.dtype).removeprefix('torch.')}{list(inputs.shape)}"
            raise ConfigurationError(
                _KEY, f"cannot take inputs {shape}: {said}", "a module for such inputs"
            ) from error
        valid = f"scores float[{len(inputs)}, classes] with at least two classes"
        if not isinstance(scores, Tensor):
            raise ConfigurationError(_KEY, f"answers with a {type(scores).__name__}", valid)
        if scores.dim() != 2 or len(scores) != len(inputs) or scores.shape[1] < 2:
            raise ConfigurationError(_KEY, f"answers with shape {list(scores.shape)}", valid)
        if labels.dim() == 2 and labels.shape != scores.shape:
            raise ConfigurationError(
                _KEY,
                f"{scores.shape[1]} scores for {labels.shape[1]} labels",
                "a score for each label",
            )
        if int(labels.max()) >= scores.shape[1]:
            raise ConfigurationError(
                _KEY, f"{scores.shape[1]} classes for a label {int(labels.max())}", "more classes"
            )
        self._check_loss(leaves, self._losses_of_examples(scores, labels), len(inputs))
        return int(scores.shape[1])

    def _check_loss(self, leaves: dict[str, Tensor], losses: Tensor, count: int) -> None:
        """See that every parameter can be trained by these losses."""
        if losses.shape != (count,):
            raise ConfigurationError(
                "loss",
                f"shape {list(losses.shape)} for {count} examples",
                f"a loss for each example, shape [{count}] (reduction='none')",
            )
        if not bool(losses.isfinite().all()):
            raise ConfigurationError("loss", "not finite at the start", "finite values")
        slopes = torch.autograd.grad(losses.sum(), list(leaves.values()), allow_unused=True)
        unused = [name for name, slope in zip(leaves, slopes, strict=True) if slope is None]
        if unused:
            raise ConfigurationError(
                _KEY,
                f"no score depends on {', '.join(unused)}",
                "parameters that are used; the others with requires_grad_(False)",
            )

    def _own(self, device: torch.device) -> nn.Module:
        """This thread's copy: torch puts other parameters into a module while it is called."""
        copies: dict[str, nn.Module] = self._copies.__dict__
        key = str(device)
        if key not in copies:
            copies[key] = copy.deepcopy(self._template).to(device)
        return copies[key]


def _check_layers(module: nn.Module) -> None:
    """Refuse what cannot be trained by sums of updates alone."""
    for name, layer in module.named_modules():
        if isinstance(layer, _NormBase) and layer.track_running_stats:
            raise ConfigurationError(
                f"{_KEY}.{name}" if name else _KEY,
                f"{type(layer).__name__} keeps running statistics of private examples",
                "GroupNorm or LayerNorm",
            )
    for name, value in module.named_parameters():
        key = f"{_KEY}.{name}"
        if isinstance(value, nn.UninitializedParameter):
            raise ConfigurationError(key, "no values yet", "a module that was called once")
        if value.requires_grad and value.dtype != torch.float32:
            raise ConfigurationError(key, f"of {value.dtype}", "torch.float32")
        if not bool(value.isfinite().all()):
            raise ConfigurationError(key, "not finite", "finite values")
