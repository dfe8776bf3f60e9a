"""What a run will take, before it begins: privacy, bytes, noise, and an estimate of the time."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

from dp import NoiseSeed
from dp.correlated.planning import NoisePlan
from dp.correlated.strategies import BandedPlan
from protocol.goal import PrivacyGoal
from protocol.planning.configuration import build_plan
from protocol.planning.deployment import DeploymentPlan, noise_figures, plan_deployment
from protocol.planning.training_plan import TrainingPlan
from protocol.round.pipeline import Pipeline
from protocol.schemes.scheme import figures_of
from protocol.schemes.validated import BoundChoice
from protocol.training.local import imagined_setup
from protocol.training.power import SUMS
from simulations.learning.client_evaluation import errors_of, planned_evaluation
from simulations.learning.configuration import RunConfig
from simulations.learning.federated import Federation
from simulations.learning.insecure import remarks
from simulations.learning.local_dp.config import LocalDp
from simulations.learning.local_dp.registry import build_algorithm
from simulations.learning.models.layout import ParameterLayout
from simulations.learning.noise_schedule import (
    allocation_of,
    banded_plan,
    returned_plan,
    schedule_of,
    training_plan,
)
from simulations.learning.run.one_shot_cost import RankCost, one_shot_cost
from simulations.learning.run.pairwise_cost import pairwise_seconds
from simulations.learning.sources import CentralMean
from sketch import SketchSpec
from sketch.factors import FactorShapes
from sketch.layers import LayerShapes


def forecast(config: RunConfig, federation: Federation, ranks: int = 1) -> dict[str, object]:
    """Work out a run, and time one chunk of clients on this machine.

    Later rounds of a private run compress as the controller decides; the figures are those of the
    first. The estimate has the time of the real protocol: of the one-shot one for as many ranks.
    """
    poorest = min(map(len, federation.members))
    figures: dict[str, object] = {
        "parameters": federation.task.dimension,
        "clients": config.task.population,
        "examples_of_the_poorest_client": poorest,
        "rounds": config.rounds,
        "cohort": config.cohort.size,
        "chunks_of_a_cohort": len(federation.chunks),
        "ranks": ranks,
        "rounds_of_one_client": config.participations,
        "aggregator": config.engine.aggregator,
        **remarks(config.engine.insecure_seed),
    }
    seconds, update = _time_training(federation)
    played: list[RankCost] = []
    together = 0.0  # of a round, by one process
    if config.local_dp is not None:
        figures |= _local_figures(config, config.local_dp, federation.task.dimension)
    elif config.engine.aggregator == "central":
        figures |= _central_figures(config, federation.task.dimension)
    elif config.engine.aggregator != "plain":
        for name, plan, first in _sums(config, federation.task.layout):
            deployment = plan_deployment(plan, first)
            figures |= {name + key: value for key, value in _sum_figures(deployment).items()}
            figures |= plan.noise.figures(plan, first.size)
            figures |= _hidden_figures(config, plan.goal, deployment)
            resized = np.nan_to_num(np.resize(update, first.dimension))
            if config.engine.aggregator == "real" and plan.scheme.SEATS:
                cost = one_shot_cost(plan, deployment.parameters, resized)
                # What a member uploads costs about as much as what a client does.
                adding = plan.noise.adding(plan)
                played.append(cost.of_rank(config.cohort.size + adding, ranks))
            elif config.engine.aggregator == "real":
                together += pairwise_seconds(plan, first.size)
            else:
                seconds += _time_encoding(plan, deployment, resized)
        figures["clip_l2"] = config.privacy.clip_l2
        if config.evaluation is not None:
            planned = planned_evaluation(config.evaluation, training_plan(config))
            figures["errors_of_an_evaluation"] = errors_of(planned)
            figures["rounds_of_one_client_with_evaluations"] = config.charged_rounds
    updates, busy = config.cohort.size * config.rounds, min(ranks, len(federation.chunks))
    minutes = seconds * updates / (config.engine.threads * busy) / 60.0
    minutes += config.rounds * (together + sum(each.seconds for each in played)) / 60.0
    figures["estimated_minutes"] = minutes
    if played:
        figures["megabytes_of_memory_for_clients"] = max(each.memory for each in played) / 1e6
        figures["megabytes_of_disk_for_uploads"] = max(each.disk for each in played) / 1e6
    return figures


def _sums(config: RunConfig, layout: ParameterLayout) -> list[tuple[str, TrainingPlan, SketchSpec]]:
    """The sums of the first round, each with a prefix for its figures, its plan and its shape."""
    if config.powersgd is None:
        plan = training_plan(config)
        # One coordinate more, for the votes of a clip that follows norms.
        dimension = layout.dimension + (config.clipping is not None)
        first = config.sketch.build(config.rounds).initial(dimension, plan.prior)
        return [("", plan, first.spec)]
    plan = build_plan(config, SUMS * config.participations)
    shapes = FactorShapes(LayerShapes(layout.shapes), config.powersgd.rank)
    return [
        ("left_", plan, SketchSpec.identity(shapes.first_size)),
        ("right_", plan, SketchSpec.identity(shapes.second_size)),
    ]


def _sum_figures(deployment: DeploymentPlan) -> dict[str, object]:
    bounded: dict[str, object] = {}
    if isinstance(deployment.priced, BoundChoice):
        bounded["validation"] = figures_of(deployment.priced)
    return {
        **bounded,
        "first_sketch": deployment.parameters.length,
        **noise_figures(deployment.parameters.mechanism),
        "bits": deployment.bits,
        "megabytes_per_client_and_round": deployment.bytes_per_client / 1e6,
        "noise_of_the_mean_l2": deployment.error.noise**0.5,
        "epsilons": deployment.epsilons.as_json(),
    }


def _hidden_figures(
    config: RunConfig, goal: PrivacyGoal, deployment: DeploymentPlan
) -> dict[str, object]:
    """Bounds of a hidden cohort, and what all models tell of a client; nothing of any other."""
    allocation = allocation_of(config)
    if allocation is None:
        return {}
    told = allocation.epsilon(goal, config.rounds, integers=True)
    return {
        "fewest_clients": allocation.fewest,
        "most_clients": allocation.most,
        "epsilons": replace(deployment.epsilons, hidden_cohorts=told).as_json(),
    }


def _local_figures(config: RunConfig, section: LocalDp, dimension: int) -> dict[str, object]:
    algorithm = build_algorithm(section, config.privacy, dimension, config.participations)
    return {
        "algorithm": section.algorithm,
        "epsilon_of_a_report": algorithm.epsilon,
        "megabytes_per_client_and_round": algorithm.report_bytes / 1e6,
    }


def _central_figures(config: RunConfig, dimension: int) -> dict[str, object]:
    """Of a trusted server, who adds the noise."""
    source = CentralMean(config, config.sketch.build(config.rounds), dimension)
    size = source.state.decision.spec.size
    figures: dict[str, object] = {
        "first_sketch": size,
        "bits": 32,
        "megabytes_per_client_and_round": 4.0 * size / 1e6,
        "epsilons": source.epsilons(config.rounds),
        "clip_l2": config.privacy.clip_l2,
    }
    if config.noise.kind == "independent":
        return figures
    returned = config.noise.kind == "returned"
    plan: NoisePlan | BandedPlan = returned_plan(config) if returned else banded_plan(config)
    figures |= {
        "rounds_apart": schedule_of(config).apart,
        "noise_in_the_model_smaller_by": plan.gain,
    }
    if isinstance(plan, NoisePlan):
        figures["returned_share"] = plan.returned_share
    return figures


def _time_training(federation: Federation) -> tuple[float, Any]:
    """Seconds for one client, from one chunk after a first that compiles and allocates."""
    size = len(federation.chunks[0])
    model = federation.initial().model
    for _ in range(2):
        updates = federation.invite(0, model).updates
        start = time.perf_counter()
        update = np.array(updates(0))
        seconds = (time.perf_counter() - start) / size
    return seconds, update


def _time_encoding(plan: TrainingPlan, deployment: DeploymentPlan, update: Any) -> float:
    """Seconds for one client, from clip to field elements, the second time."""
    setup = imagined_setup(plan, deployment.parameters)
    pipeline = Pipeline(setup)
    for _ in range(2):
        removable = [NoiseSeed.fresh() for _ in range(setup.context.seeds)]
        start = time.perf_counter()
        pipeline.encode(update, NoiseSeed.fresh(), removable)
        seconds = time.perf_counter() - start
    return seconds
