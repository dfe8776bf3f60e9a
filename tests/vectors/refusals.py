"""The refusal corpus of the pairwise protocol: see `corpus`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

from secagg.pairwise.reference import Stage

from . import wire
from .bases import ACTIVE, BAD_ELEMENT, GONE, SEEDS, SPARSE
from .corpus import OVER, Edit, Row, cut, edited, exchange, flip, grow, high_bit, lied, put, tag, to
from .handmade import Round
from .positive import HONEST
from .wire import bitmap, index, sign

FIVE = Round(n=5, threshold=3, minimum=4, bits=16, length=5, seed="five")
ROUNDS = {
    **{name: round_ for name, (_, round_) in HONEST.items()},
    "five": FIVE,
    "five-roster": replace(FIVE, drops={4: Stage.ADVERTISE}),
    "five-shared": replace(FIVE, drops={4: Stage.SHARE}),
    "five-few": replace(FIVE, minimum=3, drops={4: Stage.MASK}),
    "five-semi-honest": replace(FIVE, mode="semi_honest"),
    "sparse-whole": replace(SPARSE, drops={}),
    "two-lost": replace(SEEDS, n=5, threshold=3, minimum=3, removal=(0b111, 0b11, 0b11), seed="two",
                        drops={3: Stage.MASK, 4: Stage.UNMASK}),
    "recovery-other": replace(SEEDS, drops={1: Stage.UNMASK}),
}  # fmt: skip
DEFAULT = "active"
"""Honest rounds: the files', and those with more room between a bound and the whole cohort."""

EACH_CLIENT = ("roster 0", "delivered 0", "survivor set", "confirmations 0", "seed request")
EACH_SERVER = ("advertisement 1", "bundle 1", "input 1", "confirmation 1", "unmask 1", "seeds 1")
OTHER_TAG = wire.digest("context", b"another round")[:8]
BITMAPS = (b"", b"\x1f\0", b"\x3f", b"\x80")
"""None is a set of clients of five."""


def base_of(at: str) -> str:
    """The shortest round with a message."""
    return "recovery" if at in ("seeds 1", "seed request") else "active"


def forged(*changed: tuple[int, bytes], base: Round = ACTIVE) -> bytes:
    """The roster over other entries, whose tree and proof are right."""
    return replace(base, forged=dict(changed)).roster(0)


def roster_of(round_: Round, members: Sequence[int], *, proof: int = 0, **changes: bytes) -> bytes:
    """The roster over some of the clients, as client 0 gets it; the proof may be another's."""
    away = dict.fromkeys(set(range(round_.n)) - set(members), Stage.ADVERTISE)
    some = replace(round_, drops=away)
    if 0 in members:
        return some.roster(0, **changes)
    tree = list(some.entries.values())
    shown = {"members": bitmap(members, round_.n), "root": some.root}
    return round_.roster(0, **shown, proof=wire.tree_proof(tree, proof), **changes)


def delivered_from(round_: Round, members: Sequence[int]) -> bytes:
    """Other participants than announced, and just their shares for client 0."""
    sealed = b"".join(round_.sealed(v, 0) for v in members if v and v in round_.participants)
    return round_.message(4, bitmap(members, round_.n), sealed)


def foreign(round_: Round = ACTIVE) -> Round:
    """The same context and clients, but another key of client 2's, hence another round hash."""
    return replace(round_, forged={2: round_.entry(2, masking=bytes(31) + b"\7")})


def stolen(owner: int, key: str, *, base: Round = ACTIVE) -> bytes:
    """One of a client's public keys."""
    entry = base.entry(owner)
    return entry[:32] if key == "sealing" else entry[32:64]


