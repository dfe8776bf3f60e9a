"""Whole runs whose noise comes back, in two worlds: all sums together, and what is claimed of them.

A run is the product's: parameters, records, pipeline and ideal sums, round after round. In world 1
the victim sends an update on the clip in some rounds, in world 0 zeros. The adversary subtracts the
noise of a corrupt client and a corrupt member, whose seeds it knows, and projects all sums of a run
on the direction in which the two worlds differ most, given the covariance of what is left. The
corrupt member takes nothing back, so that whoever counts it among the honest believes that its
noise stays.

Coordinates are alike and independent, and rounding finds integers here. So every coordinate of one
run of long vectors is a run of its own, of a victim that contributes `SHIFT` to one coordinate.

Source: docs/correlated-noise.md.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dp import DiscreteGaussianMechanism, DiscreteGaussianRelease, Event, NoiseSeed, Quantized
from dp.correlated import CorrelatedAccountant, Parts, correlated_epsilon
from dp.correlated.event import CorrelatedRelease
from dp.sampling import DiscreteGaussianLaw, sample_law
from protocol import Dropouts, IdealAggregator, Pipeline, PrivacyGoal, Stage, TrainingPlan
from protocol.noise.noise import Returned, returned_run
from protocol.round.member import SealingKeys
from protocol.round.one_shot_setup import OneShotSetup
from protocol.round.parameters import RoundParameters
from protocol.round.returned_noise import ReturnedNoise
from protocol.schemes import OneShot
from protocol.schemes.committee import Named
from protocol.schemes.one_shot import one_shot_setup
from secagg import ParameterError
from secagg.oneshot.records import MemberUploads, RoundRecord
from simulations.audits.base import (
    ALPHA,
    Audit,
    Figures,
    Floats,
    derived_bytes,
    derived_seed,
    identities_of,
    noise_seed,
    public_keys,
)
from simulations.audits.distribution import noise_test
from simulations.audits.two_worlds import ScoredRuns, scored_runs
from sketch import PublicSeed, Rotation, SketchSpec

ROUNDS: Final = 8
OWN: Final = (0, 3)
"""The victim's rounds, from 0; in those after the last one noise comes back as well."""
SHIFT: Final = 12
"""What the victim contributes to a coordinate, integer units."""
DELTA: Final = 1e-5

_CLIENTS, _MEMBERS = 8, 16
_AWAY: Final = (14, 15)
"""Members of whom nothing is heard: as many as there may be."""
_VICTIM, _CORRUPT_CLIENT, _CORRUPT_MEMBER = 0, 1, 0
_FRESH: Final = 1500.0
_RETURNED_SHARE: Final = 0.95
_LENGTH: Final = 20_000
_SESSION: Final = bytes(16)


class RunMistake(enum.Enum):
    """What a twin does wrong with its noise."""

    NONE = "nothing"
    TWICE = "noise is taken back in two rounds"
    OWN_ROUND = "noise is taken back in the round in which it goes in"


class CountMistake(enum.Enum):
    """What a twin leaves out of its count."""

    ONCE = "one part is left out for a corrupt member, not two"
    AS_HONEST = "a corrupt member is counted as an honest one"
    NO_RESERVE = "what comes back after the last round of a client is not charged"
    OWN_ROUNDS = "a client is charged for its own rounds only"


