"""The records: what is checked before a round, what is written, and what a replay makes of it."""

from __future__ import annotations

import json
import math
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any, NoReturn

import pytest
from round_kit import IDENTITIES, make_setup

from dp import (
    BinomialRelease,
    BudgetExceededError,
    DiscreteGaussianRelease,
    DominationAccountant,
    Ledger,
    LedgerError,
    Sensitivities,
    SkellamRelease,
    UnsupportedEventError,
)
from dp.accounting import reserved_accountant
from dp.audit import composed_epsilon
from dp.events import Event
from dp.ledger import MAX_LINE_BYTES, Entry
from dp.ledger_reader import read_ledger, without_peers
from dp.mechanisms import MECHANISMS, mechanism_of
from dp.records import encode_event
from protocol.goal import PrivacyGoal
from protocol.round.setup import RoundSetup
from protocol.training.records import (
    LISTED_COHORT,
    MAX_NOTES_BYTES,
    Records,
    checked_notes,
    cohort_entry,
    goal_entry,
    listed_cohort,
    replayed_events,
)
from secagg import LocalProtocolError, ParameterError

GOAL = PrivacyGoal(8.0, 1e-5, 2)
SETUP = make_setup(coins=40_000)
EVENT = BinomialRelease(40_000, 20.0, 8, 100)
SKELLAM = SkellamRelease(10_000.0, 20.0, 8, 100)
GAUSSIANS = DiscreteGaussianRelease(2_500.0, 4, 20.0, 8, 100)


def epsilon_of(goal: PrivacyGoal, *events: Event) -> float:
    accountant = DominationAccountant(goal.reserve)
    for event in events:
        accountant.compose(event)
    return accountant.epsilon(goal.delta)


class TestNotes:
    @pytest.mark.parametrize(
        "notes",
        [
            {"x": None},
            {"x": True},
            {"x": [1]},
            {"x": b"bytes"},
            {"x": object()},
            {"x": float("nan")},
            {"x": float("inf")},
            {"x": 10**5000},
            {1: "x"},
            {"x": "y" * MAX_NOTES_BYTES},
            {"y" * MAX_NOTES_BYTES: 1},
            {"x": type("Text", (str,), {})("a subclass")},
        ],
    )
    def test_what_is_no_plain_remark_is_refused(self, notes: dict[Any, Any]) -> None:
        with pytest.raises(ParameterError, match="notes"):
            checked_notes(notes)

    def test_plain_remarks_are_kept(self, ledger: Ledger) -> None:
        notes = {"name": "\ud800 é", "number": 2**70, "share": 0.25, "survivors": -1}
        Records(ledger, GOAL).prepare(SETUP, 0, notes)(range(6))
        metadata = ledger.entries()[-1].metadata
        assert metadata["notes"] == notes
        assert metadata["survivors"] == 6


class TestCohort:
    def test_the_longest_entry_fits_into_a_ledger_line(self, ledger: Ledger) -> None:
        labels = [f"{number:016x}" for number in range(LISTED_COHORT)]
        notes = checked_notes({"x": "y" * (MAX_NOTES_BYTES - 20)})
        metadata = {
            "notes": notes,
            "cohort": cohort_entry(labels),
            "goal": goal_entry(GOAL),
            "round": 2**62,
            "attempt": 2**62,
            "survivors": 2**20,
        }
        entry = ledger.append(EVENT, metadata)
        assert listed_cohort(entry.metadata) == labels
        assert ledger.path.stat().st_size < MAX_LINE_BYTES

    def test_a_larger_one_is_a_hash_and_charged_to_everybody(self) -> None:
        labels = [f"{number:016x}" for number in range(LISTED_COHORT + 1)]
        entry = cohort_entry(labels)
        assert entry["clients"] == LISTED_COHORT + 1
        assert entry != cohort_entry([*labels[1:], "f" * 16])
        assert len(json.dumps(entry)) < 200
        assert listed_cohort({"cohort": entry}) is None

    @pytest.mark.parametrize(
        "cohort",
        [
            None,
            [],
            "0123456789abcdef",
            ["0123456789abcdef", 7],
            ["0123456789abcdeF"],
            ["0123456789abcde"],
            ["0123456789abcdef\n"],
            {"0123456789abcdef": 1},
            [["0123456789abcdef"]],
        ],
    )
    def test_what_is_no_list_of_labels_is_charged_to_everybody(
        self, ledger: Ledger, cohort: list[list[str] | int | str] | dict[str, int] | str | None
    ) -> None:
        ledger.append(EVENT, {"goal": goal_entry(GOAL), "cohort": cohort})
        records = Records(ledger, GOAL)
        assert records.epsilons(1).server == epsilon_of(GOAL, EVENT)
        records.prepare(SETUP, 1, None)(range(6))
        # The clients of the new round had paid for the first one too.
        spent = records.epsilons(1).server
        assert spent == epsilon_of(GOAL, EVENT, SETUP.events(6).server)

    def test_an_entry_without_one_is_charged_to_everybody(self, ledger: Ledger) -> None:
        ledger.append(EVENT, {"goal": goal_entry(GOAL)})
        assert Records(ledger, GOAL).epsilons(1).server > 0


