"""A2, A3, A8, A14: clients are asked for too much, or told different things."""

from __future__ import annotations

from dataclasses import replace

from secagg import ClientSession, Mode
from secagg.framing import split_items
from secagg.keys import KEY_BYTES, SIGNATURE_BYTES
from secagg.pairwise.graph import held_by
from secagg.pairwise.messages import SeedShares, UnmaskShares, shared_secrets
from secagg.shamir import SHARE_BYTES, decode_share
from simulations.audits.base import Figures
from simulations.threats.attack import Attack, Effort, Findings, both, either, exact_game, twins
from simulations.threats.game.adversary import Adversary
from simulations.threats.game.contexts import Members
from simulations.threats.game.games import Setting, all_games, play, span_game
from simulations.threats.game.knowledge import FIRST_SEED, MASKING_KEY, SELF_MASK
from simulations.threats.game.victims import SessionMaker
from simulations.threats.game.weak_clients import (
    BelievesConfirmations,
    BothShares,
    KeepsAllShares,
    ReusableSession,
    believing,
    no_consistency,
)

_CURIOUS = Setting(mode=Mode.SEMI_HONEST)
_ACTIVE = Setting()
_SURPLUS = Setting(removal=(0b11, 0b01, 0b00))
"""Two removable seeds: both are surplus if nobody is lost, none if two clients are."""
_ALL_SURPLUS = replace(_CURIOUS, removal=(0b1, 0b1, 0b1))
"""One removable seed that everybody gives up, so that shares of it may be asked for."""


class ReadsBothShares(Adversary):
    """Hopes for both kinds of share from every client, and reads them if they come."""

    def took_answer(self, u: int, message: UnmaskShares) -> None:
        """One share for each owner, or two."""
        view = self.answered(message)
        owners = held_by(u, set(view.participants), view.roster.graph)
        if len(message.shares) != 2 * SHARE_BYTES * len(owners):
            super().took_answer(u, message)
            return
        shares = decode_share(message.shares, 2 * len(owners))
        for i, owner in enumerate(owners):
            for which in (SELF_MASK, MASKING_KEY):
                self.knowledge.learn_share(view.roster, owner, which, u, shares[2 * i + which])


