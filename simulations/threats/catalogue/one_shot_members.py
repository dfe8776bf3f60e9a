"""A67: what the members of a committee do, keep and remember for a server that asks too much."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any, Final
from unittest.mock import patch

from protocol.errors import PolicyError
from protocol.round import member_noise
from protocol.round.member import MemberPolicy
from protocol.round.parameters import RoundParameters
from secagg import ProtocolError
from secagg.terms import MAX_LENGTH
from simulations.audits.base import Figures
from simulations.threats.attack import Attack, Effort, Findings, rate, refusal, refused_with
from simulations.threats.one_shot.returning import ReturningRun, member_policy, parameters_of
from sketch import SketchSpec

# -- A67 ------------------------------------------------------------------------------------------

_LONG: Final = 1 << 28
_WIDE: Final = 2.0**30


class _DrewError(Exception):
    """A member has begun to draw."""


def _parameters(run: ReturningRun, number: int) -> RoundParameters:
    """A round whose noise takes gigabytes, or a table of a million entries."""
    right = parameters_of(run.plan)
    if number % 2:
        return replace(right, sketch=SketchSpec.identity(_LONG))
    if right.returned is None:
        raise AssertionError("noise comes back in these runs")
    return replace(right, returned=replace(right.returned, variance=_WIDE))


def _draws(trials: int, seed: int, **unlimited: Any) -> Figures:
    """How often members begin to draw; the policy is without limits for the twin."""

    def drew(*_: object) -> None:
        raise _DrewError

    won, largest, refusals = 0, 0, Counter[str]()
    for number in range(trials):
        run = ReturningRun(seed + number)
        policy: MemberPolicy = replace(member_policy(run), **unlimited)
        announcement = run.setup(0, parameters=_parameters(run, number)).announce_to_member(0)
        largest = max(largest, len(announcement))
        with patch.object(member_noise, "sample_law", drew):
            try:
                run.member(0, policy=policy).add_noise(announcement)
            except _DrewError:
                won += 1
            except (PolicyError, ProtocolError) as error:
                refusals[f"{refusal(error)} {getattr(error, 'parameter', '')}".strip()] += 1
    return {**rate(won, trials), "announced_bytes": largest, **refused_with(refusals)}


def _oversized(effort: Effort, seed: int) -> Findings:
    trials = effort.choose(2, 20)
    return Findings(
        _draws(trials, seed),
        _draws(trials, seed, largest_length=MAX_LENGTH, largest_variance=_WIDE),
    )


ATTACKS: Final = (
    Attack(
        id="A67",
        title="No member draws more noise than its own policy allows, however it is asked",
        stopped_by="a longest vector and a largest variance in each member's policy",
        run=_oversized,
    ),
)