@dataclass(frozen=True)
class WholeRun:
    """Runs of one setting."""

    seed: int  # fixes everything
    length: int = _LENGTH  # coordinates of every sum
    tolerated_dropouts: int = 1  # clients that may be lost

    @cached_property
    def plan(self) -> TrainingPlan:
        """What all rounds have in common."""
        return TrainingPlan(
            goal=PrivacyGoal(8.0, DELTA, len(OWN)),
            cohort=_CLIENTS,
            tolerated_dropouts=self.tolerated_dropouts,
            tolerated_colluders=1,
            clip_l2=1.0,
            noise=Returned(rounds=ROUNDS, apart=OWN[1] - OWN[0]),
            scheme=OneShot(committee=Named(size=_MEMBERS, corrupt=1, away=0)),
        )

    @cached_property
    def parts(self) -> Parts:
        """What is counted, of noise that is divided so that both kinds matter."""
        return returned_run(self.plan).parts(self.length, _FRESH, _RETURNED_SHARE)

    @cached_property
    def parameters(self) -> RoundParameters:
        """Of all rounds: an update on the clip is `SHIFT` in every rotated coordinate."""
        return RoundParameters(
            model_digest=bytes(32),
            clip_l2=1.0,
            sketch=SketchSpec.identity(self.length),
            sketch_clip_l2=1.0,
            public_seed=PublicSeed(derived_bytes(self.seed, "public")),
            scale=SHIFT * math.sqrt(self.length),
            linf_bound=2 * SHIFT,
            mechanism=DiscreteGaussianMechanism(self.parts.client_variance),
            tolerated_dropouts=self.tolerated_dropouts,
            wrap_probability=1e-9,
            returned=ReturnedNoise(
                variance=self.parts.member_variance, rounds=ROUNDS, divisor=_CLIENTS
            ),
        )

    @cached_property
    def _rotation(self) -> Rotation:
        return Rotation(self.length, self.parameters.public_seed)

    @cached_property
    def _keys(self) -> tuple[list[bytes], list[SealingKeys]]:
        members = identities_of(self.seed, _MEMBERS, "member")
        clients = identities_of(self.seed, _CLIENTS)
        return list(public_keys(clients)), [SealingKeys(each, _SESSION) for each in members]

    def setup(self, number: int, records: Sequence[RoundRecord]) -> OneShotSetup:
        """A round, after those that were recorded."""
        clients, keys = self._keys
        uploads = MemberUploads(
            fewest=returned_run(self.plan).fewest_members,
            returning=bool(records),
            fewest_returning=0,
            block=self.parameters.block_digest(),
            records=tuple(records),
        )
        entries = [each.entry for each in keys]
        return one_shot_setup(
            self.plan, self.parameters, clients, entries, _SESSION, number, uploads=uploads
        )

    def run(
        self, noise_of: int, world: int = 0, dropouts: Sequence[Dropouts] | None = None
    ) -> tuple[list[Floats], list[CorrelatedRelease], list[RoundRecord]]:
        """All rounds of a run.

        Returns:
            The sums as they are decoded, times divisor and scale, rotated: float64[L] each; what
            the ledger would say of them for the victim; and the records.
        """
        lost = dropouts or [{_CLIENTS - 1: Stage.INPUT}] * ROUNDS
        sums: list[Floats] = []
        events: list[CorrelatedRelease] = []
        records: list[RoundRecord] = []
        for number in range(ROUNDS):
            setup = self.setup(number, records)
            table = np.zeros((_CLIENTS, self.length))
            if world and number in OWN:
                flat = np.full(self.length, 1.0 / math.sqrt(self.length))
                table[_VICTIM] = self._rotation.inverse(flat)
            outcome = IdealAggregator(
                noise=partial(_client_seed, noise_of, number),
                members_noise=_members_seeds(noise_of),
                away=lambda _: _AWAY,
            ).run(setup, table.__getitem__, lost[number])
            if outcome.record is None:
                raise ParameterError("plan", self.plan, "one whose members add noise")
            returned = tuple(j for j in outcome.record.returned if j != _CORRUPT_MEMBER)
            record = replace(outcome.record, returned=returned)
            release = Pipeline(setup).decode(outcome.total, record=record)
            rotated = self._rotation.forward(release.mean_sketch)
            whole = rotated * (_CLIENTS * self.parameters.scale)
            if number:
                whole += self.added(noise_of, number - 1, [_CORRUPT_MEMBER])
            sums.append(whole)
            found = setup.events(len(outcome.total.survivors), record)
            events.append(_as_release(found.server if number in OWN else found.absent))
            records.append(record)
        return sums, events, records

    def corrupt_noise(self, noise_of: int, number: int) -> Floats:
        """What the adversary knows of a round's noise: that of a client and a member."""
        nothing = Quantized(np.zeros(self.length, np.int64), 1, 1)
        seed = _client_seed(noise_of, number, _CORRUPT_CLIENT)
        own = self.parameters.mechanism.add_noise(nothing, seed).values
        return np.asarray(own + self.added(noise_of, number, [_CORRUPT_MEMBER]), np.float64)

    def change(self, noise_of: int, number: int, members: Sequence[int]) -> NDArray[np.int64]:
        """What members add in a round less what they take back: int64[L]."""
        change = self.added(noise_of, number, members)
        return change - self.added(noise_of, number - 1, members) if number else change

    def added(self, noise_of: int, number: int, members: Sequence[int]) -> NDArray[np.int64]:
        """What members add in a round: int64[L]."""
        law, seeds = DiscreteGaussianLaw(self.parts.member_variance), _members_seeds(noise_of)
        total = np.zeros(self.length, np.int64)
        for j in members:
            total += sample_law(law, seeds(_SESSION, number, j), self.length)
        return total


HONEST: Final = tuple(j for j in range(_MEMBERS) if j not in _AWAY and j != _CORRUPT_MEMBER)
"""Members whose noise the adversary does not know."""