class ReadsSeedShares(Adversary):
    """Says that the target never gave up its seeds, and reads all that holders send for them."""

    reads_from = SELF_MASK
    """The first secret of a share that it makes use of."""

    def missing_for(self, u: int) -> Members:
        """The target; it is not asked about itself."""
        return tuple(v for v in self.stories[u][-1] if v == self.target != u)

    def took_seeds(self, u: int, message: SeedShares, missing: Members) -> None:
        """Shares of surplus seeds, or of everything."""
        view = self.told(u)[-1]
        owners = held_by(u, set(missing), view.roster.graph)
        secrets = shared_secrets(self.context)
        if len(message.shares) != SHARE_BYTES * secrets * len(owners):
            super().took_seeds(u, message, missing)
            return
        shares = decode_share(message.shares, secrets * len(owners))
        for i, share in enumerate(shares):
            owner, which = owners[i // secrets], i % secrets
            if which >= self.reads_from:
                self.knowledge.learn_share(view.roster, owner, which, u, share)


class TakesKeptSeeds(ReadsSeedShares):
    """One client is lost, so one seed of the target has to stay; its shares are asked for."""

    reads_from = FIRST_SEED

    def survivors_for(self, u: int) -> Members:
        """One client less, and not the target."""
        return self.without(self.without(self.target)[-1])


class SplitsTheView(Adversary):
    """Tells half of the others that the target is lost, and the rest that it is there."""

    def survivors_for(self, u: int) -> Members:
        """With or without the target."""
        others = self.without(self.target)
        return self.without() if u in {self.target, *others[::2]} else others


class ScattersTheLost(Adversary):
    """Tells each client of other lost ones, so that more are lost to all than to any single one.

    With 2t > n + n_C nobody's two secrets can be had, whatever clients are told. But two are lost
    to each of them, and with the shares of all of them together three are: the sum has less noise
    than promised.
    """

    def survivors_for(self, u: int) -> Members:
        """The target and one more are in every set; the others are lost in turn."""
        honest = [v for v in sorted(self.uploaded) if v not in self.colluders]
        kept = [self.target, next(v for v in honest if v != self.target)]
        doomed = [v for v in honest if v not in kept]
        start = doomed.index(u) + 1 if u in doomed else kept.index(u) if u in kept else 0
        count = self.context.size - self.context.minimum_survivors
        return self.without(*(doomed[(start + i) % len(doomed)] for i in range(count)))


class ForgesConfirmations(ScattersTheLost):
    """Shows as many signatures as convince: for missing ones, those on other sets, or nonsense."""

    def signatures_for(self, u: int) -> dict[int, bytes]:
        """Right ones first."""
        roster, story = self.rosters[u][-1], self.stories[u][-1]
        shown = dict(super().signatures_for(u))
        elsewhere = {v: made for signed in self.signatures.values() for v, made in signed.items()}
        for v in sorted((roster.committee.members & set(story)) - set(shown)):
            if len(shown) < roster.committee.quorum:
                shown[v] = elsewhere.get(v) or self.rng.bytes(SIGNATURE_BYTES)
        return shown


class AsksAgain(Adversary):
    """Gets shares for everybody, then asks once more and says that the target is lost."""

    def announce(self) -> None:
        """Announce the survivors twice, with another set the second time."""
        super().announce()
        others = self.without(self.target)
        for u in others:
            self.tell(u, others)


class TakesSurplus(Adversary):
    """Two clients are lost; every survivor is asked to give up noise as if nobody was."""

    def survivors_for(self, u: int) -> Members:
        """Two clients less."""
        return self.without()[:-2]

    def took_answer(self, u: int, message: UnmaskShares) -> None:
        """Shares, and whatever seeds there are, from the first one on."""
        view = self.answered(message)
        self.knowledge.learn_shares(view, message)
        seeds = split_items(message.seeds, KEY_BYTES, len(message.seeds) // KEY_BYTES)
        for number, seed in enumerate(seeds):
            self.knowledge.learn_secret(view.roster, u, FIRST_SEED + number, seed)

    def took_seeds(self, u: int, message: SeedShares, missing: Members) -> None:
        """Shares of seeds that are here already."""


class SaysNobodyIsLost(TakesSurplus):
    """Two uploads are missing, and everybody is told that they are there."""

    def survivors_for(self, u: int) -> Members:
        """Name everybody who uploaded, lost or not."""
        return self.without()

    def announce(self) -> None:
        """Nobody has these two uploads."""
        for u in self.without()[-2:]:
            self.knowledge.forget_upload(u)
        super().announce()


def reduced_noise(adversary: Adversary) -> bool:
    """Whether the server has a seed of noise that had to stay in a sum that it can open."""
    context, knowledge = adversary.context, adversary.knowledge
    promised = context.minimum_survivors - context.tolerated_colluders
    for opened in knowledge.sums():
        honest = set(opened.members) - adversary.colluders
        if len(honest) < promised:
            continue
        for u in honest:
            # Somebody whose input was opened may have been told nothing.
            told = (len(story) for story in adversary.stories[u])
            survivors = min([len(knowledge.uploads), *told])
            stay = set(range(context.seeds)) - set(context.removed_seeds(survivors))
            roster = adversary.rosters[u][-1]
            if any(knowledge.secret(roster, u, FIRST_SEED + i) is not None for i in stay):
                return True
    return False


def _and(first: Findings, name: str, second: Findings) -> Findings:
    """Two attacks on one promise: either may break the product, and both must break their twins."""

    def named(of: Figures, *what: str) -> Figures:
        return {f"{name}_{each}": of[each] for each in what if each in of}

    lost = named(second.real, "trials", "successes", "refused_with")
    won = named(second.twin, "trials", "successes")
    return Findings(either(first.real, second.real, **lost), both(first.twin, second.twin, **won))


def _both_shares(effort: Effort, seed: int) -> Findings:
    both = twins(exact_game(ReadsBothShares, _CURIOUS), 20, 500, session=BothShares)
    asked = twins(exact_game(ReadsSeedShares, _ALL_SURPLUS), 20, 500, session=KeepsAllShares)
    return _and(both(effort, seed), "seed_requests", asked(effort, seed))


def _split_view(effort: Effort, seed: int) -> Findings:
    trials = effort.choose(20, 300)
    told_apart = Findings(
        all_games(SplitsTheView, _ACTIVE, trials, seed),
        # The twin is the product itself where it trusts the server to tell everybody the same.
        all_games(SplitsTheView, _CURIOUS, trials, seed),
    )

    def scattered(attack: type[Adversary], weak: SessionMaker) -> Findings:
        rounds = trials // 2
        return Findings(
            span_game(attack, _ACTIVE, rounds, seed).figures(),
            span_game(attack, _ACTIVE, rounds, seed, weak).figures(),
        )

    unsigned = scattered(ScattersTheLost, no_consistency)
    forged = scattered(ForgesConfirmations, BelievesConfirmations)
    return _and(_and(told_apart, "scattered", unsigned), "forged", forged)


def _reduced_noise(effort: Effort, seed: int) -> Findings:
    trials = effort.choose(10, 250)

    def played(attack: type[Adversary], session: SessionMaker = ClientSession) -> Figures:
        won = play(attack, _SURPLUS, trials, seed, session, lambda each, _: reduced_noise(each))
        return won.figures()

    obedient = believing(removal=_SURPLUS.removal[:1] * len(_SURPLUS.removal))
    too_many = Findings(played(TakesSurplus), played(TakesSurplus, obedient))
    # What nobody can be made to believe has no twin of its own: both lies need the same obedience.
    hidden = Findings(played(SaysNobodyIsLost), too_many.twin)
    asked = Findings(played(TakesKeptSeeds), played(TakesKeptSeeds, KeepsAllShares))
    return _and(_and(too_many, "hidden_losses", hidden), "seed_requests", asked)


ATTACKS = (
    Attack(
        id="A2",
        promise="P1",
        name="both shares from one client",
        title="No client gives up both secrets of another",
        says="gets a neighbour's shares of both secrets of a client, in one reply or with a later "
        "request for surplus seeds",
        stopped_by="one share for each neighbour, of the kind that follows from the signed set; "
        "the rest is forgotten",
        run=_both_shares,
    ),
    Attack(
        id="A3",
        promise="P1",
        name="split view of the survivors",
        title="Clients that are told different survivor sets open nothing",
        says="tells half of the clients that u survived and the others that it was lost; "
        "reports different losses to each; forges signatures",
        stopped_by="a quorum's signatures on one survivor set, and 2t > n + n_C",
        refused_with="RemoteProtocolError MISSING_SIGNATURES",
        run=_split_view,
    ),
    Attack(
        id="A8",
        promise="P1",
        name="second survivor set",
        title="A session answers one survivor set only",
        says="asks for shares twice, with different sets",
        stopped_by="the state is used up before the client answers",
        refused_with="SessionAbortedError",
        run=twins(exact_game(AsksAgain, _CURIOUS), 20, 500, session=ReusableSession),
    ),
    Attack(
        id="A14",
        promise="P4",
        name="false dropouts",
        title="Lies about lost clients do not reduce the noise of an opened sum",
        says="declares live clients lost, or lost ones live, to change the noise that is removed; "
        "asks for shares of seeds that must stay secret",
        stopped_by="the number of lost clients follows from the signed survivor set",
        run=_reduced_noise,
    ),
)
