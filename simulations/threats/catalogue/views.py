"""A2, A3, A8, A14: clients are asked for too much, or told different things."""

from __future__ import annotations

from secagg import ClientSession, Mode
from secagg.client import held_by
from secagg.keys import KEY_BYTES
from secagg.messages import UnmaskShares, split_items
from secagg.shamir import SHARE_BYTES, decode_share
from simulations.threats.adversary import Adversary
from simulations.threats.catalogue.base import Attack, AttackRun, Effort, Findings
from simulations.threats.contexts import Members
from simulations.threats.games import Outcome, Setting, all_games, exact, play
from simulations.threats.knowledge import FIRST_SEED, MASKING_KEY, SELF_MASK
from simulations.threats.victims import SessionMaker
from simulations.threats.weak_clients import BothShares, ReusableSession, believing

_CURIOUS = Setting(mode=Mode.SEMI_HONEST)
_ACTIVE = Setting()
_SURPLUS = Setting(removal=(0b11, 0b01, 0b00))
"""Two removable seeds: both are surplus if nobody is lost, none if two clients are."""


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


class SplitsTheView(Adversary):
    """Tells half of the others that the target is lost, and the rest that it is there."""

    def survivors_for(self, u: int) -> Members:
        """With or without the target."""
        alive = super().survivors_for(u)
        others = [v for v in alive if v != self.target]
        believers = {self.target, *others[::2]}
        return alive if u in believers else tuple(others)


class AsksAgain(Adversary):
    """Gets shares for everybody, then asks once more and says that the target is lost."""

    def announce(self) -> None:
        """Twice."""
        super().announce()
        lost = tuple(v for v in sorted(self.uploaded) if v != self.target)
        for u in lost:
            self.tell(u, lost)


class TakesSurplus(Adversary):
    """Two clients are lost; every survivor is asked to give up noise as if nobody was."""

    def survivors_for(self, u: int) -> Members:
        """Two clients less."""
        return tuple(sorted(self.uploaded))[:-2]

    def took_answer(self, u: int, message: UnmaskShares) -> None:
        """Shares, and whatever seeds there are, from the first one on."""
        view = self.answered(message)
        self.knowledge.learn_shares(view, message)
        seeds = split_items(message.seeds, KEY_BYTES, len(message.seeds) // KEY_BYTES)
        for number, seed in enumerate(seeds):
            self.knowledge.learn_secret(view.roster, u, FIRST_SEED + number, seed)


class SaysNobodyIsLost(TakesSurplus):
    """Two uploads are missing, and everybody is told that they are there."""

    def survivors_for(self, u: int) -> Members:
        """Everybody."""
        return tuple(sorted(self.uploaded))

    def announce(self) -> None:
        """Nobody has these two uploads."""
        for u in tuple(sorted(self.uploaded))[-2:]:
            self.knowledge.forget_upload(u)
        super().announce()


def thin_noise(adversary: Adversary) -> bool:
    """Whether the server has a seed of noise that had to stay in a sum that it can open."""
    context, knowledge = adversary.context, adversary.knowledge
    promised = context.minimum_survivors - context.tolerated_colluders
    for opened in knowledge.sums():
        honest = set(opened.members) - adversary.colluders
        if len(honest) < promised:
            continue
        for u in honest:
            survivors = min(len(adversary.stories[u][-1]), len(knowledge.uploads))
            stay = set(range(context.seeds)) - set(context.removed_seeds(survivors))
            roster = adversary.rosters[u][-1]
            if any(knowledge.secret(roster, u, FIRST_SEED + i) is not None for i in stay):
                return True
    return False


def _exactly(attack: type[Adversary], setting: Setting, weak: SessionMaker) -> AttackRun:
    def run(effort: Effort, seed: int) -> Findings:
        trials = effort.choose(20, 500)
        return Findings(
            exact(attack, setting, trials, seed, ClientSession).figures(),
            exact(attack, setting, trials, seed, weak).figures(),
        )

    return run


def _split_view(effort: Effort, seed: int) -> Findings:
    trials = effort.choose(20, 300)
    return Findings(
        all_games(SplitsTheView, _ACTIVE, trials, seed),
        # The twin is the product itself where it trusts the server to tell everybody the same.
        all_games(SplitsTheView, _CURIOUS, trials, seed),
    )


def _thin_noise(effort: Effort, seed: int) -> Findings:
    trials = effort.choose(10, 250)

    def played(attack: type[Adversary], session: SessionMaker) -> Outcome:
        return play(attack, _SURPLUS, trials, seed, session, lambda each, _: thin_noise(each))

    told_wrong = played(SaysNobodyIsLost, ClientSession)
    obedient = believing(removal=_SURPLUS.removal[:1] * len(_SURPLUS.removal))
    real = played(TakesSurplus, ClientSession)
    both = Outcome(
        real.trials + told_wrong.trials,
        real.wins + told_wrong.wins,
        0.0,
        real.refusals + told_wrong.refusals,
    )
    return Findings(both.figures(), played(TakesSurplus, obedient).figures())


ATTACKS = (
    Attack(
        id="A2",
        title="No client gives up both secrets of another",
        stopped_by="a reply that holds one share for each neighbour, chosen by the client",
        run=_exactly(ReadsBothShares, _CURIOUS, BothShares),
    ),
    Attack(
        id="A3",
        title="Clients that are told different survivor sets open nothing",
        stopped_by="signatures of a quorum on the survivor set, and 2t > n + n_C",
        run=_split_view,
    ),
    Attack(
        id="A8",
        title="A session answers one survivor set only",
        stopped_by="a state that is used up before it answers",
        run=_exactly(AsksAgain, _CURIOUS, ReusableSession),
    ),
    Attack(
        id="A14",
        title="Lies about lost clients do not thin the noise of an opened sum",
        stopped_by="the number of lost clients follows from the survivor set that is signed",
        run=_thin_noise,
    ),
)