# fmt: off
def client_messages() -> Iterator[Row]:
    """Malformed bytes, wrong phases and other contexts that a client refuses."""
    yield from (
        Row("client-malformed", "roster 0", lambda r: r.roster(0) + b"\0", "MALFORMED",
            says="A roster with a trailing byte."),
        Row("client-malformed-direction", "roster 0", lambda r: r.advertisement(1), "MALFORMED",
            says="A client's message comes from the server."),
        Row("client-oversized", "roster 0", edited(entries=to(bytes(1200))), "OVERSIZED",
            says="A roster longer than any honest message of the round."),
        Row("client-unexpected", "roster 0", lambda r: r.survivor_set(), "UNEXPECTED_MESSAGE",
            says="A survivor set before there is a roster."),
        Row("client-unexpected-again", "delivered 0", lambda r: r.roster(0), "UNEXPECTED_MESSAGE",
            says="The roster a second time."),
        Row("client-unexpected-second-survivors", "confirmations 0",
            lambda r: r.survivor_set([0, 1]), "UNEXPECTED_MESSAGE",
            says="A second survivor set after one was signed: the answer to it would release the "
            "other secret of client 2."),
        Row("client-session-over", "", lambda r: r.survivor_set([0, 1]), OVER,
            says="The survivor set again after the round: the session is over."),
        Row("client-over-semi-honest", "", lambda r: r.survivor_set([0, 1, 2, 3]), OVER,
            base="five-semi-honest"),
        Row("client-over-garbage", "", lambda r: b"garbage", OVER),
        # Shares of the seeds of two sets would add up.
        Row("client-over-second-request", "", lambda r: r.seed_request([1]), OVER, base="recovery"),
        Row("client-after-shares-survivors", "seed request", lambda r: r.survivor_set(),
            "UNEXPECTED_MESSAGE", base="recovery"),
        Row("client-after-shares-confirmations", "seed request",
            lambda r: r.confirmation_set(r.confirmers(0)), "UNEXPECTED_MESSAGE", base="recovery"),
        Row("client-second-set-semi-honest", "seed request", lambda r: r.survivor_set([0, 1, 2]),
            "UNEXPECTED_MESSAGE", to=1, base="recovery-semi-honest"),
    )
    for at in EACH_CLIENT:
        kind, name = at.replace(" 0", "").replace(" ", "-"), base_of(at)
        says = f"The honest message '{at}' under the tag of another context."
        yield Row(f"client-wrong-context-{kind}", at, tag(OTHER_TAG), "WRONG_CONTEXT", base=name,
                  says="" if name == "recovery" else says)
        yield Row(f"client-no-message-{kind}", at, lambda r: b"\1\0", "MALFORMED", base=name)
    for at, field, name in (("roster 0", "members", "five"), ("survivor set", "survivors", "five"),
                            ("delivered 0", "participants", "five"),
                            ("confirmations 0", "confirmers", "five"),
                            ("seed request", "missing", "two-lost")):
        for i, data in enumerate(BITMAPS):
            yield Row(f"client-bitmap-{field}-{i}", at, edited(**{field: to(data)}), "BAD_LENGTH",
                      base=name)
    for at, field, size in (("roster 0", "entries", 144), ("delivered 0", "sealed", 88),
                            ("confirmations 0", "signatures", 64)):
        for name, change in (("empty", to(b"")), ("shorter", cut(1)), ("longer", grow(1)),
                             ("item-less", cut(size)), ("item-more", grow(size))):
            for base in ("five", "sparse") if field == "entries" else ("five",):
                yield Row(f"client-length-{base}-{field}-{name}", at, edited(**{field: change}),
                          "BAD_LENGTH", base=base)


def client_lengths() -> Iterator[Row]:
    """Bitmaps and lists of a wrong length, as files."""
    long, padded = b"\7\0", b"\x0f"
    for name, what, at, field, value in (
        ("roster-set", "longer than", "roster 0", "members", long),
        ("roster-padding", "padded with a one in", "roster 0", "members", padded),
        ("participants", "longer than", "delivered 0", "participants", long),
        ("survivors", "longer than", "survivor set", "survivors", long),
        ("survivors-padding", "padded with a one in", "survivor set", "survivors", padded),
        ("confirmers-padding", "padded with a one in", "confirmations 0", "confirmers", b"\x0b"),
    ):
        yield Row(f"client-bad-length-{name}", at, edited(**{field: to(value)}), "BAD_LENGTH",
                  says=f"The bitmap is {what} that of three.")
    for name, at, change, base, says in (
        ("entries", "roster 0", edited(entries=cut(1)), "", "One byte of the entries is missing."),
        ("entries-more", "roster 0", edited(entries=grow(144)), "", "An entry too many."),
        ("sealed", "delivered 0", edited(sealed=cut(88)), "", "Only one of two sealed shares."),
        ("signatures", "confirmations 0", edited(signatures=cut(64)), "",
         "Two signers, one signature."),
        ("missing", "seed request", edited(missing=to(b"\x0c")), "recovery",
         "A one in the padding of the missing set."),
    ):
        yield Row(f"client-bad-length-{name}", at, change, "BAD_LENGTH", base=base, says=says)