class TestGoal:
    @pytest.mark.parametrize(
        "other",
        [
            PrivacyGoal(8.1, 1e-5, 2),
            PrivacyGoal(8.0, 2e-5, 2),
            PrivacyGoal(8.0, 1e-5, 3),
            PrivacyGoal(8.0, 1e-5, 2, 3.0),
        ],
    )
    def test_a_ledger_is_continued_with_its_own_goal_only(
        self, ledger: Ledger, other: PrivacyGoal
    ) -> None:
        Records(ledger, GOAL).prepare(SETUP, 0, None)(range(6))
        Records(ledger, GOAL)
        with pytest.raises(ParameterError, match="goal"):
            Records(ledger, other)

    def test_a_ledger_without_a_goal_is_not_continued(self, ledger: Ledger) -> None:
        ledger.append(EVENT, {"cohort": ["0123456789abcdef"]})
        with pytest.raises(ParameterError, match="goal"):
            Records(ledger, GOAL)

    def test_an_entry_says_what_is_set_aside(self, ledger: Ledger) -> None:
        Records(ledger, GOAL).prepare(SETUP, 0, None)(range(6))
        goal = ledger.entries()[-1].metadata["goal"]
        assert goal == {
            "epsilon": 8.0,
            "delta": 1e-5,
            "rounds": 2,
            "delta0": 1e-5 / 32 / 2,
            "aggregation": 1e-5 * 0.01 / 2,
        }


