"""What `PrivateMean` costs per simulated user, compared with plain pfl in the same run.

Needs: veilsum[pfl], scikit-learn
Run with: python examples/pfl/cost.py   (processor time on one thread; a few minutes)
"""

import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
import torch
from digits import TRAINING, Digits, new_model
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging

from dp import Ledger
from protocol import PrivacyGoal, TrainingPlan
from protocol.adapters.pfl import PrivateMean
from sketch.controllers import FixedRate

COHORT, ROUNDS = 40, 5
RATES = (1.0, 10.0)
PLAN = TrainingPlan(
    goal=PrivacyGoal(epsilon=8.0, delta=1e-5, rounds=ROUNDS + 1),
    cohort=COHORT,
    tolerated_dropouts=2,
    tolerated_colluders=1,
    clip_l2=0.5,
)


def measure(hidden: int, folder: Path) -> None:
    """Rounds with and without it, alternating; prints the median milliseconds per user."""
    model = new_model(seed=1, rate=1.0, hidden=hidden)
    dimension = sum(value.numel() for value in model.variable_map.values())
    digits, algorithm = Digits.load(), FederatedAveraging()
    ledgers = [Ledger.open(folder / f"{dimension} {rate}") for rate in RATES]
    means = [
        PrivateMean(PLAN, dimension, FixedRate(rate), ledger)
        for rate, ledger in zip(RATES, ledgers, strict=True)
    ]
    chains = [[], *([mean] for mean in means)]
    backends = [SimulatedBackend(digits.train, digits.train, chain) for chain in chains]
    params = NNAlgorithmParams(ROUNDS, ROUNDS + 1, COHORT, None)
    spent = [[] for _ in backends]
    # The first round of each fills caches and tables, and is left out.
    for _ in range(ROUNDS + 1):
        for backend, times in zip(backends, spent, strict=True):
            (context,), _, _ = algorithm.get_next_central_contexts(model, 1, params, TRAINING)
            begin = time.process_time()
            backend.gather_results(model, algorithm, central_context=context)
            times.append((time.process_time() - begin) / COHORT * 1000)
    for ledger in ledgers:
        ledger.close()
    plain, *private = (median(times[1:]) for times in spent)
    first = spent[1][0] * COHORT / 1000
    line = f"{dimension:9,d} parameters: plain {plain:.1f} ms"
    for cost, mean in zip(private, means, strict=True):
        length = mean.last.setup.context.length
        line += f"; sketch of {length:,d}: {cost:.1f} ms ({cost - plain:+.1f})"
    print(f"{line}; first private round {first:.1f} s")


def main() -> None:
    """A small network and one of a million parameters."""
    torch.set_num_threads(1)
    np.random.seed(1)  # pfl draws its users with it
    with tempfile.TemporaryDirectory() as folder:
        for hidden in (32, 1333, 13333):
            measure(hidden, Path(folder))


if __name__ == "__main__":
    main()