def client_entries() -> Iterator[Row]:
    """Entries, keys and signatures of a roster."""
    own_key, entry = wire.public_key(bytes([7]) * 32), ACTIVE.entry(1)
    at = "roster 0"
    for name, data, says in (
        ("substituted", forged((1, own_key + entry[32:])),
         "The server puts its own sealing key in the place of client 1's, tree and proof "
         "included."),
        ("replayed", forged((1, ACTIVE.entry(1, context_hash=bytes(32)))),
         "Client 1's advertisement of another context."),
        ("swapped", forged((1, ACTIVE.entry(2)), (2, ACTIVE.entry(1))),
         "The advertisements of clients 1 and 2 in one another's place."),
    ):
        yield Row(f"client-bad-signature-{name}", at, lambda r, d=data: d, "BAD_SIGNATURE", 1,
                  says=says)
    for name, says, keys in wire.bad_keys(entry):
        yield Row(f"client-{name}", at, lambda r, k=keys: forged((1, r.entry(1, **k))), "BAD_KEY",
                  1, says=f"Client 1 signed {says}")
    for name, keys, says in (
        ("", {"sealing": stolen(2, "sealing")}, "Client 1 signed the sealing key of client 2."),
        ("-own", {"masking": stolen(0, "sealing")},
         "Client 1 signed our sealing key as its masking key."),
    ):
        yield Row(f"client-duplicate-key{name}", at,
                  lambda r, k=keys: forged((1, r.entry(1, **k))), "DUPLICATE_KEY", says=says)
    near, kinds = SPARSE.neighbours[0], ("sealing", "masking")
    for base, liar, owners in (("active", 1, (0, 2)), ("sparse", near[1], (0, near[3]))):
        for owner, copied, kind in product((*owners, liar), kinds, kinds):
            if owner == liar and copied == kind:
                continue
            key = {kind: stolen(owner, copied, base=ROUNDS[base])}
            # The server cannot hide it in the tree: the root stays what it was.
            yield Row(f"client-copied-{base}-{owner}-{copied}-as-{kind}", at,
                      edited(entries=put_entry(ROUNDS[base], liar, **key)), "DUPLICATE_KEY",
                      base=base)
    for place in (0, 31, 32, 63, 64, 79, 80, 143):
        yield Row(f"client-entry-changed-{place}", at, edited(entries=flip(2 * 144 + place)),
                  "BAD_SIGNATURE", 3, base="five")
    stranger = next(v for v in range(1, 7) if v not in near)
    for name, change, by in (
        ("first", exchange(144, 0, 1), near[0]), ("last", exchange(144, 0, 3), near[0]),
        ("middle", exchange(144, 1, 2), near[1]),
        ("stranger", put(2 * 144, SPARSE.entries[stranger]), near[2]),
        ("replayed", put(3 * 144, SPARSE.entry(near[3], context_hash=bytes(32))), near[3]),
    ):
        yield Row(f"client-neighbour-{name}", at, edited(entries=change), "BAD_SIGNATURE", by,
                  base="sparse")
    yield Row("client-one-in-the-place-of-another", at, edited(members=to(bitmap([0, 1, 2, 4], 5))),
              "BAD_SIGNATURE", 4, base="five-roster")


def put_entry(round_: Round, v: int, **keys: bytes) -> Edit:
    """Client v's entry with other keys, which it signed, in what client 0 gets."""
    return put(144 * round_.neighbours[0].index(v), round_.entry(v, **keys))


def client_tree() -> Iterator[Row]:
    """The proof of the client's own entry."""
    tree = list(ACTIVE.entries.values())
    own_key, at = wire.public_key(bytes([7]) * 32), "roster 0"
    for name, edits, says in (
        ("changed", {"proof": lambda d: d[:-1] + b"\0"}, "The proof's last byte is changed."),
        ("short", {"proof": cut(32)}, "The proof lacks its last hash."),
        ("long", {"proof": grow(32)}, "The proof has a hash too many."),
        ("half", {"proof": cut(1)}, "The proof is not a whole number of hashes."),
        ("place", {"proof": to(wire.tree_proof(tree, 1))},
         "The proof is that of client 1's entry."),
        ("root", {"root": to(wire.tree_root(tree[:2]))}, "The root is that of another tree."),
    ):
        yield Row(f"client-not-in-tree-{name}", at, edited(**edits), "NOT_IN_TREE", says=says)
    yield Row("client-not-in-tree-replayed", at,
              lambda r: forged((0, r.entry(0, masking=own_key))), "NOT_IN_TREE",
              says="The tree has an advertisement of ours from an earlier session of the same "
              "context.")
    for place in (0, 31, 32, -1):
        yield Row(f"client-proof-{place}", at, edited(proof=flip(place)), "NOT_IN_TREE",
                  base="sparse")
    for name, change in (("empty", to(b"")), ("byte-less", cut(1)), ("less", cut(32)),
                         ("more", grow(32)), ("byte-more", grow(1)),
                         ("other", to(wire.tree_proof(list(SPARSE.entries.values()), 5)))):
        yield Row(f"client-proof-{name}", at, edited(proof=change), "NOT_IN_TREE", base="sparse")
    yield Row("client-root-zero", at, edited(root=to(bytes(32))), "NOT_IN_TREE", base="sparse")
    # Its nonce would let the server choose the order of the ring.
    other = SPARSE.entry(0, masking=own_key)
    for name, entry in (("keys", other), ("sealing", SPARSE.entry(0, sealing=own_key)),
                        ("nonce", put(64, bytes(16))(SPARSE.entries[0])),
                        ("place", SPARSE.entries[1])):
        yield Row(f"client-tree-own-{name}", at, lambda r, e=entry: forged((0, e), base=r),
                  "NOT_IN_TREE", base="sparse")


