"""`veilsum account`: figures, targets, ledgers, and one clear line for every mistake."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Refused, invoke, run_json
from scipy import optimize, special
from typer.testing import CliRunner

from dp import (
    Adjacency,
    BinomialRelease,
    Composition,
    DominationAccountant,
    Event,
    FailingGaussian,
    FailureReserve,
    Ledger,
    LocalRelease,
    MomentsAccountant,
    NonPrivateRelease,
    PoissonSampled,
    UnsupportedEventError,
    epsilons,
    replace_one,
)
from dp.accounting.losses import LossDistribution
from simulations.commands import cli


def account(*arguments: object) -> dict[str, Any]:
    figures: dict[str, Any] = run_json("account", *arguments)
    return figures


def of_ledger(ledger: Path, *arguments: object) -> dict[str, Any]:
    result = invoke("audit-ledger", ledger, *arguments, "--json")
    figures: dict[str, Any] = json.loads(result.stdout)
    assert result.exit_code == (figures.get("guaranteed") == "inf")
    return figures


def printed(*arguments: object) -> str:
    """What people get of a command, on one line."""
    result = CliRunner().invoke(cli.app, [*map(str, arguments)], env={"COLUMNS": "240"})
    assert result.exit_code == 0, result.output
    return " ".join(result.stdout.replace("│", " ").split())


@pytest.fixture
def fails(refused: Refused) -> Refused:
    """Standard error of a refused command, on one line."""
    return lambda *given: " ".join(refused(*given).replace("│", " ").split())


def ledger_of(location: Path, *entries: tuple[Any, ...]) -> Path:
    """A ledger with these entries, events with metadata or without, behind those it may have."""
    with Ledger.open(location) as ledger:
        for entry in entries:
            ledger.append(*entry)
    return location


def test_binomial_by_every_accountant() -> None:
    figures = account(
        *"--mechanism binomial --coins 1024 --l2 16 --linf 16 --dim 1000000".split(),
        *"--delta 1e-5 --rounds 1".split(),
    )
    assert figures["winner"] == "domination"
    assert figures["epsilon"] == pytest.approx(4.403, abs=6e-4)
    assert set(figures["by_accountant"]) == {
        "theorem1",
        "domination",
        "moments",
        "gaussian_reference",
    }
    assert figures["by_accountant"]["theorem1"] == "inf"
    assert figures["by_accountant"]["gaussian_reference"] == pytest.approx(4.377, abs=6e-4)
    assert "635.5" in figures["reasons"]["theorem1"]


def test_small_cases_are_enumerated() -> None:
    figures = account(*"--coins 256 --l2 4 --linf 4 --rounds 3".split())
    assert figures["winner"] == "exact"
    assert figures["by_accountant"]["exact"] < figures["by_accountant"]["domination"]


def test_skellam_and_discrete_gaussian() -> None:
    skellam = account(*"--mechanism skellam --variance 256".split())
    assert skellam["by_accountant"]["published"] > skellam["epsilon"]
    discrete = account(*"--mechanism discrete_gaussian --variance 2.56 --clients 100".split())
    assert discrete["epsilon"] == pytest.approx(4.378, abs=6e-4)
    assert "one client" in discrete["variance_is"]


def test_targets_are_met() -> None:
    assert account("--target-epsilon", "1")["coins"] == 14262
    for extra in (["skellam"], ["discrete_gaussian", "--clients", "50"]):
        solved = account("--mechanism", *extra, "--target-epsilon", "2", "--rounds", "4")
        assert solved["epsilon"] <= 2.0
        less = [str(solved["variance"] * 0.999), "--rounds", "4"]
        assert account("--mechanism", *extra, "--variance", *less)["epsilon"] > 2.0


def test_people_get_a_table() -> None:
    shown = printed("account", "--coins", 1024)
    for words in ("domination", "infinite", "a yardstick", "zero-out", "knows the cohort"):
        assert words in shown


def test_help_says_whose_variance_is_meant() -> None:
    assert "ONE client's noise" in printed("account", "--help")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--coins 1025", "coins: value 1025 is odd"),
        ("--coins -4", "is negative"),
        ("--coins 12.5", "--coins"),
        ("--coins 64 --delta 0", "delta: value 0.0"),
        ("--coins 64 --delta 1", "strictly between 0 and 1"),
        ("--coins 64 --delta nan", "strictly between 0 and 1"),
        ("--mechanism laplace --coins 2", "mechanism: value 'laplace'"),
        ("", "coins: not given"),
        ("--coins 64 --target-epsilon 1", "coins: given as well"),
        ("--coins 64 --variance 1", "variance: given"),
        ("--mechanism skellam --coins 64", "coins: given"),
        ("--mechanism skellam --variance nan", "variance: value nan"),
        ("--mechanism skellam --variance -1", "variance: value -1"),
        ("--mechanism discrete_gaussian --variance 1", "clients: value None"),
        ("--coins 64 --clients 3", "clients: given"),
        ("--coins 64 --l2 -1", "l2_sensitivity must be finite"),
        ("--coins 64 --l2 inf", "l2_sensitivity must be finite"),
        ("--coins 64 --linf 0", "linf_sensitivity must be at least 1"),
        ("--coins 64 --dim 0", "dimension must be at least 1"),
        ("--coins 64 --rounds 0", "rounds: value 0"),
        ("--target-epsilon 0", "epsilon must be positive"),
        ("--target-epsilon 0.001 --l2 5000 --linf 9", "raise epsilon or delta"),
    ],
)
def test_every_mistake_is_one_clear_error(fails: Refused, arguments: str, words: str) -> None:
    assert words in fails("account", *arguments.split())


@pytest.mark.parametrize(
    "arguments", ["--mechanism skellam --variance 1e300", "--coins 64 --l2 1e300"]
)
def test_figures_beyond_all_tables_are_infinite(arguments: str) -> None:
    assert account(*arguments.split())["epsilon"] == "inf"


GOAL = {"epsilon": 8.0, "delta": 1e-5, "rounds": 5, "delta0": 6.25e-8}
RINGS = {**GOAL, "aggregation": 1e-8}
RESERVE = FailureReserve(GOAL["delta0"], GOAL["rounds"])
FIRST, SECOND = BinomialRelease(4000, 16.0, 16, 9), BinomialRelease(9000, 16.0, 16, 9)
ANNA, BERTA, CARLA = "a" * 16, "b" * 16, "c" * 16
ROUNDS = [
    (event, {"cohort": cohort, "goal": GOAL})
    for event, cohort in ((FIRST, [ANNA, BERTA]), (SECOND, [BERTA, CARLA]), (FIRST, [BERTA, ANNA]))
]
WEAK = BinomialRelease(10**6, 1.0, 1, 9)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return ledger_of(tmp_path / "ledger.jsonl", *ROUNDS)


def composed(
    events: Sequence[Event], reserve: FailureReserve | None = None
) -> DominationAccountant:
    accountant = DominationAccountant(reserve)
    for event in events:
        accountant.compose(event)
    return accountant


def running(events: Sequence[Event], reserve: FailureReserve | None = None) -> float:
    return composed(events, reserve).epsilon(1e-5)


REPLACED = ("--adjacency", "replace-one")
NOBODY = {"clients": 9, "sha256": "00"}
BERTAS = [FIRST, SECOND, FIRST]


@pytest.mark.parametrize(
    ("entries", "arguments", "events", "reserve"),
    [
        (ROUNDS, (), BERTAS, RESERVE),
        # An entry without a cohort is charged to everybody.
        ([*ROUNDS, (SECOND, {"goal": GOAL, "cohort": NOBODY})], (), [*BERTAS, SECOND], RESERVE),
        # What is set aside for secure aggregation is spent.
        ([(FIRST, {"goal": RINGS})], (), [FIRST], FailureReserve(6.25e-8, 5, 1e-8)),
        ([(FIRST,), (SECOND,)], ("--delta", 1e-5), [FIRST, SECOND], None),
        (ROUNDS, REPLACED, [replace_one(event) for event in BERTAS], RESERVE),
        # Compositions are replaced part by part.
        (
            [(Composition((FIRST, SECOND)),)],
            ("--delta", 1e-5, *REPLACED),
            [replace_one(event) for event in (FIRST, SECOND)],
            None,
        ),
    ],
    ids=["cohorts", "no cohort", "rings", "no metadata", "replaced", "replaced parts"],
)
def test_a_ledger_is_added_up_for_the_client_that_spent_most(
    tmp_path: Path,
    entries: list[tuple[Any, ...]],
    arguments: tuple[object, ...],
    events: list[Event],
    reserve: FailureReserve | None,
) -> None:
    figures = of_ledger(ledger_of(tmp_path / "ledger.jsonl", *entries), *arguments)
    assert figures["epsilon"] == pytest.approx(running(events, reserve), rel=3e-6)
    assert figures["client"] == (BERTA if ROUNDS[0] in entries else "every client")
    replaced = "replace-one" in arguments
    assert figures["adjacency"] == str(Adjacency.REPLACE_ONE if replaced else Adjacency.ZERO_OUT)


def test_a_ledger_counts_entries_clients_and_releases(path: Path) -> None:
    figures = of_ledger(path)
    assert (figures["releases"], figures["entries"], figures["clients"]) == (3, 3, 3)
    assert figures["delta"] == 1e-5
    # What rings set aside is enough to be seen.
    rings = running([FIRST], FailureReserve(6.25e-8, 5, 1e-8))
    assert rings > running([FIRST], RESERVE) * (1 + 1e-5)


def test_what_made_up_peers_leave_is_added_up_as_well(path: Path) -> None:
    """Old entries do not say what is a client's own: then it is nothing."""
    assert of_ledger(path)["sybil"] == "inf"
    own = ledger_of(
        path.with_name("own.jsonl"),
        *(
            (event, {"cohort": cohort, "goal": GOAL, "coins_own": coins})
            for event, cohort, coins in ((FIRST, [ANNA], 90), (SECOND, [BERTA], 80))
        ),
    )
    figures = of_ledger(own)
    # Anna's release was noisier, but for her own part of the noise.
    assert figures["client"] == ANNA
    assert figures["epsilon"] == pytest.approx(running([FIRST], RESERVE), rel=3e-6)
    alone = BinomialRelease(80, 16.0, 16, 9)
    assert figures["sybil"] == pytest.approx(running([alone], RESERVE), rel=3e-6)


