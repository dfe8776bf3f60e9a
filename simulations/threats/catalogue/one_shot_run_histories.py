"""A61 to A64: what a client counts in a run whose noise comes back, and terms that it refuses.

A charge grows after its client took part. So a client counts whole runs, from the records that
every announcement lists; a server would rather have it count something else. The clients and their
histories are the product's; the records are what a server may say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, replace
from functools import partial
from typing import Any, Final

from dp import BinomialMechanism, DiscreteGaussianMechanism, UnsupportedEventError
from dp.correlated import CorrelatedAccountant, RoundParts, correlated_epsilon, theorem
from dp.correlated.event import CorrelatedRelease
from dp.correlated.replay import replayed_run
from protocol import ClientHistory, ClientPolicy, PrivacyGoal
from protocol.errors import PolicyError
from protocol.goal import delta_for_noise
from protocol.round import returned_events
from protocol.round.account import Pay
from protocol.round.one_shot_setup import OneShotSetup
from protocol.round.parameters import RoundParameters
from protocol.round.returned_events import RunEvents
from protocol.round.returned_noise import ReturnedNoise
from protocol.round.run_account import RunAccount
from protocol.round.setup import RoundEncoding
from protocol.training.accounts import ClientAccounts
from secagg import ParameterError
from secagg.oneshot.committee import CommitteeKind
from secagg.oneshot.records import RoundRecord
from simulations.audits.base import Figures
from simulations.threats.attack import (
    Attack,
    Effort,
    Findings,
    both,
    either,
    once,
    rate,
    refused_with,
)
from simulations.threats.game.weak_clients import replaced
from simulations.threats.one_shot.returning import (
    APART,
    CLIENTS,
    GOAL,
    MEMBERS,
    ROUNDS,
    ReturningRun,
    noise_of,
    parameters_of,
    with_noise,
)
from sketch import SketchSpec

_TARGET: Final = 0
_EVERYBODY: Final = tuple(range(MEMBERS))

Story = Callable[[ReturningRun], bool]
"""One run; whether the client did what it must not do."""


def _records(rounds: int) -> list[RoundRecord]:
    """Of rounds in which everybody was there, and took back what it had added."""
    return [RoundRecord(t, CLIENTS, _EVERYBODY, _EVERYBODY if t else ()) for t in range(rounds)]


def _played(stories: Sequence[Story], seed: int) -> Figures:
    won, refusals = 0, Counter[str]()
    for number, story in enumerate(stories):
        run = ReturningRun(seed + number, counting=True)
        won += story(run)
        refusals += run.refusals
    return {**rate(won, len(stories)), **refused_with(refusals)}


# -- A61 ------------------------------------------------------------------------------------------


def _second_committee(run: ReturningRun) -> bool:
    """Two committees that the client trusts, each with a run of its own in one session."""
    sent = [run.upload(_TARGET, run.setup(k, committee=k)) for k in range(2)]
    return all(sent)


def _second_list(run: ReturningRun) -> bool:
    """The same committee, in a list that does not know of the client's rounds."""
    before = _records(APART + 1)
    first = run.upload(_TARGET, run.setup(APART, before[:APART]))
    return bool(first and run.upload(_TARGET, run.setup(APART + 1, [])))


def _many_attempts(run: ReturningRun) -> bool:
    """Attempts without end of one round: nobody but the server says that they came to nothing."""
    return all(run.upload(_TARGET, run.setup(number)) for number in range(2 * GOAL.rounds + 1))


def _takes_any_list(self: RunAccount, setup: OneShotSetup, epsilon: float, pay: Pay) -> None:
    """The twin's: nothing is remembered of the records."""
    self._bounds = {setup.context.round_number: setup.parameters.l2_bound}
    pay(setup.released.worst_case, {})


# -- A62 ------------------------------------------------------------------------------------------


def _as_if_independent(run: ReturningRun) -> RoundParameters:
    """As much noise in a round as would do if none of it came back."""
    right = parameters_of(run.plan)
    parts, returned = run.setup(0).run_events.parts, noise_of(right)
    multiplier = run.policy().minimum_noise_multiplier
    factor = 1.001 * (multiplier * right.l2_bound) ** 2 / parts.least_fresh
    return replace(
        right,
        mechanism=DiscreteGaussianMechanism(factor * right.mechanism.variance),
        returned=replace(returned, variance=factor * returned.variance),
    )


def _cheap_run(policy: Callable[[ReturningRun], ClientPolicy]) -> Story:
    """The client takes part twice, and everything comes back until the end."""

    def story(run: ReturningRun) -> bool:
        parameters, records = _as_if_independent(run), _records(ROUNDS)
        sent = [
            run.upload(_TARGET, run.setup(t, records[:t], parameters=parameters), policy(run))
            for t in (0, APART)
        ]
        return _spent(
            run, parameters, [t for t, data in zip((0, APART), sent, strict=True) if data]
        )

    return story