def client_sets() -> Iterator[Row]:
    """Announced sets: what is refused, and what is just large enough."""
    others = replace(ACTIVE, drops={0: Stage.ADVERTISE})
    proof = wire.tree_proof(list(others.entries.values()), 0)
    alone = wire.tree_root([ACTIVE.entries[0]])
    three = [GONE.entries[u] for u in range(3)]
    missing, small, nested = "OWN_ENTRY_MISSING", "SET_TOO_SMALL", "SET_NOT_NESTED"
    yield from (
        Row("client-own-entry-missing-roster", "roster 0",
            edited(members=to(b"\6"), root=to(others.root), proof=to(proof)), missing,
            says="A roster of the two others."),
        Row("client-own-entry-missing-participants", "delivered 0",
            edited(participants=to(b"\6")), missing,
            says="We shared, and are not among the participants."),
        Row("client-own-entry-missing-survivors", "survivor set", edited(survivors=to(b"\6")),
            missing, says="We uploaded, and are declared lost: the answer would release our "
            "masking key."),
        Row("client-set-too-small-roster", "roster 0",
            edited(members=to(b"\1"), root=to(alone), proof=to(b""), entries=to(b"")), small,
            says="A roster of ourselves alone."),
        Row("client-set-too-small-roster-minimum", "roster 0",
            edited(members=to(b"\7"), root=to(wire.tree_root(three)),
                   proof=to(wire.tree_proof(three, 0)), entries=to(b"".join(three[1:]))),
            small, base="recovery-semi-honest",
            says="A roster of three clients, enough for t, where the context wants four."),
        Row("client-set-too-small-participants", "delivered 0",
            edited(participants=to(b"\1"), sealed=to(b"")), small, says="Nobody else shared."),
        Row("client-set-too-small-survivors", "survivor set", edited(survivors=to(b"\1")), small,
            says="Nobody else uploaded: the sum would be our input."),
        Row("client-set-not-nested-participants", "delivered 0",
            edited(participants=to(b"\x1f")), nested, base="active-drops-even",
            says="A participant who is not in the roster."),
        Row("client-set-not-nested-survivors", "survivor set", edited(survivors=to(b"\x1f")),
            nested, base="active-drops-odd", to=1,
            says="A survivor who is not a participant."),
        Row("client-set-not-nested-confirmers", "confirmations 0",
            lambda r: r.confirmation_set([0, 1]), nested, base="active-drop-before-upload",
            says="A client that is not a survivor signed the survivor set."),
        Row("client-missing-signatures-quorum", "confirmations 0",
            lambda r: r.confirmation_set(r.confirmers(0)[:-1]), "MISSING_SIGNATURES",
            base="sparse", says="On the ring one signature less than a quorum: neighbours alone "
            "do not convince."),
        Row("client-set-not-nested-missing", "seed request", edited(missing=to(b"\x0c")), nested,
            base="recovery-semi-honest", to=1,
            says="Seeds are asked for of a client that is not a survivor: those it gave to "
            "nobody."),
        Row("client-set-not-nested-missing-own", "seed request", edited(missing=to(b"\1")),
            nested, base="recovery", says="Our own seeds are asked for."),
    )
    # Four of five at least, where t is three.
    for members, reason in (((1, 2, 3, 4), missing), ((0, 1, 2), small), ((0, 1, 2, 3), "")):
        name = "".join(map(str, members))
        yield Row(f"client-members-{name}", "roster 0",
                  lambda r, m=members: roster_of(r, m), reason, base="five")
        yield Row(f"client-participants-{name}", "delivered 0",
                  lambda r, m=members: delivered_from(r, m), reason, base="five")
        for base in ("five", "five-semi-honest"):
            yield Row(f"client-survivors-{base}-{name}", "survivor set",
                      lambda r, m=members: r.survivor_set(m), reason, base=base)
    # Client 4 has left: it is in the roster and shared, but did not upload.
    for members, reason in (((), missing), ((0,), small), ((0, 1), small), ((0, 1, 2), ""),
                            ((0, 1, 2, 3), "")):
        name = "".join(map(str, members)) or "nobody"
        yield Row(f"client-few-survivors-{name}", "survivor set",
                  lambda r, m=members: r.survivor_set(m), reason, base="five-few")
        yield Row(f"client-few-participants-{name}", "delivered 0",
                  lambda r, m=members: delivered_from(r, m), reason, base="five-few")
    for members in ((0, 1, 2, 4), (0, 1, 2, 3, 4)):
        name = "".join(map(str, members))
        yield Row(f"client-participants-beyond-{name}", "delivered 0",
                  lambda r, m=members: delivered_from(r, m), nested, base="active-drops-even")
        yield Row(f"client-survivors-beyond-{name}", "survivor set",
                  lambda r, m=members: r.survivor_set(m), nested, base="five-shared")
    # A ring of seven with five at least; where the path has the same form, entries show it.
    yield from (
        Row("client-ring-members-4", "roster 0", lambda r: roster_of(r, range(4)), small,
            base="sparse"),
        Row("client-ring-members-5", "roster 0", lambda r: roster_of(r, range(5)), "",
            base="sparse"),
        Row("client-ring-without-us", "roster 0", edited(members=to(b"\x7e")), missing,
            base="sparse"),
        Row("client-ring-last-away", "roster 0", edited(members=to(b"\x3f")), "BAD_SIGNATURE",
            1, base="sparse"),
    )
    for asked, reason in (((), ""), ((0,), nested), ((0, 4), nested), ((3, 4), nested),
                          ((0, 1, 2, 3, 4), nested), ((4,), ""), ((1, 4), "")):
        yield Row(f"client-missing-{'-'.join(map(str, asked)) or 'nobody'}", "seed request",
                  lambda r, a=asked: r.seed_request(a), reason, base="two-lost")


