"""Hidden cohorts: bounds of their sizes, noise that is the same for all, and a client's coins."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from math import comb, sqrt
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray
from one_shot_worlds import DIGEST, World, plan_of

from dp import Ledger, LedgerError, NoiseSeed
from protocol import ClientHistory
from protocol.allocation import SHARE, Allocation, Hiding, most_coins
from protocol.errors import PolicyError
from protocol.exchange.aggregators import IdealAggregator
from protocol.goal import PrivacyGoal
from protocol.noise.noise import Independent
from protocol.planning.training_plan import TrainingPlan
from protocol.round.losses import Stage
from protocol.round.pipeline import Pipeline
from protocol.round.turns import StoredTurns
from protocol.schemes import OneShot, Pairwise, Validated
from protocol.schemes.committee import Drawn, Named
from protocol.schemes.scheme import Announced
from protocol.training.private import PrivateTraining, hiding_plan
from secagg import Identity, ParameterError, TooFewSurvivorsError, lift
from secagg.oneshot.committee import CommitteeKind
from secagg.storage import write_durably
from sketch import Rotation
from sketch.controllers import Decision, FixedRate, ReleasedStats
from sketch.controllers.base import ControllerState

DELTA, BLOCK, ROUNDS, D = 1e-5, 2, 4, 2_000
WORLD = Allocation.within(DELTA, 440, BLOCK, ROUNDS, 0.0, 5)
PEOPLE = [Identity.from_private_bytes(i.to_bytes(32, "big")).public for i in range(440)]


def plan(**changes: object) -> TrainingPlan:
    whole = TrainingPlan(
        goal=PrivacyGoal(8.0, DELTA, ROUNDS // BLOCK),
        cohort=220,
        tolerated_dropouts=5,
        tolerated_colluders=2,
        clip_l2=1.0,
        error_share=0.5,
        scheme=Pairwise(degree=0),
    )
    return replace(whole, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("n", "t", "rounds", "delta", "away"),
    [(192, 3, 12, 1e-5, 0), (640, 2, 4, 1e-5, 0), (640, 2, 4, 1e-5, 400), (1000, 10, 100, 1e-9, 9)],
)
def test_a_round_is_called_off_too_seldom_to_matter(
    n: int, t: int, rounds: int, delta: float, away: int
) -> None:
    found = Allocation.within(delta, n, t, rounds, 0.0, 0, away)
    assert found.present == n - away

    def exact(low: int, high: int) -> Fraction:
        """That of the others too few come in some round, with most of them away, or too many."""
        few, many = (
            [Fraction(comb(m, k) * (t - 1) ** (m - k), t**m) for k in range(m + 1)]
            for m in (n - 1 - away, n - 1)
        )
        return rounds * (sum(few[:low], Fraction(0)) + sum(many[high:], Fraction(0)))

    # One client more or less decides at low - 1 and at high.
    truth = exact(found.fewest, found.most)
    assert truth <= found.failure <= SHARE * delta
    assert found.failure == pytest.approx(float(truth), rel=1e-6)
    for low, high in ((found.fewest + 1, found.most), (found.fewest, found.most - 1)):
        assert exact(low, high) > SHARE * delta / 3


def test_losses_are_counted_and_figures_checked() -> None:
    lossy = Allocation.within(DELTA, 440, 2, 4, 0.01, 20)
    assert WORLD.failure < lossy.failure <= SHARE * DELTA
    with pytest.raises(ParameterError, match=r"tolerated_dropouts.*at least 17"):
        Allocation.within(DELTA, 440, 2, 4, 0.01, 5)
    for wrong in ({"population": 441}, {"block": 1}, {"rounds": 0}, {"most": 0}, {"away": 440}):
        with pytest.raises(ParameterError, match=next(iter(wrong))):
            replace(WORLD, **wrong)


# The second computation of the same figures, by sampling, is in tests/dp/test_allocation.py.
@pytest.mark.parametrize(
    ("integers", "done", "epsilon"),
    [
        (False, 12, 2.892),
        (True, 12, 2.9015),
        (False, 0, 0.0),
        (False, 10, 2.892),
        (False, 1, 1.3989),
    ],
)
def test_what_all_models_tell(integers: bool, done: int, epsilon: float) -> None:
    goal = PrivacyGoal(5.0, DELTA, 4)
    demo = Allocation(population=192, block=3, rounds=12)
    assert demo.epsilon(goal, done, integers=integers) == pytest.approx(epsilon, abs=2e-3)


def test_nothing_better_than_the_goal_is_said_without_a_theorem() -> None:
    goal = PrivacyGoal(5.0, DELTA, 2)
    long = Allocation(population=400, block=40, rounds=80)
    assert long.epsilon(goal, 80, integers=True) == 5.0  # every round may fail
    assert long.epsilon(replace(goal, moment_order=10.0), 1, integers=True) == 5.0
    often = Allocation(population=4, block=2, rounds=4, fewest=2)
    assert often.epsilon(goal, 4, integers=False) == 5.0  # called off too often


@pytest.mark.parametrize(
    ("changes", "argument"),
    [
        ({"noise": Independent(mechanism="skellam")}, "mechanism"),
        ({"noise": Independent(exact=False)}, "mechanism"),
        ({"scheme": Validated(committee=Named(size=20, corrupt=2, away=2))}, "scheme"),
        ({"scheme": Pairwise()}, "degree"),
        ({"scheme": OneShot(committee=Drawn(size=20, corrupt=2, away=2, odds=0.1))}, "committee"),
    ],
)
def test_noise_and_schemes_that_would_follow_a_cohort(
    changes: dict[str, object], argument: str
) -> None:
    with pytest.raises(ParameterError) as caught:
        hiding_plan(plan(**changes), WORLD)
    assert caught.value.argument == argument


class Spy(FixedRate):
    """Keeps what a controller sees."""

    seen: ClassVar[list[ReleasedStats]] = []

    def step(self, state: ControllerState, released: ReleasedStats) -> Decision:
        self.seen.append(released)
        return FixedRate.step(self, state, released)


def training(ledger: Ledger, chosen: TrainingPlan, world: Allocation = WORLD) -> PrivateTraining:
    Spy.seen.clear()
    return PrivateTraining(chosen, D, Spy(1.0), IdealAggregator(), ledger, allocation=world)


@pytest.mark.statistical
def test_nothing_but_the_sum_follows_a_cohort(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("secrets.token_bytes", np.random.default_rng(7).bytes)
    chosen = hiding_plan(plan(goal=PrivacyGoal(8.0, DELTA, ROUNDS)), WORLD)
    deviation = sqrt(2.0 / D)
    kept = []
    with Ledger.open(tmp_path / "ledger") as ledger:
        run = training(ledger, chosen)
        for size, lost in ((WORLD.fewest, 5), (WORLD.most, 0), (220, 3)):
            late = dict.fromkeys(range(lost), Stage.INPUT)
            done = run.run_round(PEOPLE[:size], bytes(32), lambda _: np.zeros(D), late)
            survivors = size - lost
            each = done.setup.parameters.mechanism.amount
            coins = most_coins(int(each), chosen.minimum_survivors, chosen.cohort, 2)
            kept.append(survivors * done.setup.noise_left(survivors).amount / coins)
            # What zeros became, in integer units; the rotation leaves a variance as it is.
            units = done.release.mean_sketch * (WORLD.divisor * done.setup.parameters.scale)
            variance = np.var(units) / (coins / 4.0)
            assert abs(variance - 1.0) < 4.9 * deviation
            assert done.epsilons.hidden_cohorts is not None
            assert done.epsilons.hidden_cohorts < done.epsilons.outsider
            assert done.epsilons.guaranteed == 8.0
    # Without the server's coins each would be rejected: the noise differs by more than that.
    assert max(kept) <= 1.0
    assert max(kept) - min(kept) > 0.0
    assert len({(each.survivors, each.noise_variance) for each in Spy.seen}) == 1
    assert Spy.seen[0].survivors == WORLD.divisor


def test_a_hidden_sum_is_whole_coins_around_their_mean(tmp_path: Path) -> None:
    chosen = hiding_plan(plan(), WORLD)
    with Ledger.open(tmp_path / "ledger") as ledger:
        run = training(ledger, chosen)
        setup = run.next_setup(PEOPLE[:221], bytes(32))
        total = IdealAggregator().run(setup, lambda _: np.zeros(D), {}).total
    own = 221 * int(setup.noise_left(221).amount)
    released = []
    for more in (0, 1, 40_000):
        hiding = Hiding(WORLD.divisor, own + more, NoiseSeed(bytes(32)))
        mean = Pipeline(setup).decode(total, hiding=hiding).mean_sketch
        units = Rotation(D, setup.parameters.public_seed).forward(mean)
        released.append(units * (WORLD.divisor * setup.parameters.scale))
        counted = released[-1] + (own + more) / 2.0
        assert np.allclose(counted, np.rint(counted), atol=1e-6)
    # A sum at the end of the field: what is added carries it around, not out of it.
    half = setup.context.field.largest_centred
    full = replace(total, vector=lift(np.full(D, half), setup.context.field))
    surplus = np.zeros(D, np.int64)
    mean = Pipeline(setup).decode(full, surplus, hiding=hiding).mean_sketch
    units = Rotation(D, setup.parameters.public_seed).forward(mean)
    assert np.max(np.abs(units)) * WORLD.divisor * setup.parameters.scale < half + 1
    added = released[2] - released[0]
    assert abs(np.mean(added)) < 4.9 * sqrt(10_000 / D)
    assert abs(np.var(added) / 10_000 - 1.0) < 4.9 * sqrt(2.0 / D)


def test_who_may_hide_a_cohort(tmp_path: Path) -> None:
    chosen = hiding_plan(plan(), WORLD)
    with Ledger.open(tmp_path / "ledger") as ledger:
        with pytest.raises(ParameterError, match="hiding_plan made"):
            training(ledger, plan())
        for count in (WORLD.fewest - 1, WORLD.most + 1):
            run = training(ledger, chosen)
            with pytest.raises(ParameterError, match="called off"):
                run.next_setup(PEOPLE[:count], bytes(32))
            # Its number is used up, so that who came to it comes to no other.
            assert run.state.attempts == 1
            with pytest.raises(ParameterError, match="1 announced, 0 finished"):
                run.next_setup(PEOPLE[:220], bytes(32))
        run = training(ledger, chosen)
        # Sizes of fields would show in the largest values.
        setups = [run.next_setup(PEOPLE[:n], bytes(32)) for n in (WORLD.fewest, WORLD.most)]
        assert len({(s.context.bits, s.parameters.scale) for s in setups}) == 1
        run.run_round(PEOPLE[:220], bytes(32), lambda _: np.zeros(D))
        with pytest.raises(ParameterError, match="another run"):
            training(ledger, chosen)  # one more session


def test_a_one_shot_field_is_no_smaller_than_that_of_the_largest_cohort() -> None:
    world = World(plan_of(CommitteeKind.NAMED))
    setup = world.setup()
    session, bits = setup.context.session_id, setup.context.bits
    members = world.committee.members(session, world.keys, 0)
    for asked in (0, bits, bits + 3):
        announced = Announced(
            cohort=world.keys, session_id=session, round_number=0, members=members, bits=asked
        )
        found = world.plan.scheme.setup(world.plan, setup.parameters, announced)
        assert found.context.bits == max(asked, bits)


def test_rounds_are_those_of_the_plan_and_all_of_them_finished(tmp_path: Path) -> None:
    few, seeds = replace(WORLD, rounds=2), list[bytes]()
    chosen, added = hiding_plan(plan(), few), Hiding.added

    def spied(self: Hiding, coins: int, length: int) -> NDArray[np.int64]:
        seeds.append(self.seed.material)
        return added(self, coins, length)

    with pytest.MonkeyPatch.context() as patch, Ledger.open(tmp_path / "whole") as ledger:
        patch.setattr(Hiding, "added", spied)
        run = training(ledger, chosen, few)
        for _ in range(2):
            run.run_round(PEOPLE[:220], bytes(32), lambda _: np.zeros(D))
        with pytest.raises(ParameterError, match="2 finished"):
            run.next_setup(PEOPLE[:220], bytes(32))
    assert len(set(seeds)) == 2
    with Ledger.open(tmp_path / "failed") as ledger:
        run = training(ledger, chosen, few)
        gone = dict.fromkeys(range(120), Stage.INPUT)
        with pytest.raises(TooFewSurvivorsError):
            run.run_round(PEOPLE[:220], bytes(32), lambda _: np.zeros(D), gone)
        # The next announced number is another block's, of which epsilon would not know.
        with pytest.raises(ParameterError, match="1 announced, 0 finished"):
            run.next_setup(PEOPLE[:220], bytes(32))


def test_a_coin_is_drawn_once_and_kept(tmp_path: Path) -> None:
    def turn(folder: str, block: int, session: bytes = b"s" * 16) -> list[int]:
        # A new object for each question: the host was restarted.
        rounds = range(block * 5, block * 5 + 5)
        return [r % 5 for r in rounds if StoredTurns(tmp_path / folder, 5).comes(session, r)]

    first = [turn("a", block) for block in range(40)]
    assert all(len(each) == 1 for each in first)
    assert [turn("a", block) for block in range(40)] == first
    assert len(set(map(tuple, first))) > 1
    # Other clients and sessions have others: equal with probability 5^-40.
    assert [turn("b", block) for block in range(40)] != first
    assert [turn("a", block, b"t" * 16) for block in range(40)] != first
    drawn = Counter(turn("c", block)[0] for block in range(1000))
    # A binomial law: so far off, for any of the five, with probability 5e-7.
    assert all(abs(drawn[each] - 200) < 5.4 * sqrt(1000 * 0.16) for each in range(5))
    longer = StoredTurns(tmp_path / "a", 10)
    comes = [longer.comes(b"s" * 16, number) for number in range(200)]
    assert all(sum(comes[block * 10 : block * 10 + 10]) == 1 for block in range(20))
    (path,) = (tmp_path / "a").iterdir()
    for data in (b"", path.read_bytes()[:-1]):
        path.write_bytes(data)
        with pytest.raises(LedgerError, match="bytes, and not 32"):
            turn("a", 0)
    shutil.rmtree(tmp_path / "a")
    shutil.copytree(tmp_path / "b", tmp_path / "a")
    assert [turn("a", block) for block in range(40)] == [turn("b", block) for block in range(40)]


def test_the_first_of_two_secrets_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second thread of the same host draws its secret while the first has its file open."""
    first, second = (StoredTurns(tmp_path, 1 << 32) for _ in range(2))
    said, kept = list[bool](), list[bytes]()

    def slow(file: int, text: bytes) -> None:
        monkeypatch.undo()
        said.append(second.comes(b"s" * 16, 0))
        kept.append((tmp_path / "secret").read_bytes())
        write_durably(file, text)

    monkeypatch.setattr("protocol.round.turns.write_durably", slow)
    assert [first.comes(b"s" * 16, 0)] == said
    assert [path.read_bytes() for path in tmp_path.iterdir()] == kept


def test_a_coin_that_cannot_be_kept_is_not_told_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise OSError("a disk without hard links")

    monkeypatch.setattr("os.link", fails)
    with pytest.raises(OSError, match="hard links"):
        StoredTurns(tmp_path, 7).comes(bytes(16), 0)
    assert not list(tmp_path.iterdir())


def test_a_client_declines_at_once_where_it_is_not_its_turn(tmp_path: Path) -> None:
    world = World(plan_of(CommitteeKind.NAMED))
    history = ClientHistory(world.client_policy.goal)
    joined = []
    for number in range(6):
        client = world.client(history=history, turns=StoredTurns(tmp_path, 3))
        announcement = world.setup(number).announce(0)
        try:
            client.join(announcement, DIGEST)
            joined.append(number)
        except PolicyError as error:
            assert error.parameter == "turn"
            # Neither marked nor charged: the round could still be joined.
            assert history.epsilon == 0.0
            world.client(history=history).join(announcement, DIGEST)
    assert [number // 3 for number in joined] == [0, 1]