def _spent(run: ReturningRun, parameters: RoundParameters, own: Sequence[int]) -> bool:
    """Whether the run costs a client with these rounds more than its goal."""
    parts = run.setup(0, parameters=parameters).run_events.parts
    accountant, before = CorrelatedAccountant(), None
    for t, record in enumerate(_records(ROUNDS)):
        now = RoundParts(
            clients=parts.fewest_clients,
            entered=parts.fewest_members,
            returned=parts.fewest_members if record.returned else 0,
        )
        bound = parameters.l2_bound if t in own else 0.0
        accountant.compose(parts.release(t + 1, now, before, bound))
        before = now
    return accountant.epsilon(delta_for_noise(GOAL.delta, ROUNDS)) > GOAL.epsilon


def _own_rounds_only(
    self: RunAccount, events: RunEvents, bounds: Sequence[float], goal: PrivacyGoal
) -> float:
    """The twin's count: of rounds that it takes part in, as if they were all."""
    parts, own = events.parts, events.worst_case.l2_sensitivity
    charge = sum(bound**2 for bound in (*bounds, own)) / parts.least_fresh
    return correlated_epsilon(charge, parts.promises, delta_for_noise(goal.delta, parts.rounds))


def _ledger(run: ReturningRun, skipped: bool = False) -> tuple[float, float]:
    """Epsilon of a client in rounds 0 and 6 by a server's accounts, and by the other route."""
    accounts, written = ClientAccounts(GOAL.reserve), []
    records = _records(ROUNDS)
    for t, record in enumerate(records):
        events = run.setup(t, records[:t]).events(CLIENTS, record)
        own = t in (0, APART)
        if own or not skipped:
            accounts.record(["client"] if own else [], events)
        event = events.server if own else events.absent
        if not isinstance(event, CorrelatedRelease):
            raise AssertionError("noise comes back in these runs")
        written.append({"tag": event.tag, **asdict(event)})
    delta = delta_for_noise(GOAL.delta, ROUNDS)
    return accounts.epsilons(GOAL.delta, 1).server, replayed_run(written, delta)


def _ledger_case(seed: int) -> Figures:
    """Whether a ledger has what a whole run costs, and what becomes of one without some rounds."""
    run = ReturningRun(seed)
    by_accounts, replayed = _ledger(run)
    try:
        _ledger(run, skipped=True)
        skipped = "taken"
    except UnsupportedEventError as error:
        skipped = type(error).__name__
    return {
        "ledger_is_enough": by_accounts >= replayed * (1.0 - 1e-6) > 0.0,
        "ledger_without_rounds": skipped,
    }


def _whole_runs(effort: Effort, seed: int) -> Findings:
    del effort

    def alone(run: ReturningRun) -> ClientPolicy:
        return run.policy(equal_rounds=False)

    runs = (_cheap_run(ReturningRun.policy), _cheap_run(alone))
    real, ledger = _played(runs, seed), _ledger_case(seed)
    kept = bool(ledger["ledger_is_enough"]) and ledger["ledger_without_rounds"] != "taken"
    # A policy looks ahead, so without the count it would still refuse; without both nobody does.
    with replaced((RunAccount, "_most", _own_rounds_only)):
        return Findings(either(real, not kept, **ledger), _played(runs[1:], seed))


# -- A63 ------------------------------------------------------------------------------------------


def _too_soon(gap: int) -> Story:
    """The client is invited again after so many rounds; it has no goal that would stop it."""

    def story(run: ReturningRun) -> bool:
        run.histories[_TARGET] = ClientHistory()
        policy = run.policy(goal=None)
        sent = [run.upload(_TARGET, run.setup(t, _records(t)), policy) for t in (2, 2 + gap)]
        return all(sent)

    return story


def _apart(effort: Effort, seed: int) -> Findings:
    del effort
    right = RunAccount.check

    def lax(self: RunAccount, setup: RoundEncoding, apart: int = 1) -> float:
        return right(self, setup, 1)

    stories = [_too_soon(gap) for gap in (1, APART - 1)]
    due = _played([_too_soon(APART)], seed)
    real = _played(stories, seed)
    with replaced((RunAccount, "check", lax)):
        twin = _played(stories, seed)
    return Findings({**real, "taken_when_due": int(due["successes"])}, twin)


# -- A64 ------------------------------------------------------------------------------------------


def _fine_noise(run: ReturningRun) -> bool:
    """Parts so small that sums of them are no Gaussian any more, at the right ratio."""
    right = parameters_of(run.plan)
    parameters = replace(
        right,
        sketch=SketchSpec.identity(2),
        scale=0.5,
        linf_bound=2,
        mechanism=DiscreteGaussianMechanism(0.3),
        returned=ReturnedNoise(variance=1.2, rounds=ROUNDS, divisor=CLIENTS),
    )
    return bool(run.upload(_TARGET, run.setup(0, parameters=parameters), run.policy(dimension=2)))