def client_shares() -> Iterator[Row]:
    """What is delivered."""
    at = "delivered 0"
    for name, change, says in (
        ("changed", flip(), "One bit of client 1's sealed share is flipped."),
        ("swapped", exchange(88, 0, 1), "The sealed shares of clients 1 and 2 are swapped."),
        ("recipient", put(0, ACTIVE.sealed(1, 2)), "Client 1's sealed share for client 2."),
        ("roster", put(0, foreign().sealed(1, 0)),
         "Client 1 sealed for a roster with another key of client 2."),
        ("reflected", put(0, ACTIVE.sealed(0, 1)), ""),
        ("other-run", put(0, replace(ACTIVE, seed="another run").sealed(1, 0)), ""),
        ("tag", flip(87), ""),
    ):
        yield Row(f"client-bad-seal-{name}", at, edited(sealed=change), "BAD_SEAL", 1, says=says)
    for name, share, says in (
        ("bad-share", BAD_ELEMENT + ACTIVE.share(2, 0)[4:], "Client 2 deals the element 2^31 - 1."),
        ("share-last", ACTIVE.share(2, 0)[:-4] + BAD_ELEMENT, ""),
        ("share-largest", (wire.SHAMIR_PRIME - 1).to_bytes(4, "little") * 18, ""),
    ):
        yield Row(f"client-{name}", at,
                  lambda r, s=share: r.delivered(0, sealed=r.sealed(1, 0) + r.sealed(2, 0, s)),
                  "" if name == "share-largest" else "BAD_SHARE", 2, says=says)


def client_confirmations() -> Iterator[Row]:
    """Signatures on the survivor set."""
    at, bad = "confirmations 0", "BAD_SIGNATURE"

    def signed_by(r: Round, signers: Sequence[int], survivors: Sequence[int] = ()) -> bytes:
        return r.confirmation_set(signers, [r.confirms(v, survivors) for v in signers])

    yield from (
        Row("client-bad-signature-split-view", at,
            lambda r: r.confirmation_set([0, 1], [r.confirms(0), r.confirms(1, [0, 1])]), bad, 1,
            says="Client 1 signed the set {0, 1}, we signed {0, 1, 2}."),
        Row("client-bad-signature-other-roster", at,
            lambda r: r.confirmation_set([0, 1], [r.confirms(0), sign(
                r.identities[1], "sign survivors", bytes(32), bitmap([0, 1, 2], 3))]), bad, 1,
            says="Client 1 signed the set for another roster."),
        Row("client-missing-signatures", at, lambda r: r.confirmation_set([1]),
            "MISSING_SIGNATURES", says="One signature where t = 2 are needed."),
        Row("client-signature-last", at, lambda r: flip(-1)(r.confirmation_set(range(4))),
            bad, 3, base="five"),
        Row("client-signatures-other-run", at,
            lambda r: foreign(r).confirmation_set([0, 1, 2]), bad, 0, base="five"),
        Row("client-signers-beyond", at, lambda r: signed_by(r, (0, 1, 4)), "SET_NOT_NESTED",
            base="five-few"),
        Row("client-ring-signer-beyond", at,
            lambda r: r.confirmation_set([*r.confirmers(0)[:-1], 2]), "SET_NOT_NESTED",
            base="sparse"),
        Row("client-ring-quorum-more", at, lambda r: r.confirmation_set(r.counted), base="sparse"),
        Row("client-ring-quorum-last", at,
            lambda r: r.confirmation_set(r.counted[-r.quorum:]), base="sparse-whole"),
    )
    for signers, reason in (((), "MISSING_SIGNATURES"), ((0,), "MISSING_SIGNATURES"),
                            ((3, 4), "MISSING_SIGNATURES"), ((1, 2, 4), ""), ((0, 1, 2, 3, 4), "")):
        yield Row(f"client-signers-{''.join(map(str, signers)) or 'nobody'}", at,
                  lambda r, s=signers: r.confirmation_set(s), reason, base="five")
    for survivors in ((0, 1, 2, 3), (0, 1, 2), (1, 2, 3, 4)):
        yield Row(f"client-signed-{''.join(map(str, survivors))}", at,
                  lambda r, s=survivors: signed_by(r, (0, 1, 2), s), bad, 0, base="five")