def test_a_goal_is_the_guarantee_until_it_is_overrun(path: Path) -> None:
    figures = of_ledger(path)
    assert figures["epsilon"] < figures["guaranteed"] == GOAL["epsilon"]
    text = printed("audit-ledger", path)
    assert BERTA in text and "replay" in text
    assert "guaranteed" in text and "spent so far" in text
    assert "goal: rounds of a client, at most 5" in text and "{" not in text
    ledger_of(path, *[(FIRST, {"cohort": [BERTA], "goal": GOAL})] * 3)
    assert of_ledger(path)["guaranteed"] == "inf"


def test_an_overrun_goal_has_no_odometer(tmp_path: Path) -> None:
    small = {**GOAL, "epsilon": 2.0}
    figures = of_ledger(ledger_of(tmp_path / "over.jsonl", *[(FIRST, {"goal": small})] * 4))
    assert figures["guaranteed"] == "inf" and figures["gaussian"]["mu"] > 0.5
    assert "at_any_stop" not in figures


def test_nobody_is_left_out_who_took_part_too_often(path: Path) -> None:
    """Six weak releases of a goal of five cost an infinite epsilon.

    It does not matter that another client lost more to one release with less noise. A release that
    everybody pays for counts as one of the six.
    """
    ledger_of(path, *[(WEAK, {"cohort": [ANNA], "goal": GOAL, "coins_own": 10**6})] * 4)
    figures = of_ledger(path)
    assert (figures["client"], figures["releases"]) == (ANNA, 6)
    assert figures["epsilon"] == figures["guaranteed"] == figures["sybil"] == "inf"


