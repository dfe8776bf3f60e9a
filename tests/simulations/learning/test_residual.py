"""The residual network of `simulations.learning.models.residual`."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.func import grad, vmap

from simulations.learning.models.residual import ResidualTask


def test_the_residual_network() -> None:
    task = ResidualTask(blocks=1, channels=3, height=8, width=8)
    generator = torch.Generator().manual_seed(2)
    vector = torch.tensor(task.initial(generator)).requires_grad_()
    inputs, labels = torch.rand(6, 3, 8, 8, generator=generator), torch.arange(6)
    loss = task.loss(vector, inputs, labels, torch.ones(6))
    assert loss.item() == pytest.approx(np.log(10.0), rel=0.1)
    (slope,) = torch.autograd.grad(loss, vector)
    for name, part in task.layout.unflatten(slope).items():
        assert float(part.abs().max()) > 0.0, name
    stacked = vmap(grad(task.loss))(
        vector.detach().repeat(2, 1),
        inputs.expand(2, *inputs.shape),
        labels.expand(2, -1),
        torch.ones(2, 6),
    )
    torch.testing.assert_close(stacked[1], slope, rtol=1e-4, atol=1e-5)
    # An image has the same scores in any company.
    parameters = task.layout.unflatten(vector.detach())
    alone = task.scores(parameters, inputs[2:3])
    torch.testing.assert_close(task.scores(parameters, inputs)[2:3], alone)
    moved = vector.detach() - 0.1 * slope
    assert task.loss(moved, inputs, labels, torch.ones(6)) < loss
    assert ResidualTask().dimension == 1_722_224
    invalid: list[dict[str, int]] = [{"blocks": 0}, {"channels": 0}]
    for bad in invalid:
        with pytest.raises(ValueError, match=r"blocks must be|need features"):
            ResidualTask(**bad)
