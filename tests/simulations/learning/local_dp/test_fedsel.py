"""FedSel on the clients: what is kept, what is sent, what is forgotten."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dp import NoiseSeed, NonFiniteUpdateError
from dp.local.scalars import Piecewise
from dp.local.selection import perturbed_encoding
from dp.local.two_stage import TwoStage, TwoStageReports, two_stage
from simulations.learning.local_dp import ClientMemory, LocalAlgorithm
from simulations.learning.local_dp.fedsel import DELAYED, FedSel
from sketch import PublicSeed

PUBLIC = PublicSeed(bytes(32))
CLEAR = two_stage(3, 80.0, selection_share=0.5, kept_share=0.3, bound=8.0)
"""So much budget that the largest coordinate is chosen, and its value nearly exact."""


def noise(number: int) -> NoiseSeed:
    return NoiseSeed(number.to_bytes(32, "big"))


def send(
    algorithm: FedSel,
    memory: ClientMemory,
    number: int,
    *updates: Any,
    clients: list[int] | None = None,
) -> TwoStageReports:
    rows = np.array(updates, dtype=np.float64)
    chosen = clients or list(range(len(rows)))
    return algorithm.reports(chosen, rows, memory, PUBLIC, noise(number))


def test_what_is_not_sent_is_added_to_what_comes_later() -> None:
    memory, algorithm = ClientMemory(3), FedSel(CLEAR)
    first = send(algorithm, memory, 1, [3.0, 2.0, -1.0], clients=[7])
    assert first.indices.tolist() == [0]
    assert memory.vector(DELAYED, 7).tolist() == [0.0, 2.0, -1.0]
    second = send(algorithm, memory, 2, [1.0, 1.5, -1.0], clients=[7])
    assert second.indices.tolist() == [1]
    assert second.values()[0] == pytest.approx(3.5, abs=0.01)
    assert memory.vector(DELAYED, 7).tolist() == [1.0, 0.0, -2.0]


def test_momentum_counts_what_was_kept_once_more() -> None:
    memory, algorithm = ClientMemory(3), FedSel(CLEAR, momentum=0.5)
    assert send(algorithm, memory, 1, [3.0, 2.0, -1.0]).values()[0] == pytest.approx(3.0, abs=0.01)
    second = send(algorithm, memory, 2, [1.0, 1.5, -1.0])
    assert second.values()[0] == pytest.approx(3.5 + 0.5 * 2.0, abs=0.01)
    # What is kept is the sum of gradients: the momentum is sent, not remembered.
    assert memory.vector(DELAYED, 0).tolist() == [1.0, 0.0, -2.0]


def test_at_the_second_report_this_is_momentum_correction_with_two_vectors() -> None:
    gradients = np.array([[3.0, 2.0, -1.0], [0.1, 0.3, -0.1]])
    memory, algorithm = ClientMemory(3), FedSel(CLEAR, momentum=0.7)
    velocity, residual = np.zeros(3), np.zeros(3)
    for number, gradient in enumerate(gradients):
        velocity = 0.7 * velocity + gradient
        residual += velocity
        report = send(algorithm, memory, number, gradient)
        place = int(report.indices[0])
        assert report.values()[0] == pytest.approx(residual[place], abs=0.01)
        velocity[place] = residual[place] = 0.0


def test_clients_do_not_share_their_memories() -> None:
    memory, algorithm = ClientMemory(3), FedSel(CLEAR)
    reports = send(algorithm, memory, 1, [3.0, 2.0, 1.0], [0.0, 1.0, -4.0], clients=[5, 2])
    assert len(reports) == 2 and reports.indices.tolist() == [0, 2]
    assert memory.vector(DELAYED, 5).tolist() == [0.0, 2.0, 1.0]
    assert memory.vector(DELAYED, 2).tolist() == [0.0, 1.0, 0.0]
    assert not memory.vector(DELAYED, 0).any()


def test_who_sends_nothing_forgets_nothing() -> None:
    algorithm = FedSel(TwoStage(perturbed_encoding(3, 1, 0.5), Piecewise(1.0)))
    memory, count = ClientMemory(3), 200
    reports = send(algorithm, memory, 1, *([[3.0, 2.0, 1.0]] * count))
    silent = [i for i in range(count) if reports.indices[i] < 0]
    assert 0 < len(silent) < count
    for client in range(count):
        zeros = np.count_nonzero(memory.vector(DELAYED, client) == 0.0)
        assert zeros == (0 if client in silent else 1)


def test_what_it_promises_and_sends() -> None:
    algorithm: LocalAlgorithm = FedSel(two_stage(100, 2.0))
    assert algorithm.epsilon == pytest.approx(2.0)
    # 7 bits of index and 20 of value.
    assert algorithm.report_bytes == 4.0


def test_refusals_leave_the_memory_alone() -> None:
    memory, algorithm = ClientMemory(3), FedSel(CLEAR)
    good = [1.0, 2.0, 3.0]
    with pytest.raises(NonFiniteUpdateError):
        send(algorithm, memory, 1, good, [1.0, np.nan, 3.0])
    with pytest.raises(ValueError, match="clients must be 2 different numbers"):
        send(algorithm, memory, 1, good, good, clients=[1, 1])
    with pytest.raises(ValueError, match="clients must be 1 different numbers"):
        send(algorithm, memory, 1, good, clients=[1, 2])
    with pytest.raises(ValueError, match="memory must be of dimension 3, got 4"):
        send(algorithm, ClientMemory(4), 1, good)
    with pytest.raises(ValueError, match=r"shape \(clients, 3\)"):
        send(algorithm, memory, 1, [1.0, 2.0])
    assert not memory.clients


def test_updates_too_large_for_the_memory_do_not_end_the_run() -> None:
    """Each is finite; kept as infinity, it would refuse the client and its group for ever."""
    memory, algorithm = ClientMemory(3), FedSel(CLEAR)
    for number in range(3):
        reports = send(algorithm, memory, number, [3e38, -3e38, 1e300], [1.0, 0.0, 0.0])
        assert np.isfinite(reports.total()).all()
    assert np.isfinite(memory.vector(DELAYED, 0)).all()


@pytest.mark.parametrize("momentum", [-0.1, 1.0, np.nan])
def test_momentum_out_of_range(momentum: float) -> None:
    with pytest.raises(ValueError, match="momentum must lie in"):
        FedSel(CLEAR, momentum)