def test_common_releases_are_among_those_of_a_client(tmp_path: Path) -> None:
    entries = [(WEAK, {"cohort": [ANNA], "goal": GOAL})] * 4
    entries.append((SECOND, {"cohort": [BERTA], "goal": GOAL}))
    location = ledger_of(tmp_path / "common.jsonl", *entries)
    assert of_ledger(location)["client"] == BERTA
    ledger_of(location, (WEAK, {"goal": GOAL}), (WEAK, {"goal": GOAL}))
    figures = of_ledger(location)
    assert (figures["client"], figures["guaranteed"]) == (ANNA, "inf")


@pytest.mark.parametrize("goal", [GOAL, RINGS, {**RINGS, "epsilon": 20.0, "delta0": 1e-6}])
def test_the_goal_alone_decides_the_odometer(tmp_path: Path, goal: dict[str, Any]) -> None:
    """Its delta is what the goal's failures leave, its orders are best for parts of the goal."""
    share = goal["delta"] - goal["rounds"] * (goal["delta0"] + goal.get("aggregation", 0.0))

    def delta(mu: float) -> float:
        far = special.log_ndtr(-mu / 2 - goal["epsilon"] / mu) + goal["epsilon"]
        return float(special.ndtr(mu / 2 - goal["epsilon"] / mu) - math.exp(far))

    most = optimize.brentq(lambda mu: delta(mu) - share, 0.1, 9.0, xtol=1e-13) ** 2
    orders = [
        1 + math.sqrt(-2 * math.log(share / 3) / (most * part)) for part in (1, 1 / 4, 1 / 16)
    ]
    location = tmp_path / "stop.jsonl"
    for _ in range(2):
        ledger_of(location, (SECOND, {"goal": goal}))
        figures = of_ledger(location)
        square = (figures["gaussian"]["mu"] * (1 + 1e-5)) ** 2
        assert figures["at_any_stop"] == pytest.approx(
            min(
                a * square / 2 + math.log(1 - 1 / a) - math.log(a * share / 3) / (a - 1)
                for a in orders
            ),
            rel=1e-9,
        )