class TestCharge:
    def test_everybody_invited_is_on_record(self, ledger: Ledger) -> None:
        Records(ledger, GOAL).prepare(SETUP, 0, None)(range(4))
        cohort = ledger.entries()[-1].metadata["cohort"]
        assert cohort == [identity.public[:8].hex() for identity in IDENTITIES]

    def test_a_round_is_charged_once(self, ledger: Ledger) -> None:
        records = Records(ledger, GOAL)
        charge = records.prepare(SETUP, 0, None)
        charge(range(6))
        spent = records.epsilons(1)
        with pytest.raises(LocalProtocolError, match="already"):
            charge(range(6))
        assert records.epsilons(1) == spent
        assert len(ledger.entries()) == 1

    @pytest.mark.parametrize("runs", [1, 2])
    def test_nothing_is_charged_on_a_ledger_that_grew_since_the_budget_was_checked(
        self, ledger: Ledger, runs: int
    ) -> None:
        """Two rounds that overlap, of one run or of two, were each looked at before the other."""
        books = [Records(ledger, GOAL) for _ in range(runs)]
        first, second = books[0].prepare(SETUP, 0, None), books[-1].prepare(SETUP, 1, None)
        first(range(6))
        with pytest.raises(LedgerError, match="another run"):
            second(range(6))
        assert len(ledger.entries()) == 1
        assert books[0].epsilons(1) == Records(ledger, GOAL).epsilons(1)
        books[-1].prepare(SETUP, 1, None)(range(6))
        assert books[-1].epsilons(1) == books[0].epsilons(1) == Records(ledger, GOAL).epsilons(1)

    def test_books_are_read_while_a_charge_is_being_written(
        self, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A reader waits: it finds the charge in ledger and accounts, or in neither."""
        records = Records(ledger, GOAL)
        charge, before = records.prepare(SETUP, 0, None), records.epsilons(1)
        append, reading = Ledger.append, []

        def append_and_look(self: Ledger, *arguments: Any) -> Entry:
            entry = append(self, *arguments)
            reading.append(pool.submit(records.epsilons, 1))
            with suppress(TimeoutError):
                # Without a lock it would be done now, and the charge be counted twice.
                reading[0].result(0.3)
            return entry

        monkeypatch.setattr(Ledger, "append", append_and_look)
        with ThreadPoolExecutor(1) as pool:
            charge(range(6))
        replayed = Records(ledger, GOAL).epsilons(1)
        assert reading[0].result() == records.epsilons(1) == replayed != before

    def test_an_interrupted_charge_counts_no_less_than_it_wrote(
        self, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        records = Records(ledger, GOAL)
        charge = records.prepare(SETUP, 0, None)

        def interrupted(*arguments: Any) -> NoReturn:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(records._accounts, "record", interrupted)
            with pytest.raises(KeyboardInterrupt):
                charge(range(6))
        assert records.epsilons(1) == Records(ledger, GOAL).epsilons(1)

    @pytest.mark.parametrize("removable", [False, True])
    @pytest.mark.parametrize("name", MECHANISMS)
    def test_a_replay_knows_what_every_adversary_met(
        self, ledger: Ledger, removable: bool, name: str
    ) -> None:
        """The running records, those of who goes on with the ledger, and the second reader."""
        records = Records(ledger, GOAL)
        amount = 40_000 if name == "binomial" else 10_000.0
        setup = make_setup(mechanism=mechanism_of(name, amount), removable=removable)
        if not removable:
            honest = {"tolerated_colluders": 1, "minimum_survivors": 5, "threshold": 5}
            setup = RoundSetup(replace(setup.context, **honest), setup.parameters)
        records.prepare(setup, 0, None)(range(5))
        known = records.epsilons(1)
        assert (known.outsider < known.server) is not removable
        assert known.server < known.sybil < math.inf
        assert Records(ledger, GOAL).epsilons(1) == known
        (entry,) = read_ledger(ledger.path)
        aside = GOAL.delta, GOAL.reserve.delta0, GOAL.rounds, GOAL.reserve.aggregation
        assert composed_epsilon([entry.event], *aside) == pytest.approx(known.server, rel=1e-5)
        alone = composed_epsilon(without_peers(entry), *aside)
        assert alone == pytest.approx(known.sybil, rel=1e-5)

    @pytest.mark.parametrize("name", MECHANISMS)
    def test_an_entry_says_whose_noise_is_how_much(self, ledger: Ledger, name: str) -> None:
        """Of coins in coins, as ever; of other noise the parameter of its law."""
        amount, unit = (40_000, "coins") if name == "binomial" else (10_000.0, "variance")
        setup = make_setup(mechanism=mechanism_of(name, amount))
        Records(ledger, GOAL).prepare(setup, 0, None)(range(5))
        (entry,) = ledger.entries()
        said = {key for key in entry.metadata if key.endswith(("_each", "_own"))}
        assert said == {f"{unit}_each", f"{unit}_own"}
        assert entry.metadata[f"{unit}_each"] == entry.metadata[f"{unit}_own"] == amount
        assert type(entry.metadata[f"{unit}_own"]) is type(amount)
        bounds = Sensitivities(setup.parameters.l2_bound, setup.parameters.linf_bound)
        assert entry.event == mechanism_of(name, amount).event(bounds, 5, 200)

    def test_made_up_peers_open_every_batch_but_one(self, ledger: Ledger) -> None:
        """What is charged for them is the batch that was never shared, however many stay."""
        setup = make_setup(coins=40_000, removable=True)
        records = Records(ledger, GOAL)
        records.prepare(setup, 0, None)(range(5))
        own = setup.schedule.batches[0]
        assert own < setup.noise_left(5).coins
        assert ledger.entries()[-1].metadata["coins_own"] == own
        assert records.epsilons(1).server < records.epsilons(1).guaranteed == GOAL.epsilon
        alone = replace(setup.events(5).server, coins=own)
        assert records.epsilons(1).sybil == epsilon_of(GOAL, alone)

    @pytest.mark.parametrize("own", [None, 0, -3, "7", 1.0, True])
    def test_an_entry_that_does_not_say_counts_as_no_noise_of_ones_own(
        self, ledger: Ledger, own: float | str | None
    ) -> None:
        """As all entries of earlier versions: their coins of each may have had shared seeds."""
        said = {"survivors": 6, "coins_each": 7, "coins_own": own}
        ledger.append(EVENT, {"goal": goal_entry(GOAL), **said})
        epsilons = Records(ledger, GOAL).epsilons(1)
        assert epsilons.sybil == math.inf
        assert epsilons.outsider == epsilons.server < math.inf

    def test_an_entry_cannot_claim_more_noise_of_ones_own_than_there_was(
        self, ledger: Ledger
    ) -> None:
        said = {"survivors": 1, "coins_each": 10**9, "coins_own": 10**9}
        ledger.append(EVENT, {"goal": goal_entry(GOAL), **said})
        epsilons = Records(ledger, GOAL).epsilons(1)
        assert epsilons.sybil == epsilons.outsider == epsilons.server

    @pytest.mark.parametrize("event", [SKELLAM, GAUSSIANS])
    @pytest.mark.parametrize("own", [None, 0.0, -3.0, "7", 7, True])
    def test_other_noise_that_an_entry_does_not_speak_of_is_none(
        self, ledger: Ledger, event: SkellamRelease | DiscreteGaussianRelease, own: object
    ) -> None:
        """Nor does it have coins: what an entry says in another unit is not about it."""
        said = {"survivors": 6, "variance_own": own, "coins_each": 7, "coins_own": 7}
        ledger.append(event, {"goal": goal_entry(GOAL), **said})
        epsilons = Records(ledger, GOAL).epsilons(1)
        assert epsilons.sybil == math.inf
        assert epsilons.outsider == epsilons.server < math.inf

    @pytest.mark.parametrize("event", [SKELLAM, GAUSSIANS])
    def test_figures_beyond_all_bounds_count_as_none(
        self, event: SkellamRelease | DiscreteGaussianRelease
    ) -> None:
        said = {"survivors": 10**400, "variance_each": 2_500.0, "variance_own": 2_500.0}
        assert replayed_events(Entry(1, event, said)).outsider == event

    @pytest.mark.parametrize("event", [SKELLAM, GAUSSIANS])
    def test_nor_can_an_entry_claim_more_of_it_than_there_was(
        self, ledger: Ledger, event: SkellamRelease | DiscreteGaussianRelease
    ) -> None:
        said = {"survivors": 1, "variance_each": 1e300, "variance_own": 1e300}
        ledger.append(event, {"goal": goal_entry(GOAL), **said})
        epsilons = Records(ledger, GOAL).epsilons(1)
        assert epsilons.outsider == epsilons.server <= epsilons.sybil
        (entry,), (read,) = ledger.entries(), read_ledger(ledger.path)
        assert without_peers(read) == [encode_event(replayed_events(entry).sybil)]
        assert epsilons.sybil == epsilon_of(GOAL, replayed_events(entry).sybil)

    def test_the_sum_must_be_the_one_paid_for(self, ledger: Ledger) -> None:
        charge = Records(ledger, GOAL).prepare(SETUP, 0, None)
        with pytest.raises(LocalProtocolError, match="announced none"):
            charge.settle(range(6))
        charge(range(5))
        for others in (range(6), range(1, 6)):
            with pytest.raises(LocalProtocolError, match="announced another, of 5"):
                charge.settle(others)
        charge.settle(range(5))

    def test_fewer_survivors_than_agreed_are_not_paid_for(self, ledger: Ledger) -> None:
        charge = Records(ledger, GOAL).prepare(SETUP, 0, None)
        with pytest.raises(LocalProtocolError, match="over 3 clients"):
            charge(range(3))
        assert ledger.entries() == ()

    def test_a_budget_for_full_survivors_is_not_enough(self, ledger: Ledger) -> None:
        """The budget is checked with the fewest survivors the round may end with."""
        one = PrivacyGoal(8.0, 1e-5, 1)
        full, fewest = (epsilon_of(one, SETUP.events(survivors).server) for survivors in (6, 4))
        tight = PrivacyGoal((full + fewest) / 2, 1e-5, 1)
        with pytest.raises(BudgetExceededError):
            Records(ledger, tight).prepare(SETUP, 0, None)
        Records(ledger, PrivacyGoal(fewest * 1.0001, 1e-5, 1)).prepare(SETUP, 0, None)

    def test_rounds_without_noise_have_no_budget(self, ledger: Ledger) -> None:
        with pytest.raises(BudgetExceededError):
            Records(ledger, GOAL).prepare(make_setup(coins=0), 0, None)

    def test_more_survivors_than_tables_reach_are_refused_beforehand(self, ledger: Ledger) -> None:
        # Noise that cannot be taken off: four survivors cost 0.75, of five there is no table.
        goal = PrivacyGoal(8.0, 1e-5, 4, moment_order=12.0)
        setup = make_setup(mechanism=mechanism_of("skellam", 4.4e6), wrap_probability=1e-9)
        fewest = setup.events(setup.context.minimum_survivors).server
        accountant = reserved_accountant(goal.reserve)
        accountant.compose(fewest)
        assert accountant.epsilon(goal.delta) < 1.0
        with pytest.raises(BudgetExceededError):
            Records(ledger, goal).prepare(setup, 0, None)
        assert not ledger.entries()

    def test_noise_beyond_every_table_is_refused_beforehand(
        self, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The fewest survivors fit, all of them with an outsider's view do not."""
        monkeypatch.setattr("dp.accounting.base.MAX_VARIANCE", 5 * 10_000)
        setup = make_setup(mechanism=mechanism_of("skellam", 1e4))
        with pytest.raises(UnsupportedEventError):
            Records(ledger, GOAL).prepare(setup, 0, None)
