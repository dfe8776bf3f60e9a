"""One frozen example of every form that is stored: folders outlive the version that wrote them.

Whoever changes one of these bytes must read the old ones as well, or raise the form's version.
"""

from __future__ import annotations

import hashlib
from fractions import Fraction
from pathlib import Path

import one_shot_rounds as kit
import pytest
from one_shot_worlds import SESSION, World, plan_of
from round_kit import IDENTITIES, OPENED, expiring, make_setup

from dp import NoiseSeed
from protocol import ClientHistory, ClientPolicy, PairwiseClauses, PrivacyGoal, RoundClient
from protocol.round.history import Failure
from protocol.round.member import RoundMember, SealingKeys
from protocol.round.member_noise import StoredMemberNoise
from protocol.round.stored_history import StoredHistory
from protocol.round.stored_sealing import SealingFolder
from protocol.round.stored_upload import UploadReceipt
from secagg.keys import AgreementKey
from secagg.oneshot.committee import CommitteeKind
from secagg.oneshot.transitions import MemberPhase
from secagg.pairwise.transitions import ClientPhase
from secagg.storage import TokenFolder

CLIENT = (707, "37da1f975d20e9de")
MEMBER = (1483, "91a51e9719854bc3")
RECEIPT = "0295" + "c410" + SESSION.hex() + "0703" + "c420" + 32 * "01" + "c420" + 32 * "02"
MEMORY = (
    "02fbd54d1684f14c5f4981d8a303e994e1ea57af5c08a5a205a8e4474c672cd194940500c4207f1b30d657903463"
    "f11bc10fb2f7c1ee8904aa57835316ffec53f2693fac5599919305cb4034000000000000c420" + 32 * "03"
)
MARKS = {
    "4d5206539fdafc08bb30542affbb525b.charged": "0000000000000000",
    "aefbdb1098288d5d43d21c8de390f928": "000000000000b03e01",
    "065d6f9c8104a2f478208ba509d953c2": "000000000000103e",
}
CHARGES = (807, "6e6b16c37ed776d4")
SEALING = (SESSION.hex() + "-0-65535", 32 * "04" + "3c1c586800000000")


def now() -> float:
    """A minute after rounds are opened."""
    return OPENED + 60.0


def digest(data: bytes) -> tuple[int, str]:
    """Length, and 16 hex digits of the SHA-256."""
    return len(data), hashlib.sha256(data).hexdigest()[:16]


@pytest.fixture
def tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TokenFolder:
    """Tokens and keys of stored states are known, or no two would be stored alike."""
    monkeypatch.setattr("secagg.storage.secrets.token_bytes", lambda size: bytes(size))
    return TokenFolder(tmp_path / "tokens")


def test_a_round_of_a_client(tokens: TokenFolder) -> None:
    made = make_setup()
    policy = ClientPolicy(
        minimum_noise_multiplier=0.0,
        largest_lifetime_seconds=3600,
        schemes=(PairwiseClauses(allow_semi_honest=True),),
    )
    registry = frozenset(made.context.cohort)

    def client() -> RoundClient:
        return RoundClient(
            IDENTITIES[0], registry, policy, ClientHistory(), kit.Stream("client"), now
        )

    joined = client()
    joined.join(expiring(made).announce(), made.parameters.model_digest)
    stored = joined.suspend(tokens)
    assert digest(stored) == CLIENT
    resumed = client()
    resumed.resume(stored, tokens)
    assert resumed.phase is ClientPhase.ADVERTISED


def test_a_round_of_a_member(tokens: TokenFolder) -> None:
    world = World(plan_of(CommitteeKind.NAMED))
    made, who = world.setup(), kit.identity("member", 0)

    def member() -> RoundMember:
        keys = SealingKeys(
            who, SESSION, key=AgreementKey(kit.secret("sealing", SESSION, who.public))
        )
        return RoundMember(who, keys, world.member_policy, ClientHistory(), now)

    joined = member()
    joined.join(expiring(made).announce_to_member())
    stored = joined.suspend(tokens)
    assert digest(stored) == MEMBER
    assert RoundMember.round_of(stored) == (SESSION, 0)
    resumed = member()
    resumed.resume(stored, tokens)
    assert resumed.phase is MemberPhase.WAITING


def test_what_names_an_upload() -> None:
    receipt = UploadReceipt(SESSION, 7, 3, bytes([1]) * 32, bytes([2]) * 32)
    stored = bytes.fromhex(RECEIPT)
    assert receipt.encode() == stored and UploadReceipt.decode(stored) == receipt


def test_what_a_member_remembers_of_its_noise(tmp_path: Path) -> None:
    context = kit.adding(kit.uploads(), round_number=5)
    with StoredMemberNoise(tmp_path) as noise:
        noise.begin(context)
        added = noise.add(context, 20.0, NoiseSeed(bytes([3]) * 32))
    path = tmp_path / context.session_id.hex()
    assert path.read_bytes().hex() == MEMORY
    with StoredMemberNoise(tmp_path) as noise:
        assert noise._read(context.session_id).added == (added,)


def test_the_marks_and_charges_of_a_client(tmp_path: Path) -> None:
    goal = PrivacyGoal(epsilon=50.0, delta=1e-5, rounds=4)
    setup = make_setup(coins=20_000)
    with StoredHistory(tmp_path, goal) as history:
        history.answer(setup)
        history.charge(setup)
        history._enter(bytes(16), 4, Failure(2.0**-20, beacon=True))
        history._enter(bytes(16), 5, Failure(2.0**-30))
        epsilon = history.epsilon
    answered = sorted((tmp_path / "answered").iterdir())
    assert {path.name: path.read_bytes().hex() for path in answered} == MARKS
    assert digest((tmp_path / "charges.jsonl").read_bytes()) == CHARGES
    with StoredHistory(tmp_path, goal) as history:
        assert history.epsilon == epsilon
        assert history._draws == {Failure(2.0**-20, beacon=True)}
        assert history._rings == Fraction(1, 2**30)


def test_a_sealing_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "protocol.round.stored_sealing.secrets.token_bytes", lambda n: bytes([4]) * n
    )
    folder = SealingFolder(tmp_path, now)
    folder.begin(kit.identity("member", 0), SESSION, 3)
    (path,) = tmp_path.iterdir()
    assert (path.name, path.read_bytes().hex()) == SEALING
