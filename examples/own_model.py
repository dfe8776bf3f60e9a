"""A module and data of one's own, trained privately: see `docs/howto/own-model.md`.

Needs: veilsum[sim]
"""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

import veilsum

# Pictures of 8 x 8 pixels from 0 to 16, and the digits that they show.
pictures, digits = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(digits))
pictures = (pictures[order] / 16.0).reshape(-1, 1, 8, 8).astype(np.float32)
digits = digits[order]

# A hundred clients with some fifteen pictures each; three hundred pictures are for testing.
test = (pictures[:300], digits[:300])
clients = [(pictures[300 + i :: 100], digits[300 + i :: 100]) for i in range(100)]

torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(1, 8, 3),
    nn.ReLU(),
    nn.Flatten(),
    nn.Linear(8 * 6 * 6, 10),
)

run = veilsum.private_training(
    model,
    clients,
    epsilon=8.0,
    delta=1e-5,
    rounds=20,
    test=test,
    learning_rate=0.3,
    server_learning_rate=2.0,
)
print(run)
