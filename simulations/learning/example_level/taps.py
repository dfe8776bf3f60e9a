"""Norms and clipped sums of the gradients of single examples, without making those gradients.

A layer that is linear in its weights, ``out = in W^T + b`` at each of t positions (one of a dense
layer, the time steps of a recurrence, the places of a convolution), has for one example the weight
gradient ``U^T H``: U (t x j) is the slope of the loss by what leaves the layer, H (t x k) is what
enters. One batched backward pass gives U for all examples, and then

    |U^T H|^2 = sum over positions s, t of (U U^T)_st (H H^T)_st,

with an H of ones for a bias and of unit vectors for an embedding. The sum of all clipped gradients
is one product ``(c U)^T H`` over all examples and positions, c being the clip factor of each. Where
the product U^T H is cheaper than the two Gram matrices, as in a convolution with many places and
few weights, it is made and used twice.

May use torch; must not know models, data or privacy.

Source: Goodfellow 2015 (arXiv 1510.01799); Li et al. 2022 (arXiv 2110.05679) for sequences; Bu et
al. 2022 (arXiv 2205.10683) for the choice between the two ways, layer by layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import one_hot


@dataclass(frozen=True, slots=True, eq=False)
class Tap:
    """One linear layer during a forward pass."""

    leaving: Tensor  # float32[n, t, j] or [n, j], a node of the graph of the loss
    # by the name of each weight (j x k, further axes flattened), what it multiplies: float32[n, t,
    # k] or [n, k], outside the graph
    entering: Mapping[str, Tensor]
    bias: str | None = None  # name of the bias (j), if there is one


@dataclass(frozen=True, slots=True, eq=False)
class TokenTap:
    """An embedding (v x j) during a forward pass."""

    leaving: Tensor  # float32[n, t, j], a node of the graph of the loss
    tokens: Tensor  # int64[n, t]
    weight: str  # name of the embedding
    vocabulary: int  # v


class Slopes:
    """The slopes of the loss at every tap: gradients of all examples, not yet multiplied out."""

    def __init__(self, taps: list[Tap | TokenTap], loss: Tensor) -> None:
        found = torch.autograd.grad(loss, [tap.leaving for tap in taps])
        self._layers = [
            _Tokens(tap, slope) if isinstance(tap, TokenTap) else _Linear(tap, slope)
            for tap, slope in zip(taps, found, strict=True)
        ]

    def squared_norms(self) -> Tensor:
        """Return float32[n]: of the gradient of each example by all parameters together."""
        return torch.stack([layer.squared_norms() for layer in self._layers]).sum(dim=0)

    def weighted_sum(self, weights: Tensor) -> dict[str, Tensor]:
        """Return the sum of the gradients by name, each example times its weight of float32[n]."""
        named: dict[str, Tensor] = {}
        for layer in self._layers:
            named.update(layer.weighted_sum(weights))
        return named

    def gradients(self) -> dict[str, Tensor]:
        """Return the gradients themselves by name: float32[n, ...]."""
        named: dict[str, Tensor] = {}
        for layer in self._layers:
            named.update(layer.gradients())
        return named


class _Linear:
    """The gradients of a linear layer."""

    def __init__(self, tap: Tap, slope: Tensor) -> None:
        self._slope = _positions(slope)
        self._bias = tap.bias
        self._entering = {name: _positions(values) for name, values in tap.entering.items()}
        self._products = self._multiplied() if self._is_wide() else None

    def _is_wide(self) -> bool:
        """Whether Gram matrices cost more multiplications than the gradients themselves."""
        _, positions, outputs = self._slope.shape
        inputs = sum(values.shape[2] for values in self._entering.values())
        return positions * (outputs + inputs) > outputs * inputs

    def _multiplied(self) -> dict[str, Tensor]:
        return {name: self._slope.mT @ values for name, values in self._entering.items()}

    def gradients(self) -> dict[str, Tensor]:
        named = {} if self._bias is None else {self._bias: self._slope.sum(dim=1)}
        return named | (self._multiplied() if self._products is None else self._products)

    def squared_norms(self) -> Tensor:
        if self._products is not None:
            squares = [product.square().sum(dim=(1, 2)) for product in self._products.values()]
            if self._bias is not None:
                squares.append(self._slope.sum(dim=1).square().sum(dim=1))
            return torch.stack(squares).sum(dim=0)
        inner = torch.stack([values @ values.mT for values in self._entering.values()]).sum(dim=0)
        if self._bias is not None:
            inner += 1.0
        return ((self._slope @ self._slope.mT) * inner).sum(dim=(1, 2))

    def weighted_sum(self, weights: Tensor) -> dict[str, Tensor]:
        slope = (self._slope * weights[:, None, None]).flatten(0, 1)
        named = {} if self._bias is None else {self._bias: slope.sum(dim=0)}
        if self._products is not None:
            for name, product in self._products.items():
                named[name] = (weights @ product.flatten(1)).view(product.shape[1:])
        else:
            for name, values in self._entering.items():
                named[name] = slope.T @ values.flatten(0, 1)
        return named


class _Tokens:
    """The gradients of an embedding."""

    def __init__(self, tap: TokenTap, slope: Tensor) -> None:
        self._tap, self._slope = tap, slope

    def gradients(self) -> dict[str, Tensor]:
        chosen = one_hot(self._tap.tokens, self._tap.vocabulary).to(self._slope.dtype)
        return {self._tap.weight: chosen.mT @ self._slope}

    def squared_norms(self) -> Tensor:
        tokens = self._tap.tokens
        same = tokens.unsqueeze(2) == tokens.unsqueeze(1)
        return ((self._slope @ self._slope.mT) * same).sum(dim=(1, 2))

    def weighted_sum(self, weights: Tensor) -> dict[str, Tensor]:
        rows = (self._slope * weights[:, None, None]).flatten(0, 1)
        total = rows.new_zeros(self._tap.vocabulary, rows.shape[1])
        return {self._tap.weight: total.index_add_(0, self._tap.tokens.flatten(), rows)}


def _positions(values: Tensor) -> Tensor:
    """Return [n, t, width], t = 1 if there were no positions."""
    return values.unsqueeze(1) if values.dim() == 2 else values
