"""From a configuration, a folder and a checkpoint to the source of a run's means."""

from __future__ import annotations

from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from dp import Ledger
from dp.minimal_clip import ClipController
from protocol.errors import ConfigurationError
from protocol.exchange.aggregators import Aggregator, IdealAggregator
from protocol.exchange.one_shot import Absences, MemberStage
from protocol.exchange.ranks import ALONE, Ranks
from protocol.planning.configuration import Privacy, build_plan
from protocol.planning.training_plan import TrainingPlan
from protocol.schemes.one_shot import local_committee, one_shot_of
from protocol.statistics.private import PlannedSurvey
from protocol.training.adaptive_clip import AdaptiveClipTraining, Vote, starting
from protocol.training.local import local_aggregator
from protocol.training.power import SUMS, PowerState, PowerTraining
from protocol.training.private import PrivateTraining, TrainingState
from protocol.training.records import Notes
from secagg.terms import SESSION_ID_BYTES
from simulations.learning.attackers import AttackedAggregator, Attackers
from simulations.learning.client_evaluation import planned_evaluation
from simulations.learning.configuration import Clipping, RunConfig
from simulations.learning.insecure import notes_of
from simulations.learning.local_dp.journal import MemoryJournal
from simulations.learning.local_dp.memory import ClientMemory
from simulations.learning.local_dp.registry import build_algorithm
from simulations.learning.models.layout import ParameterLayout
from simulations.learning.noise_schedule import allocation_of, members_away, training_plan
from simulations.learning.run.checkpoint import Checkpoint
from simulations.learning.run.folder import RunFolder
from simulations.learning.run.secrets import RunSecrets
from simulations.learning.sources import CentralMean, PlainMean, PrivateMean, RecordedSource
from simulations.learning.sources.base import NOTHING, Arrays
from simulations.learning.sources.clipped import ClippedMean
from simulations.learning.sources.clipped import restored as clipping_restored
from simulations.learning.sources.denoised import DenoisedMean, of_source
from simulations.learning.sources.local import PLACE, Channel, LocalMean
from simulations.learning.sources.power import PowerMean, restored
from simulations.learning.sources.robust import GroupMedian, RobustMean
from simulations.learning.sources.secure_levels import SecureLevels
from sketch import PublicSeed
from sketch.factors import FactorShapes
from sketch.hashing import SEED_BYTES
from sketch.layers import LayerShapes


def source_of(
    config: RunConfig,
    layout: ParameterLayout,
    folder: RunFolder,
    checkpoint: Checkpoint | None,
    stack: ExitStack,
    executor: Executor,
    ranks: Ranks = ALONE,
) -> RecordedSource:
    """Where the means of a run come from, as far as the checkpoint."""
    arrays = checkpoint.arrays if checkpoint else NOTHING
    layers = LayerShapes(layout.shapes)
    source = _bare(config, layers, folder, checkpoint, of_source(arrays), stack, executor, ranks)
    return source if config.denoise is None else DenoisedMean(source, config, layers, arrays)


def _bare(
    config: RunConfig,
    layers: LayerShapes,
    folder: RunFolder,
    checkpoint: Checkpoint | None,
    arrays: Arrays,
    stack: ExitStack,
    executor: Executor,
    ranks: Ranks,
) -> RecordedSource:
    """The source without a filter."""
    state, dimension = checkpoint.training if checkpoint else None, layers.dimension
    if config.engine.aggregator == "plain":
        robust = config.robust
        return RobustMean(robust, config.privacy.clip_l2) if robust else PlainMean(ranks)
    if config.engine.aggregator == "central":
        controller = config.sketch.build(config.rounds)
        return CentralMean(config, controller, dimension, state, executor, ranks, arrays)
    seed = config.engine.insecure_seed
    secrets = RunSecrets.open(folder.key, seed, given=ranks.rank > 0)
    notes = notes_of(seed)
    if config.local_dp is not None:
        return _local(config, dimension, secrets, arrays, folder, stack, ranks)
    # A line cut off by a crash was never answered with a result.
    ledger = stack.enter_context(Ledger.open(folder.ledger, recover=True))
    if config.powersgd is not None:
        return _power(config, layers, secrets, arrays, ledger, executor, ranks, notes)
    identities = secrets.identities(config.task.population)
    survey = _evaluation(config)
    if config.clipping is not None:
        # One coordinate more, for the clients' votes.
        training = _private(config, dimension + 1, secrets, state, ledger, executor, ranks)
        clipped = _clipped(config.clipping, config.privacy, training, arrays)
        return ClippedMean(clipped, identities, secrets.begin, ranks, notes, survey, secrets.tokens)
    training = _private(config, dimension, secrets, state, ledger, executor, ranks)
    sums = PrivateMean(training, identities, secrets.begin, ranks, notes, survey, secrets.tokens)
    return GroupMedian(sums, config.robust.groups) if config.robust else sums


def _evaluation(config: RunConfig) -> PlannedSurvey | None:
    """What clients are asked about models, if they are."""
    if config.evaluation is None:
        return None
    return planned_evaluation(config.evaluation, training_plan(config))


