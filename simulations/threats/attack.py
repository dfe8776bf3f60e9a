"""One attack: what it tries, what stops it, and how both runs of it are reported.

Every attack runs twice: on the product, where it must fail, and on a victim with the one defence
missing, where it must succeed. Victims without a defence are built in `simulations.threats`; the
product has no switch for any of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from protocol import PolicyError
from secagg import ClientSession, ParameterError, ProtocolError
from simulations.audits.base import Check, Effort, Exhibit, Figures
from simulations.threats.game.games import AdversaryMaker, Setting, exact
from simulations.threats.game.rates import rate
from simulations.threats.game.victims import SessionMaker, refusal, refused_with
from simulations.threats.game.weak_clients import Missing, replaced

__all__ = [
    "Attack",
    "AttackRun",
    "Effort",
    "Findings",
    "both",
    "either",
    "exact_game",
    "once",
    "parameter_refused",
    "rate",
    "refusal",
    "refused_with",
    "tried",
    "twins",
]


AttackRun: TypeAlias = "Callable[[Effort, int], Findings]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """An entry of the catalogue: all that reports, tests and documents say of an attack."""

    id: str
    promise: str
    name: str
    title: str  # what must hold in spite of it, in words
    says: str  # what the adversary does
    stopped_by: str  # the defence that its twin lacks
    # How the product refuses it, as `refusal` writes it; empty for an attack that noise, masks or
    # numbers stop, and for one that is refused in several ways.
    refused_with: str = ""
    # Pages of the documentation that say more, and other checks that try the same.
    see: tuple[str, ...] = ()
    run: AttackRun  # takes an effort and a seed that fixes everything but the victims' own secrets

    def row(self) -> str:
        """Its row of the table in docs/threat-model.md."""
        links = [f"[{to.split('#')[0]}]({to})" if ".md" in to else f"`{to}`" for to in self.see]
        stopped_by = "; see ".join([self.stopped_by, *links])
        return f"| {self.id} | {self.name} | {self.says} | {stopped_by} |"

    def check(self, effort: Effort, seed: int) -> Check:
        """Run it with and without the defence."""
        found = self.run(effort, seed)
        return Check.of(self.id, self.title, found.real, found.twin, found.exhibits)


@dataclass(frozen=True, slots=True)
class Findings:
    """What both runs of an attack came to."""

    # Figures of the product; ``succeeded`` must be false. Where a typed error stopped the attack,
    # ``refused_with`` names it: its type, and its reason if it has one.
    real: Figures
    twin: Figures  # figures of the victim without the defence; ``succeeded`` must be true
    exhibits: tuple[Exhibit, ...] = ()  # pictures for the report

    def __post_init__(self) -> None:
        for side in (self.real, self.twin):
            if type(side.get("succeeded")) is not bool:
                raise ParameterError("succeeded", side.get("succeeded"), "a bool on both sides")


def twins(
    game: Callable[..., Figures], quick: int, full: int, *missing: Missing, **weak: Any
) -> AttackRun:
    """An attack that is one game, played as often on the product as on its twin."""

    def run(effort: Effort, seed: int) -> Findings:
        trials = effort.choose(quick, full)
        real = game(trials, seed)
        with replaced(*missing):
            return Findings(real, game(trials, seed, **weak))

    return run


def once(game: Callable[..., Figures], *missing: Missing, **weak: Any) -> AttackRun:
    """The same for a game that is not played in trials: once on the product and on its twin."""
    return twins(lambda _, seed, **how: game(seed, **how), 1, 1, *missing, **weak)


def either(first: Figures, second: Figures | bool, **more: Any) -> Figures:
    """The first one's figures, of the product: it is broken if one of two attacks came through."""
    also = second if isinstance(second, bool) else bool(second["succeeded"])
    return {**first, **more, "succeeded": bool(first["succeeded"]) or also}


def both(first: Figures, second: Figures | bool, **more: Any) -> Figures:
    """The first one's figures, of a twin: it is broken only if two attacks came through."""
    also = second if isinstance(second, bool) else bool(second["succeeded"])
    return {**first, **more, "succeeded": bool(first["succeeded"]) and also}


def exact_game(attack: AdversaryMaker, setting: Setting) -> Callable[..., Figures]:
    """The game Exact, for `twins`: of clients of the product unless told of another session."""

    def game(trials: int, seed: int, session: SessionMaker = ClientSession) -> Figures:
        return exact(attack, setting, trials, seed, session).figures()

    return game


def tried(attempt: Callable[[int], bool], trials: int) -> Figures:
    """How often an attempt came through, by its number, and how it was refused most often."""
    won, refusals = 0, Counter[str]()
    for number in range(trials):
        try:
            won += attempt(number)
        except (ParameterError, PolicyError, ProtocolError) as error:
            refusals[parameter_refused(error)] += 1
    return {**rate(won, trials), **refused_with(refusals)}


def parameter_refused(error: Exception) -> str:
    """A typed error as `refusal` writes it, and the parameter that it names, if it does."""
    named = getattr(error, "parameter", getattr(error, "argument", ""))
    return f"{refusal(error)} {named}".strip()
