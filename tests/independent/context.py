"""Contexts of rounds, and the announcements that state them, from the documents alone."""

from __future__ import annotations

import re
import struct
from dataclasses import astuple, dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any

from tests.independent.blocks import cut, decode, require, sized, tagged, u64, verify
from tests.independent.draw import Draw

LARGEST_RINGS = {1024: 1, 2048: 2, 4096: 3, 8192: 7}  # primes for each degree
EARLY_SECONDS = 300  # how fast the server's clock may be


@dataclass(frozen=True)
class Context:
    """The public parameters of a round."""

    session_id: bytes
    mode: str
    round_number: int
    threshold: int
    minimum_survivors: int
    tolerated_colluders: int
    degree: int
    bits: int
    length: int
    security_bits: int
    opened_at: int
    lifetime_seconds: int
    removal: tuple[int, ...]
    cohort: tuple[bytes, ...]
    application_digest: bytes

    @cached_property
    def hash(self) -> bytes:
        """What everything in the round is bound to."""
        integers = u64(
            self.round_number,
            self.threshold,
            self.minimum_survivors,
            self.tolerated_colluders,
            self.degree,
            self.bits,
            self.length,
            self.security_bits,
            self.opened_at,
            self.lifetime_seconds,
        )
        cohort, digests = b"".join(self.cohort), self.application_digest
        head = (self.session_id, self.mode.encode(), integers, u64(*self.removal))
        return sha256(tagged("context", sized(*head, cohort, digests))).digest()

    def check(self, now: float | None) -> None:
        """Refuse a context that promises nothing, or a time outside its round."""
        n, t, corrupt = len(self.cohort), self.threshold, self.tolerated_colluders
        require(len(set(self.cohort)) == n, "one key for two clients")
        require(corrupt < t <= self.minimum_survivors <= n, "threshold")
        require(self.mode in ("active", "semi_honest"), "mode")
        holders = self.degree or n
        require(self.mode != "active" or 2 * t > holders + corrupt, "threshold in active mode")
        check_time(self.opened_at, self.lifetime_seconds, now)


def check_time(opened_at: int, lifetime: int, now: float | None) -> None:
    """Refuse a time that is outside the round."""
    if lifetime and now is not None:
        require(-EARLY_SECONDS <= now - opened_at <= lifetime, "not the time of the round")


def read_fields(data: bytes, version: bytes, shape: str) -> list[Any]:
    """The fields of an announcement, whose types a pattern has as letters."""
    require(data[: len(version)] == version, "version of the announcement")
    fields = decode(data[len(version) :])
    letters = {bytes: "b", int: "i", str: "s", float: "f", bool: "o", list: "l"}
    require(isinstance(fields, list), "no announcement")
    found = "".join(letters.get(type(field), "-") for field in fields)
    require(re.fullmatch(shape, found) is not None, "fields of the announcement")
    return list(fields)


def read_announcement(data: bytes, model_digest: bytes) -> Context:
    """The context that a server of training announces, for a model that the client has."""
    fields = read_fields(data, b"\x03", "bibiisiiifbfb[f-]i[il]ifoiii")
    session, number, cohort, threshold, minimum, mode, corrupt, degree, bits = fields[:9]
    length, noise, dropouts, exact = length_of(fields[10]), fields[15], fields[16], fields[18]
    keys = tuple(cut(cohort, 32))
    removal = removal_table(noise, len(keys), dropouts, corrupt) if exact else ()
    application = application_digest(model_digest, fields[9:18])
    terms = [session, mode, number, threshold, minimum, corrupt, degree, bits, length]
    return Context(*[*terms, *fields[19:], removal, keys, application])


def length_of(spec: bytes) -> int:
    """The number of elements of an encoded update, from the sketch's canonical bytes."""
    require(len(spec) == 50, "a sketch")
    rows, columns, copies, probe = struct.unpack("<10x4Q8x", spec)
    return int(rows * columns * copies + probe)


def application_digest(model_digest: bytes, fields: list[Any]) -> bytes:
    """What binds a round to the model and to the way from an update to integers."""
    require(len(fields) == 9, "fields of the announcement")
    clip, spec, sketch_clip, seed, scale, bound, noise, dropouts, wrap = fields
    if isinstance(noise, list):
        label, made = b"veilsum/round/2/" + noise[0].encode() + b"\0", struct.pack("<d", noise[1])
    else:
        label, made = b"veilsum/round/1", u64(noise)
    if scale is None:
        label, scale = b"veilsum/round/4/" + label, 1.0
    numbers = struct.pack("<3d", clip, sketch_clip, scale) + u64(bound) + made + u64(dropouts)
    return sha256(label + model_digest + spec + seed + numbers + struct.pack("<d", wrap)).digest()


