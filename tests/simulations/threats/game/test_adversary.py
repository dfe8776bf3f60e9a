"""The adversary: its algebra, its games, and what it may not reach.

Its algebra is held against plain linear algebra; the games are played by servers that must win and
by servers that must not.
"""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from secagg import ClientSession, Mode, ParameterError
from secagg.pairwise.masks import pairwise_is_subtracted
from simulations.threats import Adversary, Setting, Victims, exact, ind_sum, play, span_game
from simulations.threats.catalogue.views import SplitsTheView
from simulations.threats.game.contexts import random_inputs
from simulations.threats.game.knowledge import MASKING_KEY, SELF_MASK
from simulations.threats.game.rates import rate
from simulations.threats.game.weak_clients import ReusableSession, weakened

ROOT = Path(__file__).parents[4]
CURIOUS = Setting(mode=Mode.SEMI_HONEST, length=3)
ALPHA = 1e-6


class TellsAnything(Adversary):
    """Random survivor sets, to some clients more than one."""

    def announce(self) -> None:
        for u in sorted(self.uploaded):
            for _ in range(int(self.rng.integers(3))):
                others = [v for v in sorted(self.uploaded) if v != u]
                size = int(self.rng.integers(self.context.minimum_survivors - 1, len(others) + 1))
                chosen = self.rng.choice(others, size, replace=False)
                self.tell(u, tuple(sorted({u, *map(int, chosen)})))


def unknown_masks(adversary: TellsAnything) -> np.ndarray:
    """One row for each upload, one column for each mask that the server does not know."""
    knowledge, rows = adversary.knowledge, []
    columns: dict[object, int] = {}
    uploads = knowledge.uploads
    for upload in uploads:
        u, row = upload.sender, {}
        if knowledge.secret(upload.roster, u, SELF_MASK) is None:
            row[u] = 1
        for v in upload.participants:
            ends = [knowledge.secret(upload.roster, w, MASKING_KEY) for w in (u, v)]
            if v != u and ends == [None, None]:
                row[frozenset((u, v))] = -1 if pairwise_is_subtracted(u, v) else 1
        rows.append(row)
        for mask in row:
            columns.setdefault(mask, len(columns))
    matrix = np.zeros((len(uploads), max(1, len(columns))))
    for i, row in enumerate(rows):
        for mask, sign in row.items():
            matrix[i, columns[mask]] = sign
    return matrix


@pytest.mark.parametrize("session", [ClientSession, ReusableSession])
def test_the_server_opens_what_linear_algebra_says_and_nothing_else(
    session: type[ClientSession],
) -> None:
    kinds = set()

    def same(adversary: TellsAnything, inputs: np.ndarray) -> bool:
        matrix = unknown_masks(adversary)
        opened = adversary.knowledge.sums()
        assert len(opened) == len(matrix) - np.linalg.matrix_rank(matrix)
        for each in opened:
            right = inputs[list(each.members)].astype(object).sum(axis=0)
            assert np.array_equal(each.vector, right % adversary.context.field.modulus)
        kinds.add(tuple(sorted(len(each.members) for each in opened)))
        return True

    assert play(TellsAnything, CURIOUS, 30, 1, session, same).wins == 30
    # Schedules that open nothing but the colluder's own, and schedules that open more.
    assert len(kinds) > 1


@pytest.mark.parametrize("mode", list(Mode))
def test_an_honest_server_wins_no_game(mode: Mode) -> None:
    setting, trials = Setting(mode=mode), 60
    assert exact(Adversary, setting, 5, 1).wins == 0
    opened = span_game(Adversary, setting, 5, 1)
    # It does open the sum over all honest clients, or the game would prove nothing.
    assert (opened.wins, opened.seen["smallest"], opened.seen["promised"]) == (0, 5, 3)
    guessed = ind_sum(Adversary, setting, trials, 1)
    # Guesses are Bin(60, 1/2): both tails at alpha / 2.
    low, high = stats.binom.ppf(ALPHA / 2, trials, 0.5), stats.binom.isf(ALPHA / 2, trials, 0.5)
    assert low <= guessed.wins <= high


@pytest.mark.parametrize("game", [exact, ind_sum, span_game])
def test_a_server_that_splits_the_view_wins_every_game_against_clients_that_trust_it(
    game: Callable[..., Any],
) -> None:
    outcome = game(SplitsTheView, CURIOUS, 20, 1)
    assert outcome.wins == outcome.trials == 20
    assert outcome.figures()["succeeded"] is True


def test_a_sum_that_was_promised_does_not_win_ind_sum() -> None:
    class LeavesOneOut(Adversary):
        def survivors_for(self, u: int) -> tuple[int, ...]:
            return tuple(v for v in super().survivors_for(u) if v != self.target)

    # It opens a sum with one of the two clients: over as many honest clients as it may.
    outcome = ind_sum(LeavesOneOut, Setting(), 60, 1)
    assert outcome.wins < 55


def test_a_wrong_claim_wins_nothing() -> None:
    class ClaimsZero(Adversary):
        def claims(self) -> dict[int, np.ndarray]:
            return {self.target: np.zeros(self.context.length, self.context.field.dtype)}

    assert exact(ClaimsZero, CURIOUS, 5, 1).wins == 0


def test_honest_clients_tell_nobody_what_they_know() -> None:
    context = Setting().context(0)
    victims = Victims(context, random_inputs(np.random.default_rng(1), context), [2], b"salt")
    with pytest.raises(ValueError, match="client 1 is honest"):
        victims.look_into(1)
    with pytest.raises(ValueError, match="client 1 is honest"):
        victims.identity(1)
    assert victims.look_into(2) is not None


def test_a_weakened_context_has_the_same_hash() -> None:
    context = Setting().context(0)
    weak = weakened(context, minimum_survivors=1)
    assert (weak.hash, weak.minimum_survivors) == (context.hash, 1)
    assert context.minimum_survivors == 4


def test_a_rate_says_what_was_counted() -> None:
    figures = rate(3, 10, 0.5)
    assert figures["successes"] == 3
    assert figures["lower"] < 0.3 < figures["upper"]
    assert figures["succeeded"] is False
    # Ten right guesses in a row happen once in a thousand times, twenty once in a million.
    assert rate(10, 10, 0.5)["lower"] > 0.5
    assert rate(10, 10, 0.5)["succeeded"] is False
    assert rate(20, 20, 0.5)["succeeded"] is True
    with pytest.raises(ParameterError, match="successes = 11"):
        rate(11, 10)
    with pytest.raises(ParameterError, match="trials = 0"):
        rate(0, 0)


def test_the_example_of_an_own_attack_runs(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "own_attack.py"))
    printed = capsys.readouterr().out
    assert "our clients: read 0 of 20" in printed
    assert "without a self mask: 20 of 20" in printed
    code = (ROOT / "examples" / "own_attack.py").read_text()
    assert len(code.splitlines()) <= 35
