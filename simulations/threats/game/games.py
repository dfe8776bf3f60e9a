"""The games that an adversary plays: Exact, IND-sum and Span.

Each plays many rounds against fresh victims and says how often the adversary won. What an adversary
claims is compared with what the victims really put in; a wrong claim wins nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from secagg import ClientSession, Mode, SessionContext, lowest_threshold
from simulations.audits.base import Figures
from simulations.threats.game.adversary import Adversary
from simulations.threats.game.contexts import Integers, cohort_keys, random_inputs
from simulations.threats.game.rates import rate
from simulations.threats.game.victims import SessionMaker, Victims, refusal, refused_with

AdversaryMaker = Callable[[Victims, np.random.Generator], Adversary]
"""Makes the adversary of a game, such as a subclass of `Adversary`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The round that an attack takes place in.

    Attributes:
        colluders: of them, how many work for the server; as many as the round tolerates.
        lost: clients that the round can lose.
        threshold: t; the lowest that is accepted if None.
        removal: which removable seeds are given up when 0, 1, ... clients are lost, as bit masks.
        degree: of the graph; 0 for the complete one.
    """

    size: int = 6
    colluders: int = 1
    lost: int = 2
    mode: Mode = Mode.ACTIVE
    threshold: int | None = None
    removal: tuple[int, ...] = ()
    degree: int = 0
    bits: int = 16
    length: int = 8

    def context(self, number: int) -> SessionContext:
        """The context of round `number`."""
        lowest = lowest_threshold(self.size, self.colluders, self.mode, self.degree)
        return SessionContext(
            session_id=bytes(16),
            round_number=number,
            cohort=cohort_keys(self.size),
            threshold=lowest if self.threshold is None else self.threshold,
            minimum_survivors=self.size - self.lost,
            mode=self.mode,
            tolerated_colluders=self.colluders,
            degree=self.degree,
            removal=self.removal,
            bits=self.bits,
            length=self.length,
            application_digest=bytes(32),
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a game."""

    trials: int
    wins: int
    chance: float
    refusals: Counter[str]
    seen: Figures = field(default_factory=dict)

    def figures(self) -> Figures:
        """The rate with its interval, and the most frequent refusal."""
        share = rate(self.wins, self.trials, self.chance)
        return {**share, **refused_with(self.refusals), **self.seen}


def deals(
    setting: Setting, trials: int, seed: int
) -> Iterator[tuple[np.random.Generator, SessionContext, Integers]]:
    """Randomness, context and inputs of each round, one seed for all of them."""
    for number in range(trials):
        rng = np.random.default_rng([seed, number])
        context = setting.context(number)
        yield rng, context, random_inputs(rng, context)


def _seat(
    attack: AdversaryMaker,
    session: SessionMaker,
    refusals: Counter[str],
    rng: np.random.Generator,
    context: SessionContext,
    inputs: Integers,
) -> Adversary:
    """An adversary and its victims, before the round."""
    drawn = rng.permutation(context.size)[: context.tolerated_colluders]
    colluders, salt = [int(u) for u in drawn], rng.bytes(8)
    victims = Victims(
        context, inputs, colluders, salt, session, lambda error: refusals.update([refusal(error)])
    )
    return attack(victims, rng)


def play(
    attack: AdversaryMaker,
    setting: Setting,
    trials: int,
    seed: int,
    session: SessionMaker,
    won: Callable[[Adversary, Integers], bool],
) -> Outcome:
    """A game of one's own.

    Args:
        won: whether the adversary has won, given what all clients put in.
    """
    wins, refusals = 0, Counter[str]()
    for rng, context, inputs in deals(setting, trials, seed):
        adversary = _seat(attack, session, refusals, rng, context, inputs)
        adversary.run()
        wins += won(adversary, inputs)
    return Outcome(trials, wins, 0.0, refusals)


def exact(
    attack: AdversaryMaker,
    setting: Setting,
    trials: int,
    seed: int,
    session: SessionMaker = ClientSession,
) -> Outcome:
    """The adversary has to say what one honest client put in, all coordinates of it.

    Inputs are uniform, so a right claim is no accident.
    """
    return play(attack, setting, trials, seed, session, _claims_an_input)