def removal_table(coins: int, cohort: int, dropouts: int, corrupt: int) -> tuple[int, ...]:
    """Which removable seeds survivors reveal for each number of lost clients.

    As docs/dropouts.md has it: the batches that were not needed, in the cheaper of two schedules.
    So many coins are one client's where as many are lost as are tolerated.
    """
    require(dropouts + corrupt < cohort, "nobody is left")
    total = coins * (cohort - dropouts - corrupt)
    needed = [-(-total // (cohort - lost - corrupt)) for lost in range(dropouts + 1)]
    if 100 * needed[-1] <= 102 * needed[0]:
        return ()
    extra = [count - needed[0] for count in needed]
    steps = [lost for lost in range(1, dropouts + 1) if extra[lost] > extra[lost - 1]]
    for batches in range(1, len(steps)):  # a unit, its doubles, and the rest
        unit = -(-extra[-1] // (2**batches - 1))
        sizes = [unit << i for i in range(batches - 1)]
        sizes.append(extra[-1] - sum(sizes))
        kept = []
        for count in extra:
            with_rest = count > sum(sizes[:-1])
            units = -(-(count - sizes[-1] * with_rest) // unit)
            kept.append(max(units, 0) + (with_rest << (batches - 1)))
        left = [sum(size for i, size in enumerate(sizes) if mask >> i & 1) for mask in kept]
        enough = zip(left, needed, strict=True)
        if all(100 * (needed[0] + more) <= 102 * least for more, least in enough):
            return tuple(2**batches - 1 - mask for mask in kept)
    # One batch for each step, of which the first few are kept.
    numbers = range(dropouts + 1)
    return tuple(sum(1 << i for i, at in enumerate(steps) if at > lost) for lost in numbers)


@dataclass(frozen=True)
class OneShotContext:
    """The public parameters of a one-shot round whose members add no noise."""

    session_id: bytes
    round_number: int
    size: int
    minimum_survivors: int
    tolerated_colluders: int
    degree: int
    limbs: int
    rounding_bits: int
    entries: int
    bits: int
    length: int
    opened_at: int
    lifetime_seconds: int
    removal: tuple[int, ...]
    cohort_root: bytes
    kind: str
    corrupt: int
    randomness: int
    per_polynomial: int
    quorum: int
    members: tuple[bytes, ...]
    application_digest: bytes
    draw: Draw | None = None

    @cached_property
    def hash(self) -> bytes:
        """What everything in the round is bound to."""
        integers, numbers = u64(*astuple(self)[1:13]), u64(*astuple(self)[16:20])
        draw = [self.draw.encode()] if self.draw else []
        committee = sized(self.kind.encode(), numbers, *draw, *self.members)
        head = (self.session_id, integers, u64(*self.removal), self.cohort_root, committee)
        weak = b"\0"  # a ring that we refuse
        encoded = sized(*head, weak, self.application_digest)
        return sha256(tagged("one-shot context", encoded)).digest()

    def check(self, now: float | None) -> None:
        """Refuse what the theorem does not cover, and members' keys for other rounds."""
        corrupt, fewest, count = self.tolerated_colluders, self.minimum_survivors, len(self.members)
        require(self.randomness >= self.corrupt, "too little randomness")
        require(self.randomness + self.per_polynomial <= count, "too few members")
        require(count + self.corrupt < 2 * self.quorum <= 2 * count, "quorum")
        require(2 * fewest > self.size + corrupt and fewest - corrupt >= 2, "survivors")
        require(self.limbs <= LARGEST_RINGS.get(self.degree, 0), "a weak ring")
        require(len({member[:32] for member in self.members}) == count, "one key for two members")
        require((self.kind == "drawn") == (self.draw is not None), "a draw for another kind")
        for member in self.members:
            key, rounds, signature = member[32:64], member[64:80], member[80:]
            first, last = struct.unpack("<2Q", rounds)
            require(first <= self.round_number <= last, "a sealing key for other rounds")
            verify(member[:32], signature, "sign sealing key", self.session_id, key, rounds)
        check_time(self.opened_at, self.lifetime_seconds, now)


def read_one_shot(data: bytes, model_digest: bytes) -> tuple[OneShotContext, int, bytes]:
    """The context, our index in the cohort, and the path to our key in the cohort's tree."""
    fields = read_fields(data, b"one-shot\x01", "biibiisbiiiiiiiiiioiilbib[l-]-")
    session, number, size, root, minimum, corrupt, kind, members = fields[:8]
    numbers, ring, exact, times = fields[8:12], fields[12:18], fields[18], fields[19:21]
    fixed, announced, index, path = fields[21:25]
    digest = application_digest(model_digest, fixed)
    require(digest == announced, "another model, or other terms")
    removal = removal_table(fixed[6], size, fixed[7], corrupt) if exact else ()
    terms = [session, number, size, minimum, corrupt, *ring, *times, removal, root, kind, *numbers]
    entries, draw = tuple(cut(members, 144)), None
    if fields[25] is not None:
        require(len(fields[25]) == 6, "fields of the draw")
        *drawn, positions, proof = fields[25]
        draw = Draw(*drawn)
        draw.check(session, number, [entry[:32] for entry in entries], positions, proof)
    return OneShotContext(*[*terms, entries, digest, draw]), index, path