def _private(
    config: RunConfig,
    dimension: int,
    secrets: RunSecrets,
    state: TrainingState | None,
    ledger: Ledger,
    executor: Executor,
    ranks: Ranks,
) -> PrivateTraining:
    plan = training_plan(config)
    if config.robust is not None:
        plan = replace(plan, cohort=plan.cohort // config.robust.groups)
    controller = config.sketch.build(config.rounds)
    if state is not None and plan.noise.remembered and config.engine.aggregator == "real":
        raise ConfigurationError(
            "engine.aggregator",
            "real, for a run to go on with: what its members remembered of their noise is gone",
            'another --out; or "ideal", whose sums are the same',
        )
    if state is None:
        # Fixed before the first round is charged, so that it can be recognised if that is all.
        session = secrets.session_id(SESSION_ID_BYTES)
        state = TrainingState(session, 0, 0, controller.initial(dimension, plan.prior))
    aggregator = _aggregator(config, plan, dimension, secrets, executor, ranks)
    together = 1 if config.evaluation is None else 2
    return PrivateTraining(
        plan,
        dimension,
        controller,
        aggregator,
        ledger,
        state,
        secrets.public,
        together=together,
        allocation=allocation_of(config),
        hiding=secrets.hiding,
    )


def _clipped(
    section: Clipping, privacy: Privacy, training: PrivateTraining, arrays: Arrays
) -> AdaptiveClipTraining:
    vote = Vote(share=section.vote_share, quantile=section.quantile, rate=section.rate)
    largest = privacy.clip_l2 / vote.whole
    try:
        controller = ClipController(
            smallest=section.smallest,
            largest=largest,
            step_factor=section.step_factor,
            window=section.window,
        )
        begun = starting(controller, section.first or largest)
    except ValueError as error:
        raise ConfigurationError("clipping", str(error), "figures that fit together") from None
    state = clipping_restored(arrays) if arrays else begun
    return AdaptiveClipTraining(training, controller, state, vote)


def _power(
    config: RunConfig,
    layers: LayerShapes,
    secrets: RunSecrets,
    arrays: Arrays,
    ledger: Ledger,
    executor: Executor,
    ranks: Ranks,
    notes: Notes | None,
) -> PowerMean:
    if config.powersgd is None:
        raise ValueError("the configuration has no table powersgd")
    plan = build_plan(config, SUMS * config.participations)
    shapes = FactorShapes(layers, config.powersgd.rank)
    if arrays:
        state = restored(arrays)
    else:
        right = shapes.initial_right(PublicSeed(secrets.bases(SEED_BYTES)))
        state = PowerState(secrets.session_id(SESSION_ID_BYTES), 0, 0, right)
    aggregator = _aggregator(config, plan, None, secrets, executor, ranks)
    training = PowerTraining(plan, shapes, aggregator, ledger, state, secrets.public, secrets.begin)
    whole = sum(place.stop - place.start for place, _ in shapes.whole())
    identities = secrets.identities(config.task.population)
    return PowerMean(training, identities, config.privacy.clip_l2, whole, ranks, notes)


def _local(
    config: RunConfig,
    dimension: int,
    secrets: RunSecrets,
    arrays: Arrays,
    folder: RunFolder,
    stack: ExitStack,
    ranks: Ranks,
) -> LocalMean:
    if config.local_dp is None:
        raise ValueError("the configuration has no table local_dp")
    algorithm = build_algorithm(config.local_dp, config.privacy, dimension, config.participations)
    channel: Channel | None = None
    if config.local_dp.through == "secure_sum":
        plan = build_plan(config, config.participations)
        identities = secrets.identities(config.task.population)
        session = secrets.session_id(SESSION_ID_BYTES)
        channel = SecureLevels(plan, identities, session, secrets.rand_of)
    memory = ClientMemory(dimension)
    journal = stack.enter_context(MemoryJournal(folder.path, memory, arrays.get(PLACE)))
    return LocalMean(
        config,
        algorithm,
        memory,
        secrets.noise,
        secrets.public,
        channel=channel,
        journal=None if ranks.rank else journal,
        before=secrets.begin,
        ranks=ranks,
    )


def _aggregator(
    config: RunConfig,
    plan: TrainingPlan,
    dimension: int | None,
    secrets: RunSecrets,
    executor: Executor,
    ranks: Ranks,
) -> Aggregator:
    """The real protocol, or the sum that it computes, with what attackers add to it."""
    attackers, identities = Attackers(config), secrets.identities(config.task.population)
    aggregator = _honest(config, plan, dimension, secrets, executor, ranks)
    if attackers.table is None or attackers.table.length <= 1.0:
        return aggregator
    keys = [identities[client].public for client in attackers.clients]
    return AttackedAggregator(aggregator, keys, attackers.table.length)


def _honest(
    config: RunConfig,
    plan: TrainingPlan,
    dimension: int | None,
    secrets: RunSecrets,
    executor: Executor,
    ranks: Ranks,
) -> Aggregator:
    """The same without attackers."""
    identities = secrets.identities(config.task.population)
    evaluation, committee = _evaluation(config), None
    if plan.scheme.SEATS:
        members = secrets.members(one_shot_of(plan).numbers(plan).size)
        committee = local_committee(
            plan, identities, members, secrets.sealing_key, rand_of=secrets.member_rand
        )
    if config.engine.aggregator == "ideal":
        return IdealAggregator(
            secrets.removable,
            secrets.noise,
            executor,
            ranks,
            committee=committee,
            members_noise=secrets.member_noise,
            away=partial(members_away, config),
        )
    return local_aggregator(
        plan,
        identities,
        dimension,
        committee=committee,
        executor=executor,
        noise=secrets.noise,
        rand_of=secrets.rand_of,
        ranks=ranks,
        absences=partial(_absences, config),
        integers=evaluation.survey.policy if evaluation else None,
    )


def _absences(config: RunConfig, round_number: int) -> Absences:
    """Members of whom nothing is heard in a round."""
    return dict.fromkeys(members_away(config, round_number), MemberStage.NOISE)
