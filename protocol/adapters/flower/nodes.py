"""Which node speaks for which identity.

Flower numbers nodes; clients check identities. On first contact a node is asked who it is, once:
it signs the run, its own number and a challenge, so nobody can claim another's place. It is one
more round trip in the first round, and for nodes that come later. For one-shot rounds it also
hands over a sealing key, signed for the session: the committee's keys must be known before a round.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

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
from protocol.exchange.remote import OTHER, open_answer
from protocol.exchange.remote_one_shot import checked_entry
from protocol.exchange.stages import Refusal
from protocol.training.accounts import label
from secagg.keys import KEY_BYTES, os_random, signature_is_valid
from secagg.oneshot.committee import Member
from secagg.tags import Usage


@dataclass
class NodeBook:
    """Identities of nodes, as far as they are known.

    Args:
        run_id: of the run.
        registry: identity keys of all parties that may take part.
        session_id: of one-shot rounds; empty if nodes need no sealing key.
    """

    run_id: int
    registry: Collection[bytes]
    session_id: bytes = b""
    _keys: dict[int, bytes] = field(default_factory=dict)
    _entries: dict[bytes, Member] = field(default_factory=dict)

    def entries(self, round_number: int) -> dict[bytes, Member]:
        """Sealing keys, by identity, that are valid in a round; of nodes that are away, too."""
        return {
            key: entry
            for key, entry in self._entries.items()
            if entry.first_round <= round_number <= entry.last_round
        }

    def identify(
        self, post: Post, nodes: Collection[int], message_type: str, seconds: float
    ) -> tuple[dict[bytes, int], dict[int, str]]:
        """Nodes by identity, and why the others have none.

        Of nodes that speak for one identity, as after a restart, the last to say so counts.
        """
        strangers = [node for node in nodes if node not in self._keys]
        reasons = dict.fromkeys(strangers, "did not say in time who it is")
        for node, problem in self._ask(post, strangers, message_type, seconds):
            reasons[node] = problem
        invited = set(nodes)
        known = {key: node for node, key in self._keys.items() if node in invited}
        for node in invited & self._keys.keys() - set(known.values()):
            reasons[node] = "speaks for an identity that another node speaks for too"
        return known, {node: reason for node, reason in reasons.items() if reason}

    def _ask(
        self, post: Post, nodes: Sequence[int], message_type: str, seconds: float
    ) -> Iterator[tuple[int, str]]:
        if not nodes:
            return
        challenge = os_random(CHALLENGE_BYTES)
        challenge += self.session_id
        content = RecordDict({KEY: Request(Step.HELLO, challenge).record()})
        ttl = seconds + TTL_SLACK_SECONDS
        messages = ((node, Message(content, node, message_type, ttl=ttl)) for node in nodes)
        for node, reply in post.exchange(messages, seconds):
            answer = open_answer(reply) if isinstance(reply, bytes) else reply
            if isinstance(answer, Refusal):
                why = "see its own log" if answer.reason == OTHER else answer.reason
                yield node, f"does not say who it is: {why}"
            else:
                yield node, self._enter(node, challenge, answer)

    def _enter(self, node: int, challenge: bytes, claim: bytes) -> str:
        """Believe a claim, or say why not."""
        key, signature = claim[:KEY_BYTES], claim[KEY_BYTES:CLAIM_BYTES]
        about = claimed(self.run_id, node, challenge)
        if not signature_is_valid(key, signature, Usage.NODE, *about):
            return f"claims identity {label(key)} without its signature"
        if key not in self.registry:
            return f"has identity {label(key)}, which is not in the registry"
        if self.session_id:
            problem = self._register(key, claim[CLAIM_BYTES:])
            if problem:
                return problem
        self._keys[node] = key
        return ""

    def _register(self, key: bytes, encoded: bytes) -> str:
        """Take in a sealing key, or say why not."""
        entry = checked_entry(encoded, key, self.session_id, self._entries.values())
        if isinstance(entry, Refusal):
            return f"{entry.reason}, as identity {label(key)}"
        self._entries[key] = entry
        return ""
