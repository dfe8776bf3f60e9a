"""How the noise of clients and members is divided, and what their own filters will let them do.

A client does not know who will be there: before each upload it takes the dearest record that the
round may still have, with all that may come back later. So a run is planned with the largest
charge that a client's filter meets, and with members away, whose noise of the round before stays.

Source: docs/correlated-noise.md, "What is counted" and "What it is worth".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dp.correlated.parts import Parts, RoundParts
from dp.correlated.planning import WORTH_IT, ModelNoise, Schedule, Weights, best_share


@dataclass(frozen=True, slots=True)
class PartsPlan:
    """The best division of noise that somebody is away from, and what it is worth.

    Attributes:
        returned_share: lambda, of the least fresh variance of a round.
        charge: largest mu^2 that a client's filter meets, in units of its squared norm over F.
        gain: by how much the noise in the model is smaller than independent noise of the same
            clients, in standard deviations, at equal privacy.
        model_noise: mean square of the noise in the model over that of independent noise of
            variance F in every sum.
    """

    returned_share: float
    charge: float
    gain: float
    model_noise: float

    @property
    def pays(self) -> bool:
        """Whether the gain is worth a committee."""
        return self.gain >= WORTH_IT


def largest_charge(parts: Parts, schedule: Schedule, fewest_returning: int) -> float:
    """The largest charge that a client's filter meets in a run as planned, contributions of norm 1.

    Every round has the fewest clients and members, and of its noise either all comes back in every
    round, or in every round as little as may. The client takes part in rounds exactly `apart`
    apart, begun in any round. Before each of its uploads all records that the round may still have
    are charged, with all that may come back until the end.
    """
    if parts.rounds != schedule.rounds:
        raise ValueError(f"parts.rounds must be {schedule.rounds}, got {parts.rounds}")
    fewest = RoundParts(clients=parts.fewest_clients, entered=parts.fewest_members)
    ends = [parts.returned(now, fewest) for now in parts.worst(fewest, fewest_returning)]
    return max(_largest_charge(parts, schedule, ends, actual) for actual in (ends[0], ends[-1]))


def _largest_charge(parts: Parts, schedule: Schedule, ends: list[float], actual: float) -> float:
    """The same where so much comes back in every round; all starts of the client side by side.

    The steps are those of `Charge`, whose pivot is the same for all clients.
    """
    rounds, apart, fresh = schedule.rounds, schedule.apart, parts.least_fresh
    span = apart * (schedule.participations - 1)
    starts = rounds - span
    lost = _lost_ahead(parts)
    learned, carried = np.zeros(starts), np.zeros(starts)
    pivot, worst = math.inf, 0.0
    for t in range(rounds):
        # Those begun now, or 1, 2, .. times `apart` rounds ago, as long as they have uploads left.
        taking_part = np.arange(max(t - span, t % apart), min(t, starts - 1) + 1)
        taking_part = taking_part[(t - taking_part) % apart == 0]
        for back in ends if t else [0.0]:
            factor = back / pivot
            after = fresh + back * (1.0 - factor) - lost[rounds - 1 - t]
            charges = learned[taking_part]
            charges = charges + (1.0 + factor * carried[taking_part]) ** 2 / after
            worst = max(worst, float(charges.max(initial=0.0)))
        back = actual if t else 0.0
        factor = back / pivot
        pivot = fresh + back * (1.0 - factor)
        carried *= factor
        carried[taking_part] += 1.0
        learned += carried**2 / pivot
    return worst


def _lost_ahead(parts: Parts) -> list[float]:
    """sigma_t by the rounds left: what a round's variance loses when all comes back that may."""
    fresh = parts.least_fresh
    back = min(parts.largest_return, fresh - parts.least_kept)
    lost, ahead = [0.0], fresh
    for _ in range(parts.rounds - 1):
        lost.append(back * back / (back + ahead))
        ahead = fresh - lost[-1]
    return lost


def plan_parts(
    parts: Parts,
    schedule: Schedule,
    fewest_returning: int,
    away: float = 0.0,
    weights: Weights | None = None,
) -> PartsPlan:
    """The returned share with the least noise in the model, at equal privacy as filters see it.

    In the model there is the noise of all n clients, and of all s members but those who are away,
    each in a round of its own chance: what they added in the round before stays.
    """
    most = 1.0 - parts.fewest_members / parts.members
    if not 0.0 <= away <= most:
        raise ValueError(f"away must lie in 0..{most:.6g}, where enough are left, got {away!r}")
    noise = ModelNoise(schedule.rounds, weights)
    clients = parts.clients / (parts.fewest_clients - parts.corrupt_clients)
    members = (1.0 - away) * parts.members / (parts.fewest_members - 2 * parts.corrupt_members)

    def error(share: float) -> float:
        stays = clients * noise.independent
        return (1.0 - share) * stays + share * members * noise.returned(1.0 - away)

    def charge(share: float) -> float:
        return largest_charge(parts.divided(1.0, share), schedule, fewest_returning)

    share = best_share(lambda share: error(share) * charge(share))
    least = error(share) / noise.independent
    gain = math.sqrt(clients * schedule.participations / (least * charge(share)))
    return PartsPlan(returned_share=share, charge=charge(share), gain=gain, model_noise=least)