@dataclass(frozen=True, slots=True)
class RunRelease:
    """All sums of a run, less what the adversary knows, in one coordinate."""

    seed: int  # of parameters and public seed
    mistake: RunMistake = RunMistake.NONE  # of a twin

    def release(self, world: int, count: int, seed: int) -> Floats:
        """See ``AuditedRelease``: float64[count, T], in integer units."""
        whole = WholeRun(self.seed, min(count, _LENGTH))
        parts = [
            self._columns(whole, world, derived_seed(seed, "part", number))
            for number in range(-(-count // whole.length))
        ]
        return np.concatenate(parts)[:count]

    def _columns(self, whole: WholeRun, world: int, noise_of: int) -> Floats:
        sums, _, _ = whole.run(noise_of, world)
        for number in range(ROUNDS):
            sums[number] = sums[number] - whole.corrupt_noise(noise_of, number)
            if self.mistake is RunMistake.TWICE and number > 1:
                sums[number] -= whole.added(noise_of, number - 2, HONEST)
            elif self.mistake is RunMistake.OWN_ROUND:
                sums[number] -= whole.change(noise_of, number, HONEST)
        return np.stack(sums, axis=1)

    def score(self, output: NDArray[np.float64]) -> Floats:
        """The most powerful projection: Sigma^-1 D, for the noise that is really there."""
        shifts = np.isin(np.arange(ROUNDS), OWN) * float(SHIFT)
        return np.asarray(output @ np.linalg.solve(self._covariance(), shifts))

    def _covariance(self) -> Floats:
        parts = WholeRun(self.seed).parts
        taken = np.eye(ROUNDS) - np.eye(ROUNDS, k=-1)
        if self.mistake is RunMistake.TWICE:
            taken -= np.eye(ROUNDS, k=-2)
        elif self.mistake is RunMistake.OWN_ROUND:
            taken = np.zeros((ROUNDS, ROUNDS))
        honest = parts.fewest_clients - parts.corrupt_clients
        members = len(HONEST) * parts.member_variance * taken @ taken.T
        return np.asarray(members + honest * parts.client_variance * np.eye(ROUNDS))


def claimed_epsilon(seed: int, mistake: CountMistake | None = None) -> float:
    """What is claimed of one coordinate of a run, by the events that a ledger has.

    A ledger's claim stands from the victim's last round on, when it is that of a filter, with all
    that may still come back; the smallest of all from then on counts.
    """
    _, events, records = _one_run(seed)
    parts = WholeRun(seed).parts
    alone = replace(parts.promises, dimension=1)
    own = [event for event in events if event.l2_sensitivity]
    if mistake is CountMistake.OWN_ROUNDS:
        variances = [event.fresh_variance + event.returned_variance for event in own]
        return correlated_epsilon(sum(SHIFT**2 / each for each in variances), alone, DELTA)
    if mistake is CountMistake.NO_RESERVE:
        so_far = events[: max(OWN) + 1]
        shifts = np.array([event.l2_sensitivity for event in so_far])
        charge = shifts @ np.linalg.solve(_sigma(so_far), shifts)
        return correlated_epsilon(float(charge), alone, DELTA)
    if mistake is not None:
        left_out = parts.corrupt_members if mistake is CountMistake.ONCE else 0
        events = _miscounted(events, records, parts, left_out)
    accountant = CorrelatedAccountant()
    claims: list[float] = []
    for event in events:
        accountant.compose(replace(event, dimension=1))
        claims.append(accountant.epsilon(DELTA))
    return min(claims[max(OWN) :])


def _miscounted(
    events: Sequence[CorrelatedRelease],
    records: Sequence[RoundRecord],
    parts: Parts,
    left_out: int,
) -> list[CorrelatedRelease]:
    """The same rounds, with so many members' parts left out of each number."""
    counted = [len(record.entered) - left_out for record in records]
    back = [len(record.returned) - left_out for record in records]
    kept = parts.least_kept
    return [
        replace(
            event,
            fresh_variance=kept + parts.member_variance * counted[t],
            returned_variance=parts.member_variance * min(back[t], counted[t - 1]) if t else 0.0,
        )
        for t, event in enumerate(events)
    ]


@lru_cache(maxsize=4)
def _one_run(seed: int) -> tuple[list[Floats], list[CorrelatedRelease], list[RoundRecord]]:
    """A short one, for its events; each is that of a victim that shifts one coordinate."""
    sums, events, records = WholeRun(seed, 64).run(seed)
    shifted = [
        replace(event, l2_sensitivity=float(SHIFT)) if event.l2_sensitivity else event
        for event in events
    ]
    return sums, shifted, records


def _sigma(events: Sequence[CorrelatedRelease]) -> Floats:
    """The covariance that is counted."""
    back = [event.returned_variance for event in events]
    sigma = np.diag([event.fresh_variance + event.returned_variance for event in events])
    for t in range(1, len(events)):
        sigma[t, t - 1] = sigma[t - 1, t] = -back[t]
    return np.asarray(sigma)


@lru_cache(maxsize=8)
def _scored(mistake: RunMistake, runs: int, seed: int) -> ScoredRuns:
    """The runs of both worlds; those of the product serve several mutants."""
    release = RunRelease(seed, mistake)
    return scored_runs(release, runs, derived_seed(seed, mistake.name), release.score)


def run_figures(
    mistake: RunMistake, claimed: float, runs: int, seed: int, alpha: float = ALPHA
) -> Figures:
    """Runs of one kind, held against a claim at level ``alpha``.

    ``tightness`` is the share of the claim that the 95 % bound of the Gaussian route finds.
    """
    scored = _scored(mistake, runs, seed)
    usual = scored.bound(DELTA, 0.95)
    return {
        **scored.bound(DELTA, 1.0 - alpha).figures(claimed),
        "epsilon_at_least_95": usual.epsilon,
        "gaussian_epsilon_at_least_95": usual.gaussian_epsilon,
        "tightness": usual.gaussian_epsilon / claimed,
    }


def audit_runs(runs: int, seed: int, alpha: float = ALPHA) -> Audit:
    """Whole runs in two worlds; mutants have another claim, or other noise."""

    def figures(noise: RunMistake, count: CountMistake | None) -> Figures:
        return run_figures(noise, claimed_epsilon(seed, count), runs, seed, alpha)

    counts = {each.value: partial(figures, RunMistake.NONE, each) for each in CountMistake}
    noises = (RunMistake.TWICE, RunMistake.OWN_ROUND)
    return Audit(
        "privacy-two-worlds-run",
        "Two worlds of whole runs whose noise comes back: no bound above the accounted epsilon",
        partial(figures, RunMistake.NONE, None),
        {**counts, **{each.value: partial(figures, each, None) for each in noises}},
    )


# -- the noise in the model -----------------------------------------------------------------------

_MANY_LOST: Final = 3


def model_noise(length: int, seed: int) -> tuple[Floats, Floats, float]:
    """The sum of all rounds as a model has it, where rounds lose many clients or none.

    Returns:
        Of all rounds as decoded, float64[L] in integer units; the same if every round were divided
        by its survivors; and the variance by the records.
    """
    whole = WholeRun(seed, length, _MANY_LOST)
    lost = {_CLIENTS - 1 - k: Stage.INPUT for k in range(_MANY_LOST)}
    dropouts: list[Dropouts] = [lost if number % 2 else {} for number in range(ROUNDS)]
    sums, _, records = whole.run(seed, 0, dropouts)
    divided_again = [
        each * (_CLIENTS / record.clients) for each, record in zip(sums, records, strict=True)
    ]
    stays = sum(record.clients for record in records) * whole.parts.client_variance
    returned = [set(record.returned) for record in records[1:]] + [set[int]()]
    left = sum(
        len(set(record.entered) - back) for record, back in zip(records, returned, strict=True)
    )
    variance = stays + left * whole.parts.member_variance
    return np.sum(sums, axis=0), np.sum(divided_again, axis=0), variance


def audit_model_noise(length: int, seed: int, alpha: float = ALPHA) -> Audit:
    """What comes back is gone from the model, whoever is lost."""

    def figures(divided_again: bool) -> Figures:
        model, divided, variance = model_noise(length, seed)
        claimed = DiscreteGaussianRelease(variance, 1, 0.0, 1, 1)
        return noise_test(np.rint(divided if divided_again else model), claimed, alpha).figures()

    return Audit(
        "privacy-noise-model",
        "The noise of a run that is left in the model is what the records say",
        partial(figures, False),
        {"every sum is divided by its survivors": partial(figures, True)},
    )


def _client_seed(noise_of: int, number: int, index: int) -> NoiseSeed:
    return noise_seed(noise_of, "client", number, index)


def _members_seeds(noise_of: int) -> Callable[[bytes, int, int], NoiseSeed]:
    def seed(session_id: bytes, number: int, member: int) -> NoiseSeed:
        del session_id
        return noise_seed(noise_of, "member", number, member)

    return seed


def _as_release(event: Event | None) -> CorrelatedRelease:
    if not isinstance(event, CorrelatedRelease):
        raise ParameterError("event", event, "one of a run whose noise comes back")
    return event