@pytest.mark.parametrize(
    "goal",
    [
        {"epsilon": 1e-14, "delta": 1e-14, "delta0": 1e-17},  # no noise reaches it
        {"epsilon": 1e6},  # none is needed
        {"moment_order": 8.0},
    ],
)
def test_a_goal_without_a_largest_mu_has_no_odometer(tmp_path: Path, goal: dict[str, Any]) -> None:
    entry = (BinomialRelease(1024, 0.5, 16, 9), {"cohort": [ANNA], "goal": {**GOAL, **goal}})
    figures = of_ledger(ledger_of(tmp_path / "none.jsonl", entry))
    assert figures["guaranteed"] == {**GOAL, **goal}["epsilon"] and "at_any_stop" not in figures


def test_a_guarantee_is_at_the_delta_of_the_goal(path: Path) -> None:
    """Whatever delta is asked for: that is the delta of the reading."""
    figures = of_ledger(path, "--delta", "1e-6")
    assert (figures["guaranteed"], figures["guaranteed_at_delta"]) == (GOAL["epsilon"], 1e-5)
    assert figures["delta"] == 1e-6
    text = printed("audit-ledger", path, "--delta", "1e-6")
    assert "guaranteed at delta 1e-05" in text and "spent so far, at delta 1e-06" in text


def test_a_goal_is_no_guarantee_for_another_adjacency(path: Path) -> None:
    text = printed("audit-ledger", path, "--adjacency", "replace-one")
    assert "goal is about zero-out" in text
    assert "guaranteed" not in text and "no goal" not in text


def test_a_goal_of_an_old_ledger_does_not_count_rings(path: Path, tmp_path: Path) -> None:
    """Those of version 0.1 set nothing aside for failures of secure aggregation."""
    assert of_ledger(path)["guaranteed_but_for"] == "failures of secure aggregation"
    assert "but for failures of secure aggregation" in printed("audit-ledger", path)
    location = ledger_of(tmp_path / "rings.jsonl", (FIRST, {"goal": RINGS}))
    assert "guaranteed_but_for" not in of_ledger(location)
    assert "but for" not in printed("audit-ledger", location)


