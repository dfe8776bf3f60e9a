"""`veilsum plan`: golden graphs, whole deployments, and what is said when it cannot be done."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from command_line import invoke, run_json

from dp import BinomialRelease, BudgetExceededError, Ledger
from protocol.errors import ConfigurationError
from protocol.goal import PrivacyGoal, goal_entry
from secagg import ParameterError

GOAL = ("--epsilon", "6", "--rounds", "4", "--dim", "2000")


def plan(*arguments: str) -> dict[str, Any]:
    return run_json("plan", *arguments)


def refused(error: type[Exception], *arguments: str) -> str:
    result = invoke("plan", *arguments)
    assert isinstance(result.exception, error), result.output
    return str(result.exception)


@pytest.mark.parametrize(
    ("arguments", "graph"),
    [
        (("--clients", "1000"), {"degree": 66, "threshold": 49, "security_bits": 80}),
        (
            ("--clients", "1000", "--security-bits", "40"),
            {"degree": 52, "threshold": 37, "security_bits": 40},
        ),
        (
            *(("--clients", "100", "--mode", "semi_honest", "--security-bits", "40"),),
            {"degree": 12, "threshold": 6, "security_bits": 40},
        ),
        (("--clients", "100", "--graph", "auto"), {"degree": 99, "threshold": 53}),
    ],
)
def test_the_graph_alone(arguments: tuple[str, ...], graph: dict[str, int]) -> None:
    assert plan(*arguments)["graph"] == graph


def test_a_deployment_states_everything() -> None:
    figures = plan("--clients", "50", *GOAL, "--compression", "4")
    assert figures["length"] == 495 and figures["dimension"] == 2000
    assert figures["bits"] < figures["bits_exact"]
    assert figures["bits_per_coordinate"] == figures["bits"] * 495 / 2000
    assert figures["coins_per_client"] > 0 < figures["removable_seeds"]
    assert figures["megabytes_per_client"] == sum(figures["bytes_each"].values()) / 1e6
    assert 0.0 < figures["squared_error"]["noise_excess"] < 0.07
    epsilons = figures["epsilons"]
    assert epsilons["outsider"] < epsilons["server"] <= 6.0 < epsilons["sybil"]
    assert (epsilons["secagg_alone"], epsilons["colluders"]) == ("inf", 2)
    assert "zero-out" in epsilons["adjacency"]


def test_replacing_a_contribution_costs_about_twice_as_much_or_more() -> None:
    figures = plan("--clients", "50", *GOAL)
    assert figures["bound"] == "domination"
    assert 2.0 * 5.9 < figures["epsilon_replace_one"] < 3.0 * 6.0


def test_weak_noise_is_planned_with_the_better_bound() -> None:
    weak = ("--clients", "5", "--epsilon", "20", "--rounds", "10", "--error-share", "1")
    figures = plan(*weak, "--dim", "4", "--corrupt", "0", "--dropout", "0.2")
    assert figures["bound"]["moment_order"] > 1.0
    assert figures["epsilons"]["server"] <= 20.0


def test_large_cohorts_get_a_sparse_graph_and_exactness_costs_bits() -> None:
    sparse = plan("--clients", "300", *GOAL)
    complete = plan("--clients", "300", *GOAL, "--graph", "complete", "--wrap-probability", "0")
    assert sparse["graph"]["degree"] < complete["graph"]["degree"] == 299
    assert complete["bits"] == complete["bits_exact"] == sparse["bits_exact"] > sparse["bits"]


def test_an_expiry_costs_fewer_neighbours_and_delta_more() -> None:
    arguments = ("--clients", "1000", "--corrupt", "0.1", *GOAL)
    forever, hour, strict = (
        plan(*arguments, *more)["graph"]
        for more in ((), ("--lifetime", "3600"), ("--delta", "1e-16", "--rounds", "1000"))
    )
    bits = [figures["security_bits"] for figures in (hour, forever, strict)]
    degrees = [figures["degree"] for figures in (hour, forever, strict)]
    assert bits == [96, 104, 144]
    assert degrees == sorted(set(degrees))
    assert plan(*arguments, "--graph", "sparse")["graph"] == forever


def test_a_ring_that_fails_more_often_than_delta_is_refused() -> None:
    arguments = ("--clients", "1000", *GOAL, "--security-bits", "40")
    for kind in ("auto", "sparse"):
        assert "the complete graph" in refused(ParameterError, *arguments, "--graph", kind)
    assert plan(*arguments, "--graph", "complete")["graph"]["degree"] == 999


def test_more_error_allowed_costs_fewer_bits() -> None:
    near, far = (plan("--clients", "50", *GOAL, "--error-share", share) for share in ("0.01", "1"))
    assert far["bits"] < near["bits"]
    assert near["squared_error"]["noise"] < far["squared_error"]["noise"]


def test_a_table_for_people() -> None:
    result = invoke("plan", "--clients", "50", *GOAL)
    assert result.exit_code == 0
    for text in (
        "coins of one client",
        "the server and its colluders",
        "zero-out",
        "keys of the others",
    ):
        assert text in result.stdout


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        (("--clients", "50", "--graph", "ring"), ConfigurationError, "auto, sparse, complete"),
        (("--clients", "50", *GOAL, "--bits", "24"), ConfigurationError, "the plan computes it"),
        (("--clients", "50", *GOAL, "--delta", "1.5"), ParameterError, "(0, 1)"),
        (("--clients", "50", "--epsilon", "0"), ParameterError, "(0, inf)"),
        (("--clients", "50", *GOAL, "--dropout", "0.6"), ParameterError, "tolerated_dropouts"),
        (("--clients", "50", *GOAL, "--error-share", "0"), ParameterError, "error_share"),
        (("--clients", "50", *GOAL, "--clip", "nan"), ParameterError, "clip_l2"),
        (("--clients", "50", *GOAL, "--wrap-probability", "0.1"), ParameterError, "wrap_prob"),
        (
            ("--clients", "10", "--epsilon", "0.01", "--rounds", "1000", "--dim", "1000000"),
            ParameterError,
            "raise epsilon",
        ),
    ],
)
def test_what_cannot_be_planned_says_what_to_change(
    arguments: tuple[str, ...], error: type[Exception], says: str
) -> None:
    assert says in refused(error, *arguments)


def begun(path: Path, goal: PrivacyGoal, event: BinomialRelease | None = None) -> str:
    """A ledger of a run with this goal."""
    with Ledger.open(path) as ledger:
        ledger.append(event or BinomialRelease(1024, 16.0, 16, 10), {"goal": goal_entry(goal)})
    return str(path)


def test_a_spent_budget_plans_nothing(tmp_path: Path) -> None:
    def arguments(epsilon: int) -> tuple[str, ...]:
        path = begun(tmp_path / f"{epsilon}.jsonl", PrivacyGoal(epsilon, 1e-5, 4))
        return ("--clients", "50", "--rounds", "4", "--dim", "2000", "--ledger", path)

    found = plan("--epsilon", "6", *arguments(6))["epsilon_spent"]
    assert math.isclose(found, 4.43, abs_tol=0.03)
    message = refused(BudgetExceededError, "--epsilon", "4", *arguments(4))
    assert "4.4" in message


@pytest.mark.parametrize(
    "goal",
    [
        PrivacyGoal(7, 1e-5, 4),
        PrivacyGoal(6, 2e-5, 4),
        PrivacyGoal(6, 1e-2, 4),  # it sets more aside than all of the plan's delta
        PrivacyGoal(6, 1e-5, 5),
        PrivacyGoal(6, 2e-5, 4, moment_order=9.0),
    ],
)
def test_a_ledger_of_another_goal_is_not_planned_on(tmp_path: Path, goal: PrivacyGoal) -> None:
    """A run with the goal of the plan could not go on with it."""
    path = begun(tmp_path / "ledger.jsonl", goal, BinomialRelease(10**6, 16.0, 16, 10))
    message = refused(ParameterError, "--clients", "50", *GOAL, "--ledger", path)
    assert str(goal.epsilon) in message and "'epsilon': 6.0" in message


def test_a_ledger_without_a_goal_is_not_planned_on(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with Ledger.open(path) as ledger:
        ledger.append(BinomialRelease(10**6, 16.0, 16, 10))
    message = refused(ParameterError, "--clients", "50", *GOAL, "--ledger", str(path))
    assert "that of the ledger, None" in message


WEAK = (
    *("--clients", "5", "--epsilon", "20", "--rounds", "10", "--error-share", "1"),
    *("--dim", "4", "--corrupt", "0", "--dropout", "0.2"),
)


@pytest.mark.parametrize("order", [None, 3.0])
def test_a_run_that_was_begun_keeps_its_bound(tmp_path: Path, order: float | None) -> None:
    """Without a ledger the plan would be by moments, of another order."""
    assert plan(*WEAK)["bound"]["moment_order"] not in (None, order)
    goal = PrivacyGoal(20, 1e-5, 10, moment_order=order)
    path = begun(tmp_path / "ledger.jsonl", goal, BinomialRelease(10**6, 1.0, 1, 4))
    figures = plan(*WEAK, "--ledger", path)
    assert figures["bound"] == ("domination" if order is None else {"moment_order": order})
    assert figures["epsilons"]["server"] <= 20.0


def test_an_empty_ledger_leaves_the_choice(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    Ledger.open(path).close()
    assert plan(*WEAK, "--ledger", str(path))["bound"] == plan(*WEAK)["bound"]


def test_the_one_shot_protocol_alone_has_a_committee_and_a_ring() -> None:
    arguments = ("--clients", "1000", "--dropout", "0.3", "--scheme", "one-shot")
    figures = plan(*arguments)
    assert figures["committee"] == {
        "kind": "named",
        "size": 248,
        "corrupt": 35,
        "randomness": 35,
        "per_polynomial": 80,
        "quorum": 142,
    }
    assert set(figures["ring"]) == {"degree", "limbs", "rounding_bits", "entries"}
    each = figures["bytes_each"]
    assert set(each) == {"vector", "seals", "seeds", "header", "announcement"}
    assert figures["bytes_per_client"] == sum(each.values())
    assert figures["bytes_ratio"] == figures["bytes_per_client"] / 300_000
    assert "graph" not in figures
    named = plan(*arguments, "--committee", "16", "2", "1")
    assert (named["committee"]["size"], named["committee"]["quorum"]) == (16, 10)


def test_everyone_is_on_the_committee_of_a_small_cohort() -> None:
    small = plan("--clients", "50", "--scheme", "one-shot")["committee"]
    assert (small["kind"], small["size"], small["corrupt"]) == ("everyone", 50, 2)


def test_more_corrupt_candidates_put_more_on_the_committee() -> None:
    few, many = (
        plan("--clients", "1000", "--scheme", "one-shot", "--corrupt", share)["committee"]
        for share in ("0.01", "0.05")
    )
    assert few["corrupt"] < many["corrupt"]
    message = refused(
        ParameterError, "--clients", "1000", "--scheme", "one-shot", "--corrupt", "0.2"
    )
    assert "committee" in message


def test_a_one_shot_round_that_loses_too_many_is_refused() -> None:
    arguments = ("--clients", "100", "--dropout", "0.6", "--scheme", "one-shot")
    assert "must survive" in refused(ParameterError, *arguments)


def test_both_protocols_have_the_same_noise_and_other_bytes() -> None:
    both = plan("--clients", "50", *GOAL, "--scheme", "both")
    pairwise, one_shot = both["pairwise"], both["one-shot"]
    assert pairwise == plan("--clients", "50", *GOAL)
    for same in ("epsilons", "bits", "coins_per_client", "squared_error", "colluders"):
        assert pairwise[same] == one_shot[same]
    assert set(pairwise["bytes_each"]) != set(one_shot["bytes_each"])
    assert one_shot["megabytes_per_client"] == sum(one_shot["bytes_each"].values()) / 1e6
    assert "graph" in pairwise and "committee" in one_shot


def test_both_protocols_have_a_table_each() -> None:
    shown = invoke("plan", "--clients", "50", *GOAL, "--scheme", "both").stdout
    for text in ("plan, pairwise", "plan, one-shot", "sealed shares for the members"):
        assert text in shown
    assert "other" not in [line.strip() for line in shown.splitlines()]


def test_a_plan_of_validated_rounds_says_how_far_colluders_move_the_sum() -> None:
    asked = ("--clients", "50", "--dim", "1000", "--committee", "16", "2", "2", "--scheme")
    found = plan(*asked, "all", *GOAL)
    assert list(found) == ["pairwise", "one-shot", "validated"]
    figures = found["validated"]
    validation, shown = figures["validation"], invoke("plan", *asked, "validated", *GOAL).stdout
    assert validation["largest_shift"] == validation["bound"] * figures["colluders"]
    assert validation["honest_signal"] == 49 - figures["colluders"]
    assert figures["removable_seeds"] == 0 < found["one-shot"]["removable_seeds"]
    assert "how far all corrupt parties move the sum" in shown
    # The bound covers noise, so there is none without a goal.
    assert "epsilon" in refused(ConfigurationError, *asked, "validated")


CORRELATED = ("--correlated", "--rounds", "60", "--participations", "12", "--apart", "5")


@pytest.mark.parametrize(
    ("dropout", "more", "named"),
    [
        (0.3, (), True),
        (0.1, (), False),
        (0.3, ("--scheme", "one-shot"), False),
        (0.3, ("--scheme", "both"), False),
    ],
)
def test_many_masks_with_lost_clients_name_one_shot_rounds(
    dropout: float, more: tuple[str, ...], named: bool
) -> None:
    shown = invoke("plan", "--clients", "1000", "--dropout", str(dropout), *more).stdout
    assert ("see --scheme one-shot" in shown) == named


def test_noise_that_comes_back() -> None:
    figures = plan(*CORRELATED)
    assert figures["gain"] == pytest.approx(1.77, abs=0.005)
    assert figures["returned_share"] == pytest.approx(0.88, abs=0.005)
    assert figures["round_noise_ratio"] == pytest.approx(2.03, abs=0.01)
    assert figures["pays"] is True


def test_noise_that_comes_back_for_a_goal() -> None:
    figures = plan(*CORRELATED, "--epsilon", "5", "--clients", "100")
    more = figures["noise_multiplier"] / figures["independent_noise_multiplier"]
    assert more == pytest.approx(math.sqrt(figures["fresh_ratio"]))
    against = figures["against"]
    assert against["promised"] == 5.0 < against["without_members"] < against["made_up"]
    assert "made_up" not in plan(*CORRELATED, "--epsilon", "5")["against"]


def test_momentum_takes_more_back() -> None:
    plain, heavy = plan(*CORRELATED), plan(*CORRELATED, "--optimiser", "momentum")
    assert heavy["returned_share"] > plain["returned_share"]


def test_clients_that_are_always_there_are_told_that_nothing_is_gained() -> None:
    result = invoke(
        "plan", "--correlated", "--rounds", "8", "--participations", "8", "--apart", "1"
    )
    assert result.exit_code == 0
    assert "Nothing is gained" in result.output and "Use independent noise" in result.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--correlated", "--rounds", "9", "--apart", "2"), "participations"),
        (("--correlated", "--rounds", "9", "--participations", "2"), "apart"),
        ((*CORRELATED[:5], "--apart", "7"), "participations must be at most 9"),
        ((*CORRELATED, "--optimiser", "adam"), "sgd, momentum, decay, average"),
        (("--clients", "9", "--apart", "2"), "without --correlated"),
        ((), "clients"),
    ],
)
def test_schedules_that_cannot_be(arguments: tuple[str, ...], words: str) -> None:
    assert words in refused(ConfigurationError, *arguments)
