"""What a deployment needs and what it gets: from a goal to noise, bits, bytes, error and epsilons.

Nothing is run: every figure follows from the public parameters. The error is that of the mean
update; tests compare it with simulated rounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dp import CoinSchedule, FourEpsilons, replace_one
from dp.accounting import reserved_accountant
from dp.mechanisms import DistributedMechanism
from protocol.planning.training_plan import TrainingPlan
from protocol.round.field_size import bits_for
from protocol.round.parameters import DIGEST_BYTES, RoundParameters, release_event
from protocol.round.setup import noise_left, own_noise, removal_table
from protocol.schemes.scheme import Priced
from secagg import ParameterError
from sketch import PublicSeed, SketchSpec
from sketch.error import compression_error, noise_error
from sketch.hashing import SEED_BYTES


@dataclass(frozen=True, slots=True)
class PredictedError:
    """Expected squared Euclidean error of the mean update, in the units of the update squared.

    Attributes:
        noise: from noise and rounding.
        compression: from the sketch, for a mean update as long as the clip bound; it falls with
            the square of the length.
        gaussian: of the Gaussian mechanism at the same epsilon and clip, uncompressed noise.
    """

    noise: float
    compression: float
    gaussian: float

    @property
    def total(self) -> float:
        """Both parts; they are uncorrelated."""
        return self.noise + self.compression

    @property
    def excess(self) -> float:
        """Noise beyond that of the Gaussian mechanism, as a share of the latter."""
        return self.noise / self.gaussian - 1.0


@dataclass(frozen=True, slots=True)
class DeploymentPlan:
    """All figures of a deployment.

    Attributes:
        parameters: of every round; digests and seeds in it are placeholders.
        priced: what the scheme chose for a round, the graph of pairwise rounds or the ring of
            one-shot ones, and every message of a client, in bytes by part.
        seeds: removable noise seeds of each client.
        bits: of a field element, with the accepted wrap probability.
        bits_exact: of a field that holds every sum; None if there is none.
        survivors: how many the error is predicted for.
        error: of the mean update of one round.
        epsilons: of all rounds, with the fewest survivors.
        replace_one: epsilon against the server under replace-one adjacency, by the goal's bound
            and with its reserve.
    """

    parameters: RoundParameters
    priced: Priced
    seeds: int
    bits: int
    bits_exact: int | None
    survivors: int
    error: PredictedError
    epsilons: FourEpsilons
    replace_one: float

    @property
    def bytes_per_client(self) -> int:
        """Of one round, both directions. Of a client that is a member only if everybody is one."""
        return sum(self.bytes_each.values())

    @property
    def bytes_each(self) -> dict[str, int]:
        """The same by part."""
        return self.priced.bytes_each

    @property
    def bits_per_coordinate(self) -> float:
        """Of the update before compression: the masked vector alone."""
        return self.bits * self.parameters.length / self.parameters.sketch.dimension


def noise_figures(mechanism: DistributedMechanism) -> dict[str, str | int | float]:
    """The noise of a client by name, as reports have it."""
    return {"mechanism": mechanism.name, f"{mechanism.unit}_per_client": mechanism.amount}


def plan_deployment(
    plan: TrainingPlan, sketch: SketchSpec, expected_dropouts: int | None = None
) -> DeploymentPlan:
    """Work out a deployment.

    Args:
        plan: the goal, the cohort, and what it tolerates.
        sketch: compression of every round.
        expected_dropouts: clients lost in a round of which the error is predicted; as many as are
            tolerated if left out.

    Raises:
        ParameterError: infeasible; says what to change.
    """
    lost = plan.tolerated_dropouts if expected_dropouts is None else expected_dropouts
    if not 0 <= lost <= plan.tolerated_dropouts:
        raise ParameterError("expected_dropouts", lost, f"in 0 .. {plan.tolerated_dropouts}")
    parameters = plan.calibrate(sketch, bytes(DIGEST_BYTES), PublicSeed(bytes(SEED_BYTES)))
    schedule = plan.schedule(parameters.mechanism)
    seeds = max(removal_table(schedule), default=0).bit_length()
    adding = plan.noise.adding(plan)
    bits = bits_for(parameters, plan.cohort, seeds, adding)
    return DeploymentPlan(
        parameters=parameters,
        priced=plan.scheme.price(plan, parameters, bits, seeds, adding),
        seeds=seeds,
        bits=bits,
        bits_exact=_bits_exact(parameters, plan.cohort, seeds),
        survivors=plan.cohort - lost,
        error=_error(plan, parameters, noise_left(parameters.mechanism, schedule, lost), lost),
        epsilons=_epsilons(plan, parameters, schedule),
        replace_one=_replace_one(plan, parameters),
    )


def _bits_exact(parameters: RoundParameters, cohort: int, seeds: int) -> int | None:
    if parameters.mechanism.noise.noise_limit is None:
        return None
    return bits_for(replace(parameters, wrap_probability=0.0), cohort, seeds)


def _error(
    plan: TrainingPlan, parameters: RoundParameters, left: DistributedMechanism, lost: int
) -> PredictedError:
    """That of a round which loses so many clients, with what is left of each survivor's noise."""
    dimension, survivors = parameters.sketch.dimension, plan.cohort - lost
    per_client = left.variance + parameters.rounding_variance + plan.scheme.ERROR_VARIANCE
    per_client /= parameters.scale**2
    # Of one round: what members add, and what they take back of the round before.
    members = 2 * plan.noise.adding(plan) * parameters.member_variance
    per_client += members / (survivors * parameters.scale**2)
    sigma = plan.goal.noise_multiplier * parameters.sketch_clip_l2
    compressed = parameters.length < dimension
    return PredictedError(
        noise=noise_error(dimension, per_client / survivors),
        compression=(
            compression_error(dimension, parameters.length, plan.clip_l2**2) if compressed else 0.0
        ),
        gaussian=noise_error(dimension, (sigma / survivors) ** 2),
    )


def _epsilons(
    plan: TrainingPlan, parameters: RoundParameters, schedule: CoinSchedule | None
) -> FourEpsilons:
    """All rounds, each with the fewest survivors, who keep all of their noise.

    As the running accounts have it: with the part of delta that the goal sets aside.
    """
    goal, whole = plan.goal, parameters.mechanism

    def run(mechanism: DistributedMechanism, contributors: int) -> float:
        accountant = reserved_accountant(goal.reserve)
        accountant.compose(release_event(parameters, mechanism, contributors), goal.rounds)
        return accountant.epsilon(goal.delta)

    clients = run(whole, plan.fewest_honest)
    counted = plan.noise.epsilon_of_run(plan, parameters)
    return FourEpsilons(
        server=clients if counted is None else counted,
        outsider=run(whole, plan.minimum_survivors) if counted is None else counted,
        without_members=None if counted is None else clients,
        sybil=run(own_noise(whole, schedule), 1),
        secagg_alone=math.inf,
        delta=goal.delta,
        colluders=plan.tolerated_colluders,
        amplified=False,
    )


def _replace_one(plan: TrainingPlan, parameters: RoundParameters) -> float:
    """All rounds against the server, if a contribution is replaced by any other."""
    counted = plan.noise.epsilon_of_run(plan, parameters, 2.0)
    if counted is not None:
        return counted
    accountant = reserved_accountant(plan.goal.reserve)
    event = release_event(parameters, parameters.mechanism, plan.fewest_honest)
    accountant.compose(replace_one(event), plan.goal.rounds)
    return accountant.epsilon(plan.goal.delta)