@pytest.mark.parametrize(
    "goal",
    [
        *(None, {"delta": 1e-5, "delta0": "none", "rounds": 5}, [], {"delta": 2}),
        *({**GOAL, "aggregation": odd} for odd in ("none", -1e-8, 1.0)),
        *({**GOAL, "moment_order": odd} for odd in (1.0, "2", True, -3.0)),
    ],
)
def test_a_goal_that_is_none_is_not_used(
    tmp_path: Path, fails: Refused, goal: list[Any] | dict[str, Any] | None
) -> None:
    location = ledger_of(tmp_path / "odd.jsonl", (FIRST, {} if goal is None else {"goal": goal}))
    assert "states no goal" in fails("audit-ledger", location)
    figures = of_ledger(location, "--delta", "1e-5")
    assert figures["epsilon"] == pytest.approx(running([FIRST]), rel=3e-6)


def test_damaged_ledgers(path: Path, fails: Refused) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])
    assert "line 4 is cut in mid-line" in fails("audit-ledger", path)
    path.write_bytes(whole.replace(b'"coins":9000', b'"coins":9002'))
    assert "line 3 was altered" in fails("audit-ledger", path)


def test_unknown_events_in_a_ledger(path: Path, fails: Refused) -> None:
    ledger_of(path, (PoissonSampled(0.1, FIRST), {"cohort": [ANNA], "goal": GOAL}))
    error = fails("audit-ledger", path)
    assert "UnsupportedEventError" in error and "poisson-sampled" in error


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    """A ledger of local reports: Berta made three at 1 and one at 1/2, Anna four at 1."""
    one, half = LocalRelease(1.0), LocalRelease(0.5)
    cohorts = ([ANNA, BERTA], [BERTA, ANNA], [ANNA])
    return ledger_of(
        tmp_path / "reports.jsonl",
        *((one, {"cohort": cohort}) for cohort in cohorts),
        (Composition((one, half)), {"cohort": [BERTA]}),
        (one, {"cohort": [ANNA]}),
    )


def test_a_ledger_of_local_reports_adds_up_as_a_run_reports_it(reports: Path) -> None:
    figures = of_ledger(reports, "--delta", "1e-5")
    report = epsilons([(LocalRelease(1.0), 4)], 1e-5)
    assert (figures["client"], figures["releases"], figures["clients"]) == (ANNA, 4, 2)
    assert figures["epsilon"] == report.epsilon < 4.0
    assert figures["adjacency"] == str(report.adjacency) == str(Adjacency.ANY_INPUT)
    table = printed("audit-ledger", reports, "--delta", 1e-5)
    assert "everybody who sees the reports" in table and "replay" not in table


def test_reports_that_name_nobody_are_everybodys(reports: Path, fails: Refused) -> None:
    ledger_of(reports, (LocalRelease(0.25),))
    counted = [(LocalRelease(1.0), 4), (LocalRelease(0.25), 1)]
    figures = of_ledger(reports, "--delta", "1e-5")
    assert figures["epsilon"] == epsilons(counted, 1e-5).epsilon
    assert "states no goal" in fails("audit-ledger", reports)
    ledger_of(reports, (NonPrivateRelease(),))
    assert of_ledger(reports, "--delta", "1e-5")["epsilon"] == "inf"


def test_local_reports_beside_sums_have_no_epsilon(reports: Path, fails: Refused) -> None:
    ledger_of(reports, (FIRST, {"cohort": [ANNA]}))
    error = fails("audit-ledger", reports, "--delta", "1e-5")
    assert "UnsupportedEventError" in error and "local reports beside binomial" in error


def test_a_plan_has_no_room_for_local_reports(reports: Path) -> None:
    arguments = ("--clients", "50", "--epsilon", "8", "--ledger", reports)
    refusal = invoke("plan", *arguments).exception
    assert isinstance(refusal, UnsupportedEventError) and "local reports" in str(refusal)


