"""A server that tells clients different things about one round, and wants a sum all the same.

It does not follow the protocol: no session of the server's is asked. Masks cancel only between
clients that accepted one roster, so whatever it tries, it has to show a client a roster first. It
has three ways to:

* one roster for all, with the tag of every message rewritten for its reader;
* for each group that was told the same, a roster of its own;
* one roster for all in which it has signed the advertisements anew, for the reader's context: with
  stolen identity keys, which is more than the protocol promises to survive.

No upload under a roster with clients that were told something else is a defence that held; where
a client uploads, the attack counts as successful without any further work.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary

from protocol import RoundSetup
from protocol.exchange.stages import PEER_ERRORS
from protocol.round import setup as round_setup
from secagg import FieldSum, Identity, ProtocolError, SessionContext
from secagg.framing import encode_message, encode_set
from secagg.pairwise import context as pairwise_context
from secagg.pairwise.graph import held_by
from secagg.pairwise.messages import (
    Advertisement,
    DeliveredShares,
    ShareBundle,
    context_tag,
)
from secagg.pairwise.roster import RoundRoster, advertisement_parts
from secagg.tags import Usage
from simulations.threats.game.victims import sent_as
from simulations.threats.game.weak_clients import replaced, unbound
from simulations.threats.rounds.parties import Participant, opened_sum

Participants = Mapping[int, Participant]
Advertised = Mapping[int, Advertisement]


class Story(enum.Enum):
    """How the server brings clients with different contexts together."""

    ONE_ROSTER = "one roster for all"
    OWN_ROSTERS = "a roster for each group"
    STOLEN_KEYS = "one roster, signed with stolen identity keys"


@dataclass
class SplitOutcome:
    """What a split round came to."""

    sums: list[FieldSum] = field(default_factory=list)
    # Clients that handed over a masked update under a roster with clients in it that were told
    # something else.
    uploads: list[int] = field(default_factory=list)
    refusals: dict[int, Exception] = field(default_factory=dict)

    def involves(self, client: int) -> bool:
        """Whether the server has something of this client's."""
        return client in self.uploads or any(client in total.survivors for total in self.sums)


def run_split(
    people: Participants, identities: Mapping[int, Identity], story: Story
) -> SplitOutcome:
    """Play one story to its end."""
    outcome = SplitOutcome()
    _advertised({i: each for i, each in people.items() if not each.understands}, outcome)
    if outcome.refusals:
        return outcome
    contexts = {index: person.setup.context for index, person in people.items()}
    if story is Story.OWN_ROSTERS:
        _each_group(people, contexts, outcome)
        return outcome
    advertised = _advertised(people, outcome)
    shown = {
        index: advertised
        if story is Story.ONE_ROSTER
        else _signed_anew(advertised, contexts[index], identities, index)
        for index in advertised
    }
    _go_on(people, contexts, shown, outcome)
    return outcome


def open_sum(people: Participants, context: SessionContext, outcome: SplitOutcome) -> None:
    """Run an honest round over some clients; what ends it ends it for all."""
    try:
        outcome.sums.append(opened_sum(context, people))
    except ProtocolError as error:
        outcome.refusals |= dict.fromkeys(people, error)
    outcome.refusals |= {i: each.error for i, each in people.items() if each.error is not None}


def open_unbound(people: Participants, context: SessionContext, outcome: SplitOutcome) -> None:
    """The same with clients for whom nothing that they are told goes into a context's hash."""
    # The clients of a process share the setups that they have read; these must not be among them.
    shared = (round_setup, "_SETUPS", WeakValueDictionary[Any, RoundSetup]())
    with replaced((pairwise_context, "digest", lambda *_: bytes(32)), shared):
        open_sum(people, unbound(context), outcome)


def _each_group(
    people: Participants, contexts: Mapping[int, SessionContext], outcome: SplitOutcome
) -> None:
    """Groups that are large enough run a round; the others are shown their roster all the same."""
    for context in {told.hash: told for told in contexts.values()}.values():
        group = {i: person for i, person in people.items() if contexts[i].hash == context.hash}
        if len(group) >= context.minimum_survivors:
            open_sum(group, context, outcome)
            continue
        advertised = _advertised(group, outcome)
        shown = dict.fromkeys(advertised, advertised)
        _go_on(group, contexts, shown, outcome)


def _go_on(
    people: Participants,
    contexts: Mapping[int, SessionContext],
    shown: Mapping[int, Advertised],
    outcome: SplitOutcome,
) -> None:
    """Show everybody a roster, deliver what the shares were sealed in, and take uploads."""
    rosters = {i: RoundRoster.build(contexts[i], advertised) for i, advertised in shown.items()}

    def show(index: int) -> bytes:
        message = encode_message(rosters[index].to_message(contexts[index], index))
        answer = people[index].receive(message)
        return answer or b""

    bundles = {}
    for index, data in _ask(show, shown, outcome).items():
        bundles[index] = sent_as(ShareBundle, data, index).sealed
    if not bundles:
        return

    def deliver(index: int) -> bytes:
        senders = held_by(index, set(bundles), rosters[index].graph, include_self=False)
        sealed = (_sealed_for(index, rosters[owner], owner, bundles[owner]) for owner in senders)
        delivered = DeliveredShares(
            context=context_tag(contexts[index]),
            participants=encode_set(sorted(bundles), contexts[index].size),
            sealed=b"".join(sealed),
        )
        people[index].receive(encode_message(delivered))
        return people[index].submit()

    outcome.uploads += _ask(deliver, bundles, outcome)


def _sealed_for(recipient: int, roster: RoundRoster, owner: int, bundle: bytes) -> bytes:
    """The recipient's part of a bundle, whatever size its owner was told that parts have."""
    holders = [holder for holder in roster.graph.holders(owner) if holder != owner]
    size, place = len(bundle) // len(holders), holders.index(recipient)
    return bundle[place * size : (place + 1) * size]


def _ask(
    ask: Callable[[int], bytes], whom: Iterable[int], outcome: SplitOutcome
) -> dict[int, bytes]:
    """What clients answer; who refuses is noted with its typed error."""
    answers = {}
    for index in whom:
        try:
            answers[index] = ask(index)
        except PEER_ERRORS as error:
            outcome.refusals[index] = error
    return answers


def _advertised(people: Participants, outcome: SplitOutcome) -> dict[int, Advertisement]:
    """Advertisements, whatever context they are tagged with: a roster carries no tags of them."""
    opened = _ask(lambda i: people[i].open(), people, outcome)
    return {index: sent_as(Advertisement, data, index) for index, data in opened.items()}


def _signed_anew(
    advertised: Advertised,
    context: SessionContext,
    identities: Mapping[int, Identity],
    reader: int,
) -> dict[int, Advertisement]:
    """The same keys, signed for the reader's context; its own entry it would recognise."""
    signed = dict(advertised)
    for index, message in advertised.items():
        if index == reader:
            continue
        parts = advertisement_parts(
            context, index, message.sealing_key, message.masking_key, message.nonce
        )
        signature = identities[index].sign(Usage.ADVERTISE, *parts)
        signed[index] = Advertisement(
            context=context_tag(context),
            sender=index,
            sealing_key=message.sealing_key,
            masking_key=message.masking_key,
            nonce=message.nonce,
            signature=signature,
        )
    return signed
