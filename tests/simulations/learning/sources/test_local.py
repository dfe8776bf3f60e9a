"""Local privacy as a source of means: what is added up, what it costs, what is refused."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from rank_doubles import on_ranks

from dp import NoiseSeed, PrivacyError
from dp.accounting.local import LocalAccountant
from dp.events import LocalRelease
from dp.local import Duchi
from protocol.errors import ConfigurationError
from protocol.exchange.ranks import ALONE, Ranks
from protocol.planning.configuration import Privacy, build_plan, parse
from protocol.round.losses import Stage
from secagg import Identity, TooFewSurvivorsError
from simulations.learning.configuration import RunConfig, demo_config
from simulations.learning.federated import CohortUpdates, Invitation
from simulations.learning.local_dp import ClientMemory
from simulations.learning.local_dp import memory as memory_module
from simulations.learning.local_dp.config import KEYS, LocalDp
from simulations.learning.local_dp.registry import build_algorithm, epsilon_of_a_report
from simulations.learning.run.overrides import changed
from simulations.learning.sources import uploaders
from simulations.learning.sources.local import LocalMean
from simulations.learning.sources.secure_levels import SecureLevels, bits_of_sum, with_levels
from simulations.learning.training.updates import MAX_CHUNK
from sketch.hashing import PublicSeed

D, COHORT, CLIP = 60, 20, 0.25
PRIVACY = Privacy(epsilon=40.0, delta=1e-5, clip_l2=CLIP)


def config(**section: Any) -> RunConfig:
    base = demo_config()
    cohort = base.cohort.model_copy(update={"size": COHORT, "tolerated_dropouts": 5})
    engine = base.engine.model_copy(update={"aggregator": "local"})
    update = {"cohort": cohort, "engine": engine, "privacy": PRIVACY}
    return base.model_copy(update={**update, "local_dp": LocalDp(**section)})


def invitation(
    updates: np.ndarray, dropouts: dict[int, Stage] | None = None, number: int = 0
) -> Invitation:
    chunks = iter([updates[:7], updates[7:]])
    clients = tuple(range(100, 100 + len(updates)))
    model = np.zeros(D, np.float32)
    return Invitation(number, clients, dropouts or {}, CohortUpdates(chunks), model)


@pytest.fixture
def updates() -> np.ndarray:
    return np.random.default_rng(3).normal(scale=0.02, size=(COHORT, D)).astype(np.float32)


def source(
    made: RunConfig, *, channel: SecureLevels | None = None, reports: int = 2, ranks: Ranks = ALONE
) -> LocalMean:
    algorithm = build_algorithm(made.local_dp, made.privacy, D, reports)
    return LocalMean(
        made,
        algorithm,
        ClientMemory(D),
        lambda first: NoiseSeed(first.to_bytes(32, "little")),
        lambda count: bytes(range(count)),
        channel,
        ranks=ranks,
    )


@pytest.mark.parametrize("algorithm", sorted(KEYS))
def test_the_mean_is_that_of_the_reports_of_those_who_upload(
    updates: np.ndarray, algorithm: str
) -> None:
    made = config(algorithm=algorithm, **({"sample_share": 0.5} if algorithm == "sqsgd" else {}))
    lost = {3: Stage.ADVERTISE, 7: Stage.UNMASK}
    local, twin = source(made), source(made)
    mean = local.mean(invitation(updates, lost))
    kept = [index for index in range(COHORT) if index != 3]
    assert uploaders(invitation(updates, lost)) == kept
    reports = list(twin._reports(invitation(updates, lost), _seed()))
    estimates = [reports[0][1].estimate(row) for row in range(len(kept))]
    assert np.allclose(mean, np.mean(estimates, axis=0), atol=1e-12)
    facts = local.facts(invitation(updates, lost))
    assert (facts["survivors"], facts["refused"], facts["lost"]) == (19, 0, {"advertise": 1})


def _seed() -> PublicSeed:
    from sketch import PublicSeed

    return PublicSeed(bytes(range(32)))


def test_clients_with_updates_that_are_not_finite_are_left_out(updates: np.ndarray) -> None:
    updates[4, 7], updates[9] = np.nan, np.inf
    local = source(config(algorithm="piecewise"))
    assert np.isfinite(local.mean(invitation(updates))).all()
    facts = local.facts(invitation(updates))
    assert (facts["survivors"], facts["refused"]) == (18, 2)


def test_nothing_is_released_where_nobody_has_anything(updates: np.ndarray) -> None:
    updates[:] = np.nan
    with pytest.raises(PrivacyError, match="finite"):
        source(config(algorithm="hybrid")).mean(invitation(updates))


def test_epsilon_is_that_of_the_client_that_sent_most(updates: np.ndarray) -> None:
    made = config(algorithm="fedsel", epsilon_report=2.0)
    local = source(made)
    for number in range(3):
        local.mean(invitation(updates, {5: Stage.ADVERTISE} if number else {}, number))
    spent = LocalAccountant()
    spent.compose(LocalRelease(2.0), 3)
    facts = local.facts(invitation(updates))
    assert facts["epsilons"]["server"] == facts["epsilons"]["outsider"] == spent.epsilon(1e-5)
    assert facts["epsilons"]["one_report"] == 2.0


def test_more_clients_than_a_group_are_all_counted() -> None:
    many = np.zeros((2 * MAX_CHUNK + 3, D), np.float32)
    local = source(config(algorithm="cross_polytope"))
    local.mean(invitation(many))
    assert local.facts(invitation(many))["survivors"] == len(many)


@pytest.mark.parametrize("algorithm", ["fedsel", "sqsgd", "hybrid"])
def test_ranks_report_as_one_process_does(
    updates: np.ndarray, monkeypatch: pytest.MonkeyPatch, algorithm: str
) -> None:
    """Every rank has the same mean, facts and memory, whoever trains whom in which round."""
    # A message for each client, and not as many from every rank.
    monkeypatch.setattr(memory_module, "BLOCK_BYTES", 1)
    section = {"sample_share": 0.5} if algorithm == "sqsgd" else {}
    made, model = config(algorithm=algorithm, **section), np.zeros(D, np.float32)
    updates[4, 7] = np.nan
    chunks = [range(7), range(7, 9), range(9, 18), range(18, 20)]

    def play(ranks: Ranks) -> list[Any]:
        local, seen = source(made, ranks=ranks), []
        for number in range(3):
            own = tuple(chunks[(ranks.rank + number) % ranks.size :: ranks.size])
            made_here = CohortUpdates(iter([updates[c.start : c.stop] for c in own]), own)
            clients, lost = tuple(range(100, 120)), {3: Stage.ADVERTISE}
            invited = Invitation(number, clients, lost, made_here, model, own)
            mean, facts = local.mean(invited), local.facts(invited)
            assert facts.pop("error")["measured"] >= 0.0
            memory = local._memory
            seen += [mean.tobytes(), facts, memory.sent, [*memory.blocks(memory.clients)]]
        assert (facts["survivors"], facts["refused"]) == (18, 1)
        return seen

    (alone,) = on_ranks(1, play)
    for size in (2, 3, 5):
        assert on_ranks(size, play) == [alone] * size


class TestSecureLevels:
    """Levels of sqSGD through real secure aggregation."""

    SECTION = {  # noqa: RUF012
        "algorithm": "sqsgd",
        "sample_share": 0.5,
        "levels": 4,
        "through": "secure_sum",
    }

    def channel(self, made: RunConfig) -> SecureLevels:
        plan = build_plan(made, 2)
        people = [Identity.generate() for _ in range(COHORT)]
        population = [people[index % COHORT] for index in range(100 + COHORT)]
        return SecureLevels(plan, population[:100] + people, bytes(16))

    def test_the_sum_is_that_of_the_reports(self, updates: np.ndarray) -> None:
        made = config(**self.SECTION)
        updates[11] = np.nan
        lost = {3: Stage.ADVERTISE, 7: Stage.INPUT, 8: Stage.UNMASK}
        direct, secure = source(made), source(made, channel=self.channel(made))
        assert np.array_equal(
            direct.mean(invitation(updates, lost)), secure.mean(invitation(updates, lost))
        )
        facts = secure.facts(invitation(updates, lost))
        assert facts["survivors"] == COHORT - 3
        assert facts["refused"] == 1
        assert facts["bytes_per_client"] > direct.facts(invitation(updates))["bytes_per_client"]

    def test_too_few_survivors_release_nothing(self, updates: np.ndarray) -> None:
        made = config(**self.SECTION)
        secure = source(made, channel=self.channel(made))
        lost = dict.fromkeys(range(6), Stage.INPUT)
        with pytest.raises(TooFewSurvivorsError):
            secure.mean(invitation(updates, lost))

    def test_reports_without_levels_are_refused(self) -> None:
        reports = Duchi(1.0).randomize(np.zeros((2, 1)), NoiseSeed(bytes(32)))
        with pytest.raises(TypeError, match="no levels"):
            with_levels(reports)

    @pytest.mark.parametrize("largest", [1, 127, 128, 255, 256, 10**6])
    def test_the_field_holds_the_largest_sum(self, largest: int) -> None:
        from secagg import PrimeField

        bits = bits_of_sum(largest)
        assert PrimeField(bits).largest_centred >= largest
        assert bits == 8 or PrimeField(bits - 1).largest_centred < largest


class TestEpsilonOfAReport:
    """What one report may spend follows from the whole."""

    def test_it_is_the_largest_that_fits(self) -> None:
        section = LocalDp(algorithm="piecewise")
        for reports in (1, 2, 50, 1000):
            each = epsilon_of_a_report(section, PRIVACY, reports)
            assert self.composed(each, reports) <= 40.0
            assert self.composed(each * 1.0001, reports) > 40.0
        # Far more than an equal share, by composition at a delta.
        assert epsilon_of_a_report(section, PRIVACY, 1000) > 3 * 40.0 / 1000

    @pytest.mark.parametrize("reports", [3, 7, 10, 23, 49])
    def test_equal_shares_are_never_more_than_the_whole(self, reports: int) -> None:
        """At a delta of almost nothing only the sum is left, and it is exact."""
        privacy = Privacy(epsilon=0.7, delta=1e-300, clip_l2=1.0)
        each = epsilon_of_a_report(LocalDp(algorithm="piecewise"), privacy, reports)
        assert Fraction(each) * reports <= Fraction(0.7)
        assert each * reports == pytest.approx(0.7, rel=1e-8)

    def test_a_given_one_must_fit(self) -> None:
        section = LocalDp(algorithm="piecewise", epsilon_report=20.0)
        assert epsilon_of_a_report(section, PRIVACY, 2) == 20.0
        with pytest.raises(ConfigurationError, match=r"3 reports of one client spend 60") as caught:
            epsilon_of_a_report(section, PRIVACY, 3)
        assert caught.value.key == "local_dp.epsilon_report"

    def test_a_noise_multiplier_says_nothing_here(self) -> None:
        privacy = Privacy(noise_multiplier=1.0, delta=1e-5, clip_l2=1.0)
        with pytest.raises(ConfigurationError, match=r"privacy\.epsilon"):
            epsilon_of_a_report(LocalDp(algorithm="piecewise"), privacy, 1)

    @staticmethod
    def composed(epsilon: float, reports: int) -> float:
        accountant = LocalAccountant()
        accountant.compose(LocalRelease(epsilon), reports)
        return accountant.epsilon(PRIVACY.delta)


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"algorithm": "sqsgd", "sample_share": 0.001}, "less than one"),
        ({"algorithm": "fedsel", "kept_share": 1.0}, "kept_share"),
        ({"algorithm": "cross_polytope", "repeats": 10**9}, "repeats"),
        ({"algorithm": "piecewise", "bound": np.inf}, "l2_bound"),
        ({"algorithm": "sqsgd", "sample_share": 0.5, "bound": 1e-200}, "l2_bound"),
    ],
)
def test_figures_that_do_not_fit_are_named(section: dict[str, float | str], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        build_algorithm(LocalDp(**section), PRIVACY, D, 1)


@pytest.mark.parametrize("epsilon", [np.inf, np.nan, 0.0])
def test_an_epsilon_that_is_none_is_refused(epsilon: float) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse({"algorithm": "piecewise", "epsilon_report": epsilon}, LocalDp)
    assert caught.value.key == "epsilon_report"


def test_a_key_of_another_algorithm_is_refused() -> None:
    raw = {"algorithm": "piecewise", "levels": 4}
    with pytest.raises(ConfigurationError, match="piecewise has only bound, epsilon_report"):
        parse(raw, LocalDp)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ([("engine.aggregator", "local")], "local_dp"),
        ([("local_dp", {"algorithm": "piecewise"})], "local_dp"),
        ([("powersgd", {"rank": 2}), ("engine.aggregator", "central")], "powersgd"),
        ([("denoise", {}), ("engine.aggregator", "plain")], "denoise"),
    ],
)
def test_tables_that_nobody_reads_are_refused(changes: list[Any], key: str) -> None:
    made: RunConfig = changed(demo_config(), changes)
    with pytest.raises(ConfigurationError) as caught:
        made.check()
    assert caught.value.key == key
