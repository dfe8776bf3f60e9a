"""`veilsum reproduce fedsel`: tables, training, verdicts, and how rates are chosen."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dp import NoiseSeed
from dp.local.scalars import Duchi, Hybrid, Piecewise
from dp.local.two_stage import two_stage
from protocol.errors import ConfigurationError
from simulations.campaigns.campaign import Options
from simulations.campaigns.claims import (
    NOT_REPRODUCED,
    REPRODUCED,
    UNDECIDED,
    Claim,
    Interval,
)
from simulations.campaigns.store import Cell
from simulations.learning.data.tabular import Categorical
from simulations.learning.local_dp import ClientMemory
from simulations.learning.local_dp.fedsel import FedSel
from simulations.reproduce.fedsel import tables, theory, training
from simulations.reproduce.fedsel.campaign import CAMPAIGN
from simulations.reproduce.fedsel.claims import judge
from simulations.reproduce.fedsel.plan import (
    CHOICE_SHARE,
    LARGEST_SHARE,
    PRESETS,
    Arm,
    Plan,
    baseline,
    blind,
    by_rule,
    flat,
    staged,
)
from simulations.reproduce.fedsel.tables import Examples
from simulations.reproduce.fedsel.training import (
    Run,
    Score,
    Task,
    cross_validated,
    randomised,
    score,
    slopes,
)
from sketch import PublicSeed

ALPHA = 1e-6
TABLE = tables.synthetic(1000, 12, 0.1, 0.5, 3, "made up")
USERS = np.arange(800)


def weights(arm: Arm, seed: int = 1, **task: Any) -> np.ndarray:
    return Run(Task("logistic", **{"rate": 1.0, **task}), arm, TABLE, USERS, (seed,)).trained()


class TestTables:
    def test_real_tables_have_the_papers_shapes(self, data_dir: Path) -> None:
        for name, shape in (("BANK", (45_211, 32)), ("ADULT", (48_842, 123))):
            table = tables.load(name, data_dir)
            assert table.inputs.shape == shape
            assert table.inputs.min() == 0.0 and table.inputs.max() == 1.0
            assert set(np.unique(table.labels)) == {-1.0, 1.0}
        # One mark for each of 14 columns, but for missing values.
        assert table.inputs.sum(axis=1).max() == 14.0
        assert table.majority == pytest.approx(0.7607, abs=1e-4)

    @pytest.mark.slow
    def test_kdd99_has_the_papers_shape(self, data_dir: Path) -> None:
        table = tables.load("KDD", data_dir)
        assert table.inputs.shape == (70_000, 114)
        assert table.majority == pytest.approx(0.8032, abs=1e-4)

    def test_synthetic_tables(self) -> None:
        table = tables.load("syn-S-0.01-0.6")
        assert table.inputs.shape == (4000, 20)
        deviations = table.inputs.std(axis=0)
        # Features are 100 times smaller, or larger than the share.
        assert ((deviations < 0.007) | (deviations > 0.55)).all()
        assert 0 < (deviations < 0.007).sum() < 20
        again = tables.synthetic(4000, 20, 0.01, 0.6, 1, "again")
        np.testing.assert_array_equal(again.inputs, table.inputs)

    def test_names_are_checked(self) -> None:
        for name in ("nope", "syn-L", "syn-X-0.1-0.6"):
            with pytest.raises(ConfigurationError, match="is unknown"):
                tables.load(name)

    def test_encodings(self) -> None:
        numbers = np.array([3.0, np.nan, 1.0, 5.0], np.float32)
        assert tables.unit_scaled(numbers)[:, 0].tolist() == [0.5, 0.0, 0.0, 1.0]
        assert not tables.unit_scaled(np.ones(3, np.float32)).any()
        marks = tables.intervals(np.array([0.0, 1.0, 1.5, 9.0]), np.array([1.0, 2.0]))
        assert marks.tolist() == [[1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]
        first = Categorical(np.array([0, 1], np.int32), ("b", "?"))
        second = Categorical(np.array([0, 1], np.int32), ("c", "b"))
        assert tables.indicators([first, second]).tolist() == [[1, 0], [0, 0], [0, 1], [1, 0]]


class TestTraining:
    def test_slopes_are_the_derivatives_of_the_losses(self) -> None:
        margins, labels = np.array([-2.0, 0.3, 0.4, 3.0]), np.array([1.0, -1.0, 1.0, 1.0])
        step = 1e-6
        losses = {
            "logistic": lambda m: np.log1p(np.exp(-labels * m)),
            "SVM": lambda m: np.maximum(0.0, 1.0 - labels * m),
        }
        for model, loss in losses.items():
            numeric = (loss(margins + step) - loss(margins - step)) / (2 * step)
            np.testing.assert_allclose(slopes(model, margins, labels), numeric, atol=1e-6)

    def test_without_privacy_it_is_gradient_descent(self) -> None:
        found = weights(Arm("NP", "all"), rate=0.7)
        expected = np.zeros(12)
        order = np.random.default_rng([1, 0]).permutation(USERS)
        x, y = TABLE.inputs.astype(float), TABLE.labels.astype(float)
        for start in range(0, 800, 8):
            rows = order[start : start + 8]
            each = -y[rows] / (1.0 + np.exp(y[rows] * (x[rows] @ expected)))
            expected -= 0.7 * ((each[:, None] * x[rows]).mean(axis=0) + 1e-4 * expected)
        np.testing.assert_allclose(found, expected, rtol=1e-10)
        assert score(found, TABLE, np.arange(800, 1000)).accuracy > 0.65

    @pytest.mark.statistical
    @pytest.mark.parametrize("arm", [Arm("NP-RS", "random"), flat("PM", 3.0), flat("PM", 9.0)])
    def test_flat_reports_estimate_the_mean_gradient(self, arm: Arm) -> None:
        # One step from zero: the mean gradient is known, and small enough not to be clipped.
        table = Examples("small", np.clip(TABLE.inputs, -1, 1), TABLE.labels)
        truth = -(table.labels[:800, None] * table.inputs[:800]).mean(axis=0) / 2.0
        steps = np.array([-_one_step(arm, table, seed) for seed in range(300)])
        error = steps.std(axis=0, ddof=1) / math.sqrt(300)
        limit = stats.t.isf(ALPHA / 24, 299)
        assert (np.abs(steps.mean(axis=0) - truth) < limit * error).all()
        # Without the factor d/k it would be found out.
        assert (np.abs(steps.mean(axis=0) / 2.0 - truth) > limit * error).any()

    def test_projection_keeps_what_lies_in_its_range(self) -> None:
        arm = Arm("PM-RP", "projected")
        run = Run(Task("logistic", 1.0), arm, TABLE, USERS, (1,))
        assert run._projection.shape == (12, 1)
        step = -_one_step(arm, TABLE, 5)
        again = Run(Task("logistic", 1.0), arm, TABLE, USERS, (5,))
        across = step - step @ again._projection @ again._recovery
        np.testing.assert_allclose(across, 0.0, atol=1e-12)

    @pytest.mark.statistical
    @pytest.mark.parametrize("kind", ["PM", "HM", "Duchi"])
    @pytest.mark.parametrize("epsilon", [0.5, 2.0])
    def test_values_have_the_laws_of_the_library(self, kind: str, epsilon: float) -> None:
        rng, draws, value = np.random.default_rng(7), 200_000, 0.37
        drawn = randomised(np.full(draws, value), kind, epsilon, rng)
        scalar = {"PM": Piecewise, "HM": Hybrid, "Duchi": Duchi}[kind](epsilon)
        deviation = math.sqrt(scalar.variance(value))
        assert abs(drawn.mean() - value) < stats.norm.isf(ALPHA / 2) * deviation / math.sqrt(draws)
        theirs = scalar.randomize(np.full((draws, 1), value), NoiseSeed(bytes(32))).values()
        assert stats.ks_2samp(drawn, theirs).pvalue > ALPHA
        other = randomised(np.full(draws, -value), kind, epsilon, rng)
        assert stats.ks_2samp(other, theirs).pvalue < ALPHA

    def test_piecewise_has_the_textbook_variance(self) -> None:
        drawn = randomised(np.full(200_000, 0.5), "PM", 1.8, np.random.default_rng(3))
        gap = math.expm1(0.9)
        expected = 0.25 / gap + (gap + 4.0) / (3.0 * gap**2)
        # Bounded by C = 2.4: the fourth moment is below C^2 times the second.
        spread = expected * math.sqrt(8.0 / 200_000)
        assert abs(drawn.var() - expected) < stats.norm.isf(ALPHA / 2) * spread

    def test_two_stages_do_what_the_clients_of_the_library_do(self) -> None:
        # So much budget that nothing is random: the same coordinates, kept and sent alike.
        table = Examples("few", np.clip(TABLE.inputs[:10], -1, 1), TABLE.labels[:10])
        users = np.arange(10)
        arm = Arm("PS-PM", "PS", "exact", 43.0, math.inf)
        run = Run(Task("logistic", 0.5, epochs=2, momentum=0.4), arm, table, users, (2,))
        order = np.random.default_rng([2, 0])
        client = FedSel(two_stage(12, 86.0, selection_share=0.5, kept_share=0.05, bound=4.0), 0.4)
        memory, expected = ClientMemory(12), np.zeros(12)
        for epoch in range(2):
            for user in order.permutation(users):
                x, y = table.inputs[user].astype(float), float(table.labels[user])
                gradient = -y * x / (1.0 + math.exp(y * float(x @ expected)))
                update = (gradient + 1e-4 * expected)[None, :]
                noise = NoiseSeed(bytes([epoch, int(user)]) * 16)
                public = PublicSeed(bytes(32))
                reports = client.reports([int(user)], update, memory, public, noise)
                expected -= 0.5 * reports.total()
        found = run.trained()
        np.testing.assert_allclose(found, expected, atol=1e-3)
        assert np.abs(found).max() > 0.1

    def test_with_one_epoch_nothing_is_kept(self) -> None:
        arm = staged("PS", "PM", 2.0)
        np.testing.assert_array_equal(
            weights(arm, momentum=0.9), weights(arm, momentum=0.0, accumulate=False)
        )
        kept = weights(arm, epochs=2, momentum=0.9)
        assert (kept != weights(arm, epochs=2, momentum=0.0)).any()
        forgetful = weights(arm, epochs=2, accumulate=False)
        assert (kept != forgetful).any()

    def test_clients_who_scale_by_the_rate_differ_only_where_values_are_clipped(self) -> None:
        exact, private = Arm("PS", "PS", "exact", 1.0), staged("PS", "PM", 2.0)
        for arm, same in ((exact, True), (private, False)):
            plain, scaled = (weights(arm, rate=0.1, epochs=2, scaled=s) for s in (False, True))
            assert np.allclose(plain, scaled) is same
            # Noise of values is not scaled down by the rate (Theorem 2).
            assert same or np.linalg.norm(scaled) > 3.0 * np.linalg.norm(plain)

    def test_the_largest_coordinate_is_the_one_that_is_sent(self) -> None:
        few = Examples("few", TABLE.inputs[:1], TABLE.labels[:1])
        run = Run(Task("logistic", 1.0), Arm("NP-K", "top"), few, np.arange(1), (1,))
        step = run._mean(np.zeros(12), np.arange(1))
        assert np.flatnonzero(step).tolist() == [int(np.abs(few.inputs[0]).argmax())]
        # Of more coordinates than ten, as only a tenth of them counts as large.
        many = tables.synthetic(30, 60, 0.1, 0.5, 3, "many")
        users = np.arange(30)
        step = Run(Task("logistic", 1.0), Arm("NP-K", "top"), many, users, (1,))._mean(
            np.zeros(60), users
        )
        largest = set(np.abs(many.inputs).argmax(axis=1).tolist())
        assert set(np.flatnonzero(step).tolist()) == largest

    def test_batches_and_steps(self) -> None:
        run = Run(Task("logistic", 1.0, batch=0.1, steps=3), baseline(), TABLE, USERS, (1,))
        asked = list(run._asked())
        assert [len(each) for each in asked] == [80] * 10
        assert (weights(baseline(), steps=3) != weights(baseline(), steps=4)).any()
        assert (weights(baseline(), steps=100) == weights(baseline())).all()

    def test_epsilons(self) -> None:
        assert flat("PM", 2.0).epsilon(50) == 2.0
        assert staged("PS", "PM", 2.0).epsilon(50) == pytest.approx(2.0)
        assert staged("PS", "PM", 2.0, control=True).epsilon(50) == pytest.approx(2.2)
        assert staged("PE", "PM", 2.0).epsilon(50) == pytest.approx(2.0)
        assert staged("PE-printed", "PM", 2.0).epsilon(50) > 2.003
        assert baseline().epsilon(50) == math.inf
        for clients, share in ((30, 0.0), (300, 0.14), (30_000, LARGEST_SHARE)):
            arm = by_rule("PS", 1.0, 50, clients)
            assert arm.choice_epsilon == pytest.approx(share, abs=0.06)
            assert arm.epsilon(50) == pytest.approx(1.0)
        assert staged("PS", "PM", 1.0).choice_epsilon == CHOICE_SHARE

    @pytest.mark.statistical
    def test_a_blind_choice_is_pm_at_a_small_rate(self) -> None:
        flat_arm, blind_arm = Arm("NP-RS", "random"), Arm("RND", "blind")
        assert blind_arm.epsilon(50) == math.inf and blind(2.0).epsilon(50) == 2.0
        steps = [
            np.array([_one_step(arm, TABLE, seed) for seed in range(300)]) * factor
            for arm, factor in ((flat_arm, 1.0), (blind_arm, 12.0))
        ]
        assert stats.ttest_ind(*steps).pvalue.min() > ALPHA / 12
        unscaled = stats.ttest_ind(steps[0], steps[1] / 12.0).pvalue.min()
        assert unscaled < ALPHA / 12

    def test_scores(self) -> None:
        table = Examples("t", np.eye(4, dtype=np.float32), np.array([1, 1, 1, -1], np.float32))
        found = score(np.array([1.0, 1.0, -1.0, 1.0]), table, np.arange(4))
        assert (found.accuracy, found.balanced) == (0.5, pytest.approx(1 / 3))
        constant = score(np.zeros(4), table, np.arange(4))
        assert (constant.accuracy, constant.balanced) == (0.25, 0.5)


def _one_step(arm: Arm, table: Examples, seed: int) -> np.ndarray:
    """The first step of all users together, from zero."""
    run = Run(Task("logistic", 1.0), arm, table, USERS, (seed,))
    return -run._mean(np.zeros(12), USERS)


class TestVerdicts:
    def test_all_cases_must_be_above_and_one_against_refutes(self) -> None:
        more, unsure, less = Interval(1.0, 0.1, 9), Interval(0.1, 0.1, 9), Interval(-1.0, 0.1, 9)
        nothing = Interval(0.0, 0.0, 9)
        assert judged([more, more]).verdict == REPRODUCED
        assert judged([more, unsure]).verdict == UNDECIDED
        for against in (less, nothing):
            found = judged([more, unsure, against])
            assert found.verdict == NOT_REPRODUCED
            assert found.seen == "3 cases, 1 for it, 1 against"
        assert judge("nothing to say", "nowhere", []) is None

    def test_many_cases_do_not_refute_by_chance(self) -> None:
        # Seven standard errors short of zero, or three: the second is bound to happen among many.
        short = Interval(-0.03, 0.01, 10)
        assert judged([short]).seen.endswith("1 against")
        assert judged([short] * 50).seen.endswith("0 against")


class TestTheory:
    def test_noise_of_a_mean_of_reports(self) -> None:
        """Reports of nothing, simulated: the largest noise is below the bound, not far."""
        plan = replace(Plan(), dimensions=(50,))
        for row, arm in zip(
            theory.noises(plan), (flat("PM", 2.0), staged("EXP", "PM", 2.0)), strict=False
        ):
            table = Examples("nothing", np.zeros((1000, 50), np.float32), np.ones(1000, np.float32))
            found = []
            for seed in range(40):
                run = Run(Task("logistic", 1.0), arm, table, np.arange(1000), (seed,))
                found.append(np.abs(run._mean(np.zeros(50), np.arange(1000))).max())
            assert 0.5 * row["noise"] < np.mean(found) < row["noise"]

    def test_what_is_left_of_a_gradient_shrinks_as_the_noise_does(self) -> None:
        rows = {(row["arm"], row["dimension"]): row for row in theory.noises(Plan())}
        few, many = (rows["PS-PM", d] for d in (10, 10_000))
        assert many["noise"] < 0.1 * few["noise"] and many["relative"] > 10.0 * few["relative"]
        assert 1.0 < few["most"] < math.exp(0.2)
        # Flat reports are unbiased; of two-stage ones a share of 1/d is left.
        assert rows["PM", 10]["left"] == pytest.approx(1.0)
        assert few["left"] == pytest.approx(0.1) and many["left"] == pytest.approx(1e-4)
        found = theory.theorem2()
        assert 0.0 < found["least"] < found["largest"] < 1.0


def judged(gains: list[Interval]) -> Claim:
    """The claim that such gains come to."""
    found = judge("more", "somewhere", gains)
    assert found is not None
    return found


class TestCampaign:
    def test_arms_share_folds_and_rates_are_found_elsewhere(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        plan = replace(PRESETS["quick"], rates=(0.5, 2.0))
        study = CAMPAIGN.study(plan, tmp_path, 3)
        asked: list[Cell] = []

        def results(cells: Iterable[Cell]) -> list[dict[str, list[list[float]]]]:
            found = [cell for cell in cells if cell.make is cross_validated]
            asked.extend(found)
            heights = [(0.7 if cell.given[1].rate == 2.0 else 0.6, cell) for cell in found]
            return [
                {name: [[x, x]] * len(cell.given[3]) for name in ("accuracy", "balanced")}
                for x, cell in heights
            ]

        monkeypatch.setattr(study, "results", results)
        figures = CAMPAIGN.figures(study)
        own = [row for row in figures["table3"] if row["mode"] == "own"]
        assert {row["rate"] for row in own} == {2.0}
        # Trials have repetitions of their own, and everything the campaign's seed.
        trials = [cell for cell in asked if cell.given[3] == (1000,)]
        assert {cell.given[1].rate for cell in trials} == {0.5, 2.0}
        assert {cell.given[3] for cell in asked} == {(1000,), (0, 1)}
        # What is scaled by the rate, and other batches, have rates of their own.
        assert {cell.given[1].scaled for cell in trials} == {False, True}
        assert {cell.given[1].batch for cell in trials} >= set(plan.batches)
        assert {cell.given[1].steps for cell in trials} == {None, plan.batch_steps}
        assert {cell.given[5] for cell in asked} == {3}

    def test_of_equal_rates_the_larger_is_chosen(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        study = CAMPAIGN.study(PRESETS["quick"], tmp_path)
        halves = {name: [[0.5] * 2] * 2 for name in ("accuracy", "balanced")}
        monkeypatch.setattr(study, "results", lambda cells: [halves for _ in cells])
        own = [row for row in CAMPAIGN.figures(study)["table3"] if row["mode"] == "own"]
        assert {row["rate"] for row in own} == {10.0}

    def test_folds_do_not_overlap_and_cover_everything(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tested: list[np.ndarray] = []

        def seen(_: np.ndarray, table: Examples, users: np.ndarray) -> Score:
            tested.append(users)
            return Score(0.5, 0.5)

        monkeypatch.setattr(training, "score", seen)
        arms_seen = (flat("PM", 2.0), staged("PS", "PM", 2.0))
        for arm in arms_seen:
            cross_validated("syn-S-0.01-0.6", Task("logistic", 1.0), arm, (0,), 2, 7)
        first, second = tested[:2], tested[2:]
        assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
        assert sorted(np.concatenate(first).tolist()) == list(range(4000))

    def test_a_plan_of_one_table(self) -> None:
        assert CAMPAIGN.plan(Options(changes={"tables": ["BANK"]})).tables == ("BANK",)


@pytest.mark.slow
def test_a_quick_campaign_judges_every_figure_and_says_what_is_spent(
    written: Callable[..., Any],
) -> None:
    figures, folder = written(CAMPAIGN, PRESETS["quick"])
    page = (folder / "fedsel.md").read_text()
    assert "| syn-S-0.01-0.6 | logistic |" in page
    claimed = {claim["source"]: claim["verdict"] for claim in figures["claims"]}
    assert claimed["Theorem 2"] == claimed["Theorem 3, Table 1"] == REPRODUCED
    assert {"Figure 2 (a), (b)", "Figure 2 (c), (d)", "Figure 2 (e)"} <= set(claimed)
    assert {"Figure 3 (a)", "Figure 3 (b)", "Figure 3 (c)"} <= set(claimed)
    spent = {row["arm"]: row for row in figures["spent"]}
    assert spent["PE-printed-PM"]["exact"] > spent["PE-printed-PM"]["printed"] + 1e-3
    assert spent["PE-PM"]["exact"] == pytest.approx(2.0)