# -- the server -----------------------------------------------------------------------------------


def server_messages() -> Iterator[Row]:
    """Bytes, phases and contexts."""
    at, other = "advertisement 1", "UNKNOWN_SENDER"
    unsigned = [bytes(size) for size in (32, 32, 16, 64)]
    yield from (
        Row("server-malformed", at, lambda r: r.advertisement(1)[:-1], "MALFORMED",
            says="A truncated advertisement."),
        Row("server-malformed-direction", at, lambda r: r.roster(1), "MALFORMED",
            says="A server's message comes from a client."),
        Row("server-oversized", "bundle 1", lied(sealed=to(bytes(1200))), "OVERSIZED",
            says="A bundle longer than any honest message of the round."),
        Row("server-unexpected", at, lambda r: r.bundle(1), "UNEXPECTED_MESSAGE",
            says="A bundle before there is a roster."),
        Row("server-unexpected-late", "confirmation 0", lambda r: r.masked_input(1),
            "UNEXPECTED_MESSAGE", base="active-drop-before-upload", sender=1,
            says="An upload after the survivor set was announced without its sender."),
        Row("server-unknown-sender-cohort", at, lambda r: r.message(1, 3, *unsigned), other,
            sender=3, says="The transport names a sender outside the cohort."),
        Row("server-unknown-sender-garbage", at, lambda r: b"\x00", other, sender=3,
            says="The same, and the bytes are no message: nobody looks at them."),
        Row("server-unknown-sender-other", "advertisement 2", lambda r: r.advertisement(1), other,
            says="Client 1's own advertisement through client 2's channel."),
        Row("server-session-over", "", lambda r: r.masked_input(0), OVER, sender=0,
            says="An upload after the sum was released: the session is over."),
    )
    for at in EACH_SERVER:
        kind, base = at.split()[0], base_of(at)
        yield from (
            Row(f"server-wrong-context-{kind}", at, tag(OTHER_TAG), "WRONG_CONTEXT", base=base,
                says=f"The honest message '{at}' under the tag of another context."),
            Row(f"server-duplicate-{kind}", at, lambda r, k=kind: r.named(f"{k} 0"),
                "DUPLICATE_MESSAGE", base=base, sender=0,
                says=f"The message '{kind} 0' a second time."),
            Row(f"server-named-{kind}", at, lambda r, k=kind: r.named(f"{k} 0"), other, base=base),
        )
        for sender in (3, 4, 1 << 40, -1, -2):
            yield Row(f"server-stranger-{kind}-{sender}", at, edited(), other, base=base,
                      sender=sender)
    for kind, at in (("advertisement", "bundle 0"), ("bundle", "input 0"), ("input", "unmask 0"),
                     ("confirmation", "unmask 0"), ("unmask", "seeds 0")):
        yield Row(f"server-late-{kind}", at, lambda r, k=kind: r.named(f"{k} 1"),
                  "UNEXPECTED_MESSAGE", base="recovery", sender=1)
    for kind, before, base, at, sender, make in (
        ("bundle", "roster", "active-drops-even", "bundle 1", 4,
         lambda r: r.bundle(4, bytes(32), bytes(3 * 88))),
        ("input", "set of participants", "active-drops-odd", "input 1", 0,
         lambda r: r.masked_input(0, bytes(6))),
        ("confirmation", "survivor set", "active-drop-before-upload", "confirmation 2", 1,
         lambda r: r.confirmation(1)),
        ("unmask", "survivor set", "active-drop-before-upload", "unmask 2", 1,
         lambda r: r.unmask_shares(1)),
        ("seeds", "set of those who gave up shares", "recovery", "seeds 1", 2,
         lambda r: r.seed_shares(2, b"")),
    ):
        yield Row(f"server-unknown-sender-{kind}", at, make, other, base=base, sender=sender,
                  says=f"A client that is not in the {before}.")