@contextmanager
def _no_gap() -> Any:
    """Inside, integers are taken for real numbers."""
    returned_events.planned_epsilon.cache_clear()
    with replaced((theorem, "_ratio_gap", lambda *_: 0.0)):
        yield
    returned_events.planned_epsilon.cache_clear()


def _changed_terms(**terms: Any) -> Story:

    def story(run: ReturningRun) -> bool:
        other = with_noise(run.plan, **terms)
        second = run.setup(APART, _records(APART), parameters=other)
        return bool(run.upload(_TARGET, run.setup(0)) and run.upload(_TARGET, second))

    return story


def _beyond(run: ReturningRun) -> bool:
    """One round more than the run has, in which the last one's noise would come back."""
    shorter = with_noise(run.plan, rounds=APART)
    with _no_last_round():  # for the server alone, unless the story is told inside another
        setup = run.setup(APART, _records(APART), parameters=shorter)
    run.histories[_TARGET] = ClientHistory()
    return bool(run.upload(_TARGET, setup, run.policy(goal=None)))


def _no_last_round() -> AbstractContextManager[Any]:
    """Inside, what comes after the last round of `_beyond` is the last round once more."""
    last = property(lambda self: min(len(self._records) + 1, APART))
    return replaced((returned_events.RunEvents, "index", last))


def _other_kinds() -> dict[str, str]:
    """What is refused before there is an announcement."""
    run = ReturningRun(0)
    right, context = parameters_of(run.plan), run.setup(0).context
    tries: dict[str, Callable[[], object]] = {
        "binomial": lambda: replace(right, mechanism=BinomialMechanism(1000)),
        "committee_of_everyone": lambda: replace(
            context, committee=replace(context.committee, kind=CommitteeKind.EVERYONE)
        ),
        "removable": lambda: replace(context, removal=(1,) * CLIENTS),
    }
    found = {}
    for name, attempt in tries.items():
        try:
            attempt()
            found[name] = "taken"
        except (ParameterError, PolicyError) as error:
            found[name] = f"{type(error).__name__} {getattr(error, 'argument', '')}"
    return found


def _terms(effort: Effort, seed: int) -> Findings:
    del effort
    variance = noise_of(parameters_of(ReturningRun(seed).plan)).variance
    changed = (
        _changed_terms(rounds=APART + 1),
        _changed_terms(divisor=CLIENTS - 1),
        _changed_terms(variance=1.01 * variance),
    )
    kinds = _other_kinds()
    real = _played((*changed, _fine_noise, _beyond), seed)
    with replaced((RoundParameters, "block_digest", lambda _: bytes(32))):
        twin = _played(changed, seed)
    with _no_gap():
        fine = _played((_fine_noise,), seed)
    with _no_last_round():
        beyond = _played((_beyond,), seed)
    others = {
        "fine_noise_taken": int(fine["successes"]),
        "rounds_beyond_the_last": int(beyond["successes"]),
    }
    return Findings(
        either(real, "taken" in kinds.values(), **kinds), both(both(twin, fine), beyond, **others)
    )


ATTACKS: Final = (
    Attack(
        id="A61",
        promise="P13",
        name="a goal spent in two runs",
        title="A client's goal is spent in one run, with one committee and one list of rounds",
        says="has a client take part under two committees in one session, or in a list that omits "
        "its rounds; begins attempts without end",
        stopped_by="the head of the records, which a client remembers; a bound on its uploads",
        refused_with="PolicyError records",
        run=once(
            partial(_played, (_second_committee, _second_list, _many_attempts)),
            (RunAccount, "charge", _takes_any_list),
        ),
    ),
    Attack(
        id="A62",
        promise="P13",
        name="a count of a client's own rounds only",
        title="A client counts what comes back after it took part",
        says="plans only as much noise as would do if none were taken back",
        stopped_by="an account of whole runs, including all noise that may still be taken back",
        refused_with="PolicyError epsilon",
        run=_whole_runs,
    ),
    Attack(
        id="A63",
        promise="P13",
        name="rounds closer than planned",
        title="Nobody is talked into rounds that are nearer to one another than planned",
        says="invites a client again too soon",
        stopped_by="the client's own minimum distance between rounds",
        refused_with="PolicyError apart",
        run=_apart,
    ),
    Attack(
        id="A64",
        promise="P13",
        name="other terms, and noise too fine",
        title="The terms of a run stay as they are, and its noise is not too fine",
        says="changes horizon, divisor or variance in a client's second round; goes on after "
        "the last round; announces parts of 0.3 at the right ratio",
        stopped_by="terms that are in every list; the integer gap, which is in epsilon",
        refused_with="PolicyError records",
        run=_terms,
    ),
)
