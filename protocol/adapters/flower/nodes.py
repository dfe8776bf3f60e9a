"""Which node speaks for which identity.

Flower numbers nodes; clients check identities. On first contact a node is asked who it is, once:
it signs the run, its own number and a challenge, so nobody can claim another's place. It is one
more round trip in the first round, and for nodes that come later. For one-shot rounds it also
hands over a sealing key, signed for rounds of the session: the committee's keys must be known
before a round. Some rounds before a key's end its owner is asked once more, for the next one.

Where cohorts are hidden, clients are asked before every round whether they come.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from flwr.app import Message, RecordDict

from protocol.adapters.flower.carrier import TTL_SLACK_SECONDS, Post
from protocol.adapters.flower.client import claimed
from protocol.adapters.flower.record import (
    CHALLENGE_BYTES,
    CLAIM_BYTES,
    KEY,
    Request,
    Step,
)
from protocol.authority.session import Announcer
from protocol.exchange.remote import OTHER, open_answer
from protocol.exchange.sealing_book import SealingBook
from protocol.exchange.stages import Refusal
from protocol.round.turns import YES, Question
from protocol.training.accounts import label
from secagg.keys import KEY_BYTES, os_random, signature_is_valid
from secagg.tags import Usage


class NodeBook:
    """Identities of nodes, as far as they are known.

    Args:
        committee: those of a named committee's members; none if everyone is on it.
        announcer: signs what members are asked; None where nobody does.
    """

    def __init__(
        self,
        run_id: int,
        registry: Collection[bytes],
        committee: Collection[bytes] = (),
        announcer: Announcer | None = None,
    ) -> None:
        self._announcer = announcer
        self._run_id = run_id
        self._known = frozenset(registry) | frozenset(committee)
        self._members = frozenset(committee or registry)
        self._keys: dict[int, bytes] = {}
        self.sealing: SealingBook | None = None

    def identify(
        self,
        post: Post,
        nodes: Collection[int],
        message_type: str,
        seconds: float,
        round_number: int = 0,
    ) -> tuple[dict[bytes, int], dict[int, str]]:
        """Nodes by identity, and why the others have none.

        Of nodes that speak for one identity, as after a restart, the last to say so counts. Members
        whose sealing keys end soon are asked as well, for the next ones.
        """
        asked = {node: round_number for node in nodes if node not in self._keys}
        reasons = dict.fromkeys(asked, "did not say in time who it is")
        asked |= self._renewals(nodes, round_number)
        for node, problem in self._ask(post, asked, message_type, seconds):
            reasons[node] = problem
        invited = set(nodes)
        known = {key: node for node, key in self._keys.items() if node in invited}
        for node in invited & self._keys.keys() - set(known.values()):
            reasons[node] = "speaks for an identity that another node speaks for too"
        return known, {node: reason for node, reason in reasons.items() if reason}

    def _renewals(self, nodes: Collection[int], round_number: int) -> dict[int, int]:
        """Known nodes that are to hand over another sealing key, and for which round."""
        if self.sealing is None:
            return {}
        members = {node: key for node in nodes if (key := self._keys.get(node)) in self._members}
        wanted = {node: self.sealing.wanted(key, round_number) for node, key in members.items()}
        return {node: number for node, number in wanted.items() if number is not None}

    def _ask(
        self, post: Post, rounds: Mapping[int, int], message_type: str, seconds: float
    ) -> Iterator[tuple[int, str]]:
        """Ask nodes, with the rounds that they need keys for."""
        if not rounds:
            return
        challenge = os_random(CHALLENGE_BYTES)
        payloads = {node: challenge + self._request(number) for node, number in rounds.items()}
        requests = {
            node: Request(Step.HELLO, payload, signed=self._signed(rounds[node]))
            for node, payload in payloads.items()
        }
        for node, answer in _exchanged(post, requests, message_type, seconds):
            if isinstance(answer, Refusal):
                yield node, f"does not say who it is: {_why(answer)}"
            else:
                yield node, self._enter(node, payloads[node], answer, rounds[node])

    def turns(
        self,
        post: Post,
        nodes: Mapping[bytes, int],
        question: Question,
        message_type: str,
        seconds: float,
    ) -> tuple[dict[bytes, bool], dict[int, str]]:
        """Whether clients come to a round, by identity, and why the others, by node, do not say.

        Args:
            nodes: those of the clients, by identity.
        """
        asked, said = question.encode(), dict[bytes, bool]()
        signed = self._announcer.envelope(asked) if self._announcer else b""
        keys = {node: key for key, node in nodes.items()}
        requests = dict.fromkeys(keys, Request(Step.TURN, asked, signed=signed))
        reasons = dict.fromkeys(keys, "did not say in time whether it comes")
        for node, answer in _exchanged(post, requests, message_type, seconds):
            if isinstance(answer, Refusal):
                reasons[node] = f"does not say whether it comes: {_why(answer)}"
            else:
                said[keys[node]] = answer == YES
                del reasons[node]
        return said, reasons

    def _request(self, round_number: int) -> bytes:
        return self.sealing.request(round_number) if self.sealing else b""

    def _signed(self, round_number: int) -> bytes:
        asked = self._request(round_number)
        return self._announcer.envelope(asked) if self._announcer and asked else b""

    def _enter(self, node: int, challenge: bytes, claim: bytes, round_number: int) -> str:
        """Believe a claim, or say why not."""
        key, signature = claim[:KEY_BYTES], claim[KEY_BYTES:CLAIM_BYTES]
        about = claimed(self._run_id, node, challenge)
        if not signature_is_valid(key, signature, Usage.NODE, *about):
            return f"claims identity {label(key)} without its signature"
        if key not in self._known:
            return f"has identity {label(key)}, which is not in the registry"
        if self.sealing:
            refusal = self.sealing.add(key, claim[CLAIM_BYTES:], round_number)
            if refusal:
                return f"{refusal.reason}, as identity {label(key)}"
        self._keys[node] = key
        return ""


def _exchanged(
    post: Post, requests: Mapping[int, Request], message_type: str, seconds: float
) -> Iterator[tuple[int, bytes | Refusal]]:
    """Answers to requests that come before a round, by node; silent ones are left out."""
    ttl = seconds + TTL_SLACK_SECONDS
    messages = (
        (node, Message(RecordDict({KEY: request.record()}), node, message_type, ttl=ttl))
        for node, request in requests.items()
    )
    for node, reply in post.exchange(messages, seconds):
        yield node, open_answer(reply) if isinstance(reply, bytes) else reply


def _why(refusal: Refusal) -> str:
    return "see its own log" if refusal.reason == OTHER else refusal.reason