def server_signatures() -> Iterator[Row]:
    """What is signed by somebody else, or over something else."""
    entry, bad = ACTIVE.entry(1), "BAD_SIGNATURE"
    masking = entry[:32] + wire.public_key(bytes(32)) + entry[64:]
    for kind, make, says in (
        ("advertisement", lambda r: r.advertisement(1, masking),
         "The masking key was changed on the way."),
        ("bundle", lambda r: r.bundle(1, signature=signed_bundle(r)), "Signed for another roster."),
        ("input", lambda r: r.masked_input(1, signature=foreign(r).masked_input(
            1, wire.pack_vector(r.uploads[1], 16))[-64:]), "Signed for another roster."),
        ("confirmation", lambda r: r.confirmation(1, r.confirms(1, [0, 1])),
         "Signed another survivor set."),
        ("unmask", lambda r: r.unmask_shares(1, survivors=[0, 1]),
         "Signed with another survivor set."),
        ("seeds", lambda r: r.seed_shares(1, r.share(2, 1)[72:], missing=[0]),
         "Signed with another missing set."),
    ):
        yield Row(f"server-bad-signature-{kind}", f"{kind} 1", make, bad, base=base_of(f"{kind} 1"),
                  says=says)
    yield Row("server-bad-signature-vector", "input 1", edited(vector=flip()), bad,
              says="One bit of the vector was flipped on the way.")
    for kind, field in (
        ("advertisement", "sealing_key"), ("advertisement", "masking_key"),
        ("advertisement", "nonce"), ("bundle", "commitments"), ("bundle", "sealed"),
        ("input", "vector"), ("unmask", "shares"), ("unmask", "seeds"), ("seeds", "shares"),
        *((at.split()[0], "signature") for at in EACH_SERVER),
    ):
        for place in (0, -1):
            yield Row(f"server-changed-{kind}-{field}-{place}", f"{kind} 1",
                      edited(**{field: flip(place)}), bad, base="recovery")
    for kind in ("bundle", "input", "confirmation", "unmask", "seeds"):
        yield Row(f"server-other-run-{kind}", f"{kind} 1",
                  lambda r, k=kind: replace(r, seed="another run").named(f"{k} 1"), bad,
                  base="recovery")
    for survivors in ([0, 1, 2], [0, 1, 2, 3]):
        yield Row(f"server-confirmed-{len(survivors)}", "confirmation 1",
                  lambda r, s=survivors: r.confirmation(1, r.confirms(1, s)), bad, base="five")
    # The same strings, signed for another use.
    yield Row("server-seeds-other-use", "seeds 1", lambda r: r.message(11, 1, *signed_seeds(r)),
              bad, base="recovery")


def signed_bundle(round_: Round) -> bytes:
    """Client 1's signature on its bundle of this roster, for another one."""
    sealed = b"".join(round_.sealed(1, v) for v in (0, 2))
    signed = (foreign(round_).hash, index(1), round_.commitments(1), sealed)
    return sign(round_.identities[1], "sign shares", *signed)


def signed_seeds(round_: Round) -> tuple[bytes, bytes]:
    """Client 1's shares of the missing seeds, and its signature as on unmask shares."""
    shares = round_.share(2, 1)[72:]
    signed = (round_.hash, index(1), bitmap(round_.missing, round_.n), shares)
    return shares, sign(round_.identities[1], "sign unmask shares", *signed)


def server_keys() -> Iterator[Row]:
    """Public keys that a server refuses."""
    for name, says, keys, reason in (
        *((name, f"{says[0].upper()}{says[1:]}", keys, "BAD_KEY")
          for name, says, keys in wire.bad_keys(ACTIVE.entry(0))),
        ("duplicate-key", "Client 0's sealing key.", {"sealing": stolen(0, "sealing")},
         "DUPLICATE_KEY"),
        ("duplicate-key-kinds", "Client 0's sealing key as a masking key.",
         {"masking": stolen(0, "sealing")}, "DUPLICATE_KEY"),
        ("duplicate-key-own", "One key for both uses.", {"masking": stolen(1, "sealing")},
         "DUPLICATE_KEY"),
        ("copied-masking", "", {"masking": stolen(0, "masking")}, "DUPLICATE_KEY"),
        ("copied-masking-as-sealing", "", {"sealing": stolen(0, "masking")}, "DUPLICATE_KEY"),
        ("copied-own-as-sealing", "", {"sealing": stolen(1, "masking")}, "DUPLICATE_KEY"),
    ):
        edits = {f"{kind}_key": to(key) for kind, key in keys.items()}
        yield Row(f"server-{name}", "advertisement 1", lied(**edits), reason, says=says)