def test_no_noise_is_infinite() -> None:
    assert account("--coins", "0")["epsilon"] == "inf"
    assert math.isinf(float(account("--coins", "2")["epsilon"]))


def test_the_pair_that_dominates_is_stated_and_gives_the_same_epsilon() -> None:
    figures = account("--coins", "1024", "--rounds", "3")
    pair = FailingGaussian(**figures["gaussian"])
    assert pair.epsilon(1e-5) == figures["by_accountant"]["domination"]
    assert figures["zcdp"] == {"rho": pair.mu**2 / 2, "delta": pair.failure}
    shown = printed("account", "--coins", 1024, "--rounds", 3)
    assert f"{pair.mu:.6g}-GDP" in shown and "approximate" in shown


@pytest.mark.parametrize("adjacency", ["zero-out", "replace-one"])
def test_a_pair_that_never_fails_is_that_of_all_rounds(adjacency: str) -> None:
    asked = "--mechanism discrete_gaussian --variance 100 --clients 4 --l2 8 --linf 8 --rounds 40"
    figures = account(*asked.split(), "--adjacency", adjacency)
    pair = FailingGaussian(**figures["gaussian"])
    assert (figures["winner"], pair.failure) == ("contraction", 0.0)
    assert pair.epsilon(1e-5) == figures["by_accountant"]["contraction"] == figures["epsilon"]


def test_a_ledger_states_the_same_pair(path: Path) -> None:
    figures = of_ledger(path)
    pair = composed(BERTAS, RESERVE).gaussian(1e-5)
    assert figures["gaussian"]["failure"] == pytest.approx(pair.failure, rel=1e-12)
    assert figures["gaussian"]["mu"] == pytest.approx(pair.mu, rel=3e-6)


def test_replace_one_is_zero_out_with_twice_the_sensitivities() -> None:
    figures = account("--coins", "4096", "--adjacency", "replace-one")
    twice = account(*"--coins 4096 --l2 32 --linf 32".split())
    assert figures["adjacency"] == str(Adjacency.REPLACE_ONE)
    # Theorem 1 is given the sensitivity in l1 by way of that in l2.
    assert figures["by_accountant"]["domination"] == twice["by_accountant"]["domination"]
    assert figures["epsilon"] == twice["epsilon"] > account("--coins", "4096")["epsilon"]
    solved = account("--target-epsilon", "2", "--adjacency", "replace-one")
    assert solved["epsilon"] <= 2.0 and solved["coins"] > account("--target-epsilon", "2")["coins"]


def test_a_ledger_counted_by_moments_is_replayed_by_its_order(tmp_path: Path) -> None:
    location = tmp_path / "moments.jsonl"
    weak = [BinomialRelease(36, 3.0, 2, 9), BinomialRelease(64, 4.0, 4, 9)]
    ledger_of(location, *((event, {"goal": {**GOAL, "moment_order": 2.5}}) for event in weak))
    figures = of_ledger(location)
    reserve = FailureReserve(GOAL["delta0"], GOAL["rounds"], moment_order=2.5)
    running_total = MomentsAccountant(reserve)
    for event in weak:
        running_total.compose(event)
    assert figures["epsilon"] == pytest.approx(running_total.epsilon(1e-5), rel=3e-6)
    assert "moments" in figures["route"] and "gaussian" not in figures


def test_a_whole_order_is_a_number(tmp_path: Path) -> None:
    """Ledgers of goals that were given an int have one."""
    location = tmp_path / "whole.jsonl"
    weak = BinomialRelease(64, 4.0, 4, 9)
    found = []
    for order in (3, 3.0):
        location = tmp_path / f"{order}.jsonl"
        ledger_of(location, (weak, {"goal": {**GOAL, "moment_order": order}}))
        found.append(of_ledger(location))
    assert found[0] == found[1] and "moments" in found[0]["route"]