def ind_sum(
    attack: AdversaryMaker,
    setting: Setting,
    trials: int,
    seed: int,
    session: SessionMaker = ClientSession,
) -> Outcome:
    """Two honest inputs that the adversary knows are swapped or not; it has to say which.

    The adversary knows all other inputs, too. A sum over as many honest clients as promised is its
    to have, whoever is in it; one over fewer that has exactly one of the two tells. Without such a
    sum it guesses.
    """
    wins, refusals = 0, Counter[str]()
    for rng, context, inputs in deals(setting, trials, seed):
        swapped, coin = bool(rng.integers(2)), bool(rng.integers(2))
        dealt = inputs.copy()
        adversary = _seat(attack, session, refusals, rng, context, dealt)
        one = adversary.target
        other = next(v for v in adversary.everybody if v not in adversary.colluders | {one})
        if swapped:
            dealt[[one, other]] = inputs[[other, one]]
        adversary.run()
        known = _tell_apart(adversary, dealt, inputs, one, other)
        wins += (coin if known is None else known) == swapped
    return Outcome(trials, wins, 0.5, refusals)


def span_game(
    attack: AdversaryMaker,
    setting: Setting,
    trials: int,
    seed: int,
    session: SessionMaker = ClientSession,
) -> Outcome:
    """The adversary has to open a sum over fewer honest clients than promised, or two sums.

    Returns:
        With `smallest`, the fewest honest clients of any sum that was opened (-1: none was), and
        `promised`, the fewest that there may be.
    """
    promised = setting.size - setting.lost - setting.colluders
    sizes: list[int] = []

    def too_much(adversary: Adversary, inputs: Integers) -> bool:
        opened = [len(members) for members in honest_sums(adversary, inputs)]
        sizes.extend(opened)
        return len(opened) > 1 or min(opened, default=promised) < promised

    outcome = play(attack, setting, trials, seed, session, too_much)
    outcome.seen.update(smallest=min(sizes, default=-1), promised=promised)
    return outcome


def all_games(
    attack: AdversaryMaker,
    setting: Setting,
    trials: int,
    seed: int,
    session: SessionMaker = ClientSession,
) -> Figures:
    """One attack in all three games: it succeeds if it wins one of them."""
    guessed = ind_sum(attack, setting, trials, seed, session).figures()
    opened = span_game(attack, setting, trials, seed, session).figures()
    figures = exact(attack, setting, trials, seed, session).figures()
    figures.update(
        ind_sum_successes=guessed["successes"],
        ind_sum_lower=guessed["lower"],
        span_successes=opened["successes"],
        smallest=opened["smallest"],
        promised=opened["promised"],
    )
    figures["succeeded"] = any(bool(each["succeeded"]) for each in (figures, guessed, opened))
    return figures


def honest_sums(adversary: Adversary, inputs: Integers) -> set[frozenset[int]]:
    """Sets of honest clients over which the adversary opened the right sum."""
    modulus = adversary.context.field.modulus
    found = set()
    for opened in adversary.knowledge.sums():
        right = inputs[list(opened.members)].astype(object).sum(axis=0) % modulus
        honest = frozenset(opened.members) - adversary.colluders
        if honest and np.array_equal(right, opened.vector):
            found.add(honest)
    return found


def _claims_an_input(adversary: Adversary, inputs: Integers) -> bool:
    claimed = adversary.claims().items()
    return any(np.array_equal(vector, inputs[u]) for u, vector in claimed)


def _tell_apart(
    adversary: Adversary, dealt: Integers, inputs: Integers, one: int, other: int
) -> bool | None:
    """Whether the inputs of two clients were swapped, if a sum that must not be opened tells."""
    context = adversary.context
    modulus = context.field.modulus
    promised = context.minimum_survivors - context.tolerated_colluders
    for opened in adversary.knowledge.sums():
        if len(set(opened.members) - adversary.colluders) >= promised:
            continue
        inside = {one, other} & set(opened.members)
        if len(inside) == 1:
            (u,) = inside
            rest = [v for v in opened.members if v != u]
            left = opened.vector.astype(object) - dealt[rest].astype(object).sum(axis=0)
            own, swapped = inputs[u], inputs[other if u == one else one]
            for answer, candidate in ((False, own), (True, swapped)):
                if np.array_equal(left % modulus, candidate.astype(object) % modulus):
                    return answer
    return None
