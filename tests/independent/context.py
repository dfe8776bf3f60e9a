"""Contexts of rounds, and the announcements that state them, from the documents alone."""

from __future__ import annotations

import struct
from hashlib import sha256
from types import SimpleNamespace

from tests.independent.wire import cut, decode, digest, require, sized, u64, verify

ADDED = "clip_l2 sketch sketch_clip_l2 seed scale linf_bound noise tolerated_dropouts wrap"
PAIRWISE = f"""session_id round_number cohort threshold minimum_survivors mode tolerated_colluders
    degree bits {ADDED} exact security_bits opened_at lifetime_seconds""".split()
PAIRWISE_TYPES = "bibiisiiifbfbfi[il]ifoiii"
ONE_SHOT = """session_id round_number size cohort_root minimum_survivors tolerated_colluders kind
    members corrupt randomness per_polynomial quorum degree limbs rounding_bits entries bits length
    exact opened_at lifetime_seconds added application_digest index path draw noise_of_members
    """.split()
ONE_SHOT_TYPES = "biibiisbiiiiiiiiiioiilbib--"
LARGEST_RINGS = {1024: 1, 2048: 2, 4096: 3, 8192: 7}  # primes for each degree
EARLY_SECONDS = 300  # how fast the server's clock may be


class Context(SimpleNamespace):
    """The public parameters of a pairwise round, under their names in the document."""

    @property
    def hash(self) -> bytes:
        """What everything in the round is bound to."""
        names = """round_number threshold minimum_survivors tolerated_colluders degree bits length
            security_bits opened_at lifetime_seconds"""
        numbers, removal = self.numbers(names), u64(*self.removal)
        parts = (self.session_id, self.mode.encode(), numbers, removal, b"".join(self.cohort))
        return digest("context", sized(*parts, self.application_digest))

    def numbers(self, names: str) -> bytes:
        """Integers as an encoded context has them."""
        return u64(*(getattr(self, name) for name in names.split()))

    def check(self, now: float) -> None:
        """Refuse a context that promises nothing, or a time outside its round."""
        n, t, corrupt = len(self.cohort), self.threshold, self.tolerated_colluders
        require(len(set(self.cohort)) == n, "one key for two clients")
        require(corrupt < t <= self.minimum_survivors <= n, "threshold")
        require(self.mode in ("active", "semi_honest"), "mode")
        holders = self.degree or n
        require(self.mode != "active" or 2 * t > holders + corrupt, "threshold in active mode")
        self.check_time(now)

    def check_time(self, now: float) -> None:
        """Refuse a time that is outside the round."""
        in_time = -EARLY_SECONDS <= now - self.opened_at <= self.lifetime_seconds
        require(in_time or not self.lifetime_seconds, "not the time of the round")


class OneShotContext(Context):
    """The public parameters of a one-shot round with everybody on the committee."""

    @property
    def hash(self) -> bytes:
        """What everything in the round is bound to."""
        names = """round_number size minimum_survivors tolerated_colluders degree limbs
            rounding_bits entries bits length opened_at lifetime_seconds"""
        numbers, weak = self.numbers(names), b"\0"  # a weak ring is refused
        terms = self.numbers("corrupt randomness per_polynomial quorum")
        committee = sized(b"everyone", terms, *self.members)
        parts = (self.session_id, numbers, u64(*self.removal), self.cohort_root, committee, weak)
        return digest("one-shot context", sized(*parts, self.application_digest))

    def check(self, now: float) -> None:
        """Refuse what the theorem does not cover, and members' keys for other rounds."""
        corrupt, fewest, count = self.tolerated_colluders, self.minimum_survivors, len(self.members)
        require(self.randomness >= self.corrupt, "too little randomness")
        require(self.randomness + self.per_polynomial <= count, "too few members")
        require(count + self.corrupt < 2 * self.quorum <= 2 * count, "quorum")
        require(2 * fewest > self.size + corrupt and fewest - corrupt >= 2, "survivors")
        require(self.limbs <= LARGEST_RINGS.get(self.degree, 0), "a weak ring")
        require(self.rounding_bits > 0, "residues, which we do not send")
        require(len({member[:32] for member in self.members}) == count, "one key for two members")
        for member in self.members:
            key, rounds, signature = member[32:64], member[64:80], member[80:]
            first, last = struct.unpack("<2Q", rounds)
            require(first <= self.round_number <= last, "a sealing key for other rounds")
            verify(member[:32], signature, "sign sealing key", self.session_id, key, rounds)
        self.check_time(now)