def test_an_export_is_read_by_dp_accounting(tmp_path: Path) -> None:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    location = tmp_path / "account.json"
    figures = account("--coins", "1024", "--export", str(location))
    written = json.loads(location.read_text())
    assert {name: written[name] for name in figures} == figures
    losses = written["privacy_loss"]
    distribution = PrivacyLossDistribution.create_from_rounded_probability(
        dict(enumerate(losses["masses"], losses["first"])), losses["infinite"], losses["interval"]
    )
    assert distribution.get_epsilon_for_delta(1e-5) == pytest.approx(figures["epsilon"], rel=1e-5)
    curve = written["trade_off"]
    pair = FailingGaussian(**figures["gaussian"])
    assert curve["type_two_error"] == pair.type_two_error(curve["type_one_error"]).tolist()


@pytest.mark.parametrize("goal", [RINGS, None])
def test_an_exported_ledger_is_on_the_safe_side(
    tmp_path: Path, goal: dict[str, Any] | None
) -> None:
    """The second reader rounds to the nearest; what others compose on is a bound all the same."""
    metadata = {} if goal is None else {"goal": goal}
    location = ledger_of(tmp_path / "ledger.jsonl", *((event, metadata) for event in BERTAS))
    exported = tmp_path / "account.json"
    read = of_ledger(location, "--delta", "1e-5", "--export", str(exported))
    written = json.loads(exported.read_text())
    reserve = goal and FailureReserve(goal["delta0"], goal["rounds"], goal["aggregation"])
    accountant = composed(BERTAS, reserve)
    bound = accountant.gaussian(1e-5)
    pair = FailingGaussian(**written["gaussian"])
    assert pair.mu >= bound.mu > read["gaussian"]["mu"]
    assert pair.failure >= bound.failure >= read["gaussian"]["failure"]
    assert pair.mu <= bound.mu * (1 + 2e-5)
    assert written["zcdp"] == {"rho": pair.rho, "delta": pair.failure}
    assert written["epsilon"] == pair.epsilon(1e-5) >= accountant.epsilon(1e-5)
    curve = written["trade_off"]
    least = bound.type_two_error(curve["type_one_error"])
    assert all(found <= true for found, true in zip(curve["type_two_error"], least, strict=True))
    losses = written["privacy_loss"]
    grid = LossDistribution(
        losses["interval"], losses["first"], np.array(losses["masses"]), losses["infinite"]
    )
    assert all(grid.delta(epsilon) >= bound.delta(epsilon) for epsilon in (0.0, 0.5, 1.0, 2.0))


def test_exports_that_cannot_be(tmp_path: Path, fails: Refused) -> None:
    location = str(tmp_path / "account.json")
    assert "export" in fails("account", "--coins", "0", "--export", location)
    account("--coins", "1024", "--export", location)
    assert "exists" in fails("account", "--coins", "1024", "--export", location)
    assert "zero-out, replace-one" in fails("account", "--coins", "4", "--adjacency", "x")


def test_dp_accounting_says_the_same_of_a_ledger(path: Path, tmp_path: Path) -> None:
    for arguments in ((), REPLACED):
        figures = of_ledger(path, "--dp-accounting", *arguments)
        assert figures["dp_accounting"] == pytest.approx(figures["epsilon"], rel=1e-4)
    assert "dp_accounting" not in of_ledger(path)
    assert "REPLACE_SPECIAL" in printed("audit-ledger", path, "--dp-accounting")
    free = ledger_of(tmp_path / "free.jsonl", (Composition((FIRST, SECOND)),))
    figures = of_ledger(free, "--dp-accounting", "--delta", 1e-5)
    assert figures["dp_accounting"] == pytest.approx(figures["epsilon"], rel=1e-4)


def test_what_dp_accounting_cannot_say_of_a_ledger(
    reports: Path, tmp_path: Path, fails: Refused
) -> None:
    words = fails("audit-ledger", str(reports), "--delta", "1e-5", "--dp-accounting")
    assert "dp-accounting" in words
    assert "Gaussian DP" in words
    bare = ledger_of(tmp_path / "bare.jsonl", (NonPrivateRelease(),))
    assert of_ledger(bare, "--dp-accounting", "--delta", 1e-5)["dp_accounting"] == "inf"
