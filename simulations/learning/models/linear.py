"""Linear models: logistic regression and support vector machine, with an l2 penalty.

With two classes there is one score per example, and the model is a vector of one weight per
feature and a bias, as the literature on local privacy has it; with more there is one score per
class.

May use torch; must not know clients or the protocol.

Source: FedSel (Liu, Cao and Yoshikawa 2020), section 5.1: l2-regularised logistic regression
and support vector machine, lambda = 1e-4.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softplus

from simulations.learning.data import DataKind
from simulations.learning.models.dense import DenseTask, check_widths

L2 = 1e-4
"""Weight of the penalty in FedSel's experiments, lambda there."""


@dataclass(frozen=True, kw_only=True)
class LinearTask(DenseTask):
    """A linear score, or one per class, and a penalty ``l2 / 2 * |weight|^2`` without the bias."""

    features: int  # values of an input, whatever its shape
    classes: int = 2  # labels
    kind: DataKind = DataKind.TABULAR  # pixels are centred
    l2: float = L2  # factor of the penalty, not negative

    def __post_init__(self) -> None:
        """Check the numbers."""
        check_widths(self.features, 1, self.classes)
        if not 0.0 <= self.l2 < float("inf"):
            raise ValueError(f"l2 must be finite and not negative, got {self.l2}")

    @property
    def outputs(self) -> int:
        """Return the number of scores per example."""
        return 1 if self.classes == 2 else self.classes

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return {"output.weight": (self.outputs, self.features), "output.bias": (self.outputs,)}

    def _initialise(self, parameters: dict[str, Tensor], generator: torch.Generator) -> None:
        """Leave everything zero: both losses are convex."""

    @property
    def names(self) -> tuple[str, ...]:
        """There is no hidden layer."""
        return ("output",)

    @property
    def decay(self) -> float:
        """Return the factor of the penalty."""
        return self.l2

    def predictions(self, scores: Tensor) -> Tensor:
        """Return the largest score's class, or the sign of the only one; 0 speaks for class 0."""
        return (scores[:, 0] > 0).long() if self.outputs == 1 else scores.argmax(dim=1)

    def mean_loss(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return the mean of `losses`."""
        return self.losses(scores, targets).mean()

    def loss_slopes(self, scores: Tensor, targets: Tensor, shares: Tensor) -> Tensor:
        """Return the slopes of weighted `losses` by the scores, whichever these are."""
        leaf = scores.flatten(0, -2).requires_grad_()
        losses = self.losses(leaf, targets.flatten())
        return torch.autograd.grad(losses, leaf, shares.flatten())[0].view_as(scores)

    @abstractmethod
    def losses(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of every example, float32[m]."""

    def _signed(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return ``y s`` with y = -1 for class 0 and 1 for class 1: positive if right."""
        return scores[:, 0] * (2 * targets - 1)


@dataclass(frozen=True, kw_only=True)
class LogisticTask(LinearTask):
    """Logistic regression: ``log(1 + exp(-y s))``, or softmax cross entropy beyond two classes."""

    def losses(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of every example in nats, float32[m]."""
        if self.outputs == 1:
            return softplus(-self._signed(scores, targets))
        return super(LinearTask, self).losses(scores, targets)

    def loss_slopes(self, scores: Tensor, targets: Tensor, shares: Tensor) -> Tensor:
        """Return the slopes of weighted `losses` by the scores: of cross entropy, written out."""
        if self.outputs == 1:
            return super().loss_slopes(scores, targets, shares)
        return super(LinearTask, self).loss_slopes(scores, targets, shares)


@dataclass(frozen=True, kw_only=True)
class SvmTask(LinearTask):
    """Linear support vector machine: ``max(0, 1 - margin)``, squared if asked for.

    The margin is ``y s`` for two classes, and the right score minus the best wrong one for more
    (Crammer and Singer 2001, JMLR 2).
    """

    squared: bool = False  # square the hinge, which makes the loss smooth

    def losses(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of every example, float32[m]."""
        hinge = (1.0 - self._margins(scores, targets)).relu()
        return hinge.square() if self.squared else hinge

    def _margins(self, scores: Tensor, targets: Tensor) -> Tensor:
        if self.outputs == 1:
            return self._signed(scores, targets)
        # Not one_hot: it looks at values, which torch cannot stack over clients.
        chosen = targets.unsqueeze(1) == torch.arange(self.classes, device=targets.device)
        right = torch.where(chosen, scores, torch.zeros_like(scores)).sum(dim=1)
        wrong = scores.masked_fill(chosen, -torch.inf).amax(dim=1)
        return right - wrong