def read_announcement(data: bytes, model_digest: bytes) -> Context:
    """The context of a pairwise round of training, for a model that the client has."""
    context = Context(**dict(zip(PAIRWISE, decode(data, b"\x03", PAIRWISE_TYPES), strict=True)))
    context.cohort = cut(context.cohort, 32)
    context.application_digest = application_digest(model_digest, context)
    rows, columns, copies, probe = struct.unpack("<10x4Q8x", context.sketch)
    context.length = rows * columns * copies + probe
    context.removal = removal_table(context, len(context.cohort))
    return context


def read_one_shot(data: bytes, model_digest: bytes) -> OneShotContext:
    """The context of a one-shot round, with our index and path in the cohort's tree."""
    fields = decode(data, b"one-shot\x01", ONE_SHOT_TYPES)
    context = OneShotContext(**dict(zip(ONE_SHOT, fields, strict=True)))
    require(context.kind == "everyone" and fields[-2:] == [None, None], "another committee")
    require(len(context.added) == len(ADDED.split()), "fields of the announcement")
    vars(context).update(zip(ADDED.split(), context.added, strict=True))
    application = application_digest(model_digest, context)
    require(application == context.application_digest, "another model, or other terms")
    context.members = cut(context.members, 144)
    context.removal = removal_table(context, context.size)
    return context


def application_digest(model_digest: bytes, terms: Context) -> bytes:
    """What binds a round to the model and to the way from an update to integers."""
    require(len(terms.sketch) == 50, "a sketch")
    if isinstance(terms.noise, list):
        mechanism, variance = terms.noise
        label, noise = f"veilsum/round/2/{mechanism}\0", struct.pack("<d", variance)
    else:
        label, noise = "veilsum/round/1", u64(terms.noise)
    doubles = struct.pack("<3d", terms.clip_l2, terms.sketch_clip_l2, terms.scale)
    numbers = u64(terms.linf_bound) + noise + u64(terms.tolerated_dropouts)
    head = label.encode() + model_digest + terms.sketch + terms.seed
    return sha256(head + doubles + numbers + struct.pack("<d", terms.wrap)).digest()


def removal_table(terms: Context, cohort: int) -> list[int]:
    """Which removable seeds survivors reveal for each number of lost clients.

    As docs/dropouts.md has it: the batches that were not needed, in the cheaper of two schedules.
    The announced coins are one client's where as many are lost as are tolerated.
    """
    dropouts, corrupt = terms.tolerated_dropouts, terms.tolerated_colluders
    require(dropouts + corrupt < cohort, "nobody is left")
    if not terms.exact:
        return []
    total = terms.noise * (cohort - dropouts - corrupt)
    needed = [-(-total // (cohort - lost - corrupt)) for lost in range(dropouts + 1)]
    if 100 * needed[-1] <= 102 * needed[0]:
        return []
    extra = [count - needed[0] for count in needed]
    steps = [lost for lost in range(1, dropouts + 1) if extra[lost] > extra[lost - 1]]
    for batches in range(1, len(steps)):  # a unit, its doubles, and the rest
        unit = -(-extra[-1] // (2**batches - 1))
        doubles = (2 ** (batches - 1) - 1) * unit
        rest, removal, enough = extra[-1] - doubles, [], True
        for count in extra:
            with_rest = count > doubles
            units = max(-(-(count - rest * with_rest) // unit), 0)
            kept = needed[0] + units * unit + rest * with_rest
            enough &= 100 * kept <= 102 * (needed[0] + count)
            removal.append(2**batches - 1 - units - (with_rest << (batches - 1)))
        if enough:
            return removal
    # One batch for each step, of which the first few are kept.
    numbers = range(dropouts + 1)
    return [sum(1 << i for i, at in enumerate(steps) if at > lost) for lost in numbers]