def server_contents() -> Iterator[Row]:
    """Lengths and ranges that a server refuses."""
    above, largest = (p.to_bytes(2, "little") for p in (wire.prime(16), wire.prime(16) - 1))
    few = "sparse-few-members"
    for name, at, change, reason, base, says in (
        ("bad-length-sealed", "bundle 1", lied(sealed=cut(88)), "BAD_LENGTH", "",
         "A sealed share is missing."),
        ("bad-length-commitments", "bundle 1", lied(commitments=grow(32)), "BAD_LENGTH", "",
         "A commitment too many."),
        ("bad-length-vector", "input 1", lied(vector=grow(2)), "BAD_LENGTH", "",
         "A vector with an element too many."),
        ("not-in-field", "input 1", lied(vector=put(-2, above)), "NOT_IN_FIELD", "",
         "The vector's last element is p."),
        ("not-in-field-padding", "input 1", lied(vector=high_bit), "NOT_IN_FIELD", few,
         "A one in the last byte's padding."),
        ("bad-share-element", "unmask 1", lied(shares=put(0, BAD_ELEMENT)), "BAD_SHARE", "",
         "A share has the element 2^31 - 1."),
        ("bad-share-length", "unmask 1", lied(shares=cut(36)), "BAD_SHARE", "",
         "A share is missing."),
        ("bad-share-seeds", "unmask 1", lied(seeds=to(bytes(32))), "BAD_SHARE", "",
         "A removable seed where there are none."),
        ("bad-share-recovery-element", "seeds 1", lied(shares=put(0, BAD_ELEMENT)), "BAD_SHARE",
         "recovery", "A seed's share has the element 2^31 - 1."),
        ("bad-share-recovery-length", "seeds 1", lied(shares=cut(36)), "BAD_SHARE", "recovery",
         "One share for two seeds."),
        ("wrong-seed", "unmask 1", lied(seeds=put(32, bytes(32))), "WRONG_SEED", "recovery",
         "The second removable seed that client 1 gives up is not the one it committed to."),
        ("largest-element", "input 1", lied(vector=put(-2, largest)), "", "", ""),
    ):
        yield Row(f"server-{name}", at, change, reason, base=base, says=says)
    for at, field, reason in (("bundle 1", "commitments", "BAD_LENGTH"),
                              ("bundle 1", "sealed", "BAD_LENGTH"),
                              ("input 1", "vector", "BAD_LENGTH"),
                              ("unmask 1", "shares", "BAD_SHARE"),
                              ("unmask 1", "seeds", "BAD_SHARE"),
                              ("seeds 1", "shares", "BAD_SHARE")):
        for name, change in (("empty", to(b"")), ("byte-less", cut(1)), ("byte-more", grow(1)),
                             ("less", cut(32)), ("more", grow(32)), ("share-less", cut(36)),
                             ("share-more", grow(36)), ("seal-less", cut(88)),
                             ("seal-more", grow(88))):
            yield Row(f"server-length-{at.split()[0]}-{field}-{name}", at, lied(**{field: change}),
                      reason, base="recovery")
    for place in range(3):
        yield Row(f"server-element-{place}", "input 1", lied(vector=put(2 * place, above)),
                  "NOT_IN_FIELD")
    for at in ("unmask 1", "seeds 1"):
        for place in (0, -4):
            for element in (BAD_ELEMENT, b"\xff" * 4):
                yield Row(f"server-share-{at[:-2]}-{place}-{element.hex()}", at,
                          lied(shares=put(place, element)), "BAD_SHARE", base="recovery")
    one, two = SEEDS.secrets(1)[2:4]
    for name, seeds in (("exchanged", two + one), ("twice", one + one), ("zeros", bytes(64)),
                        ("another's", b"".join(SEEDS.secrets(0)[2:4])),
                        ("first", bytes([one[0] ^ 1]) + one[1:] + two)):
        yield Row(f"server-seeds-{name}", "unmask 1", lied(seeds=to(seeds)), "WRONG_SEED",
                  base="recovery")
# fmt: on


TABLE = (
    client_messages,
    client_lengths,
    client_entries,
    client_tree,
    client_sets,
    client_shares,
    client_confirmations,
    server_messages,
    server_signatures,
    server_keys,
    server_contents,
)
"""The rows, group by group."""
