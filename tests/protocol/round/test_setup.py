"""Round parameters, the capacity proof, and the announcement."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from round_kit import ANNOUNCED, MODEL, announced, make_setup

from dp import (
    BinomialMechanism,
    DiscreteGaussianMechanism,
    NonPrivateRelease,
    Sensitivities,
    SkellamMechanism,
)
from dp.mechanisms import DistributedMechanism
from protocol.round.losses import Stage
from protocol.round.returned_noise import ReturnedNoise
from protocol.round.setup import ANNOUNCEMENT_VERSION, RoundSetup
from protocol.round.written_parameters import WrittenParameters
from secagg import (
    CapacityError,
    Mode,
    ParameterError,
    Reason,
    RemoteProtocolError,
    SessionContext,
    TooFewSurvivorsError,
)
from sketch import PublicSeed, SketchKind, SketchSpec


def test_announcement_round_trips(mechanism: DistributedMechanism) -> None:
    removable = make_setup(removable=True)
    assert removable.context.removal
    setups = [make_setup(), make_setup(size=50), make_setup(coins=0), removable]
    for setup in (*setups, make_setup(mechanism=mechanism)):
        again = RoundSetup.from_announcement(setup.announce(), setup.parameters.model_digest)
        assert again == setup
        assert again.context.hash == setup.context.hash


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model_digest", b"\x01" * 32),
        ("clip_l2", 2.1),
        ("sketch", SketchSpec.identity(201)),
        ("sketch_clip_l2", 2.6),
        ("public_seed", PublicSeed(b"\x07" * 32)),
        ("scale", 65.0),
        ("linf_bound", 99),
        ("mechanism", BinomialMechanism(102)),
        ("tolerated_dropouts", 1),
        ("wrap_probability", 1e-9),
    ],
)
def test_every_parameter_changes_the_digest(name: str, value: Any) -> None:
    parameters = make_setup().parameters
    assert dataclasses.replace(parameters, **{name: value}).digest() != parameters.digest()


COINS_DIGEST = "097689ac8bff29a14cd24799835cb14d01ea5eee9e6a9dab3120763da98e23ab"
"""Of the fixture's parameters, by a version that knew coins only."""


def test_rounds_with_coins_are_digested_and_announced_as_ever() -> None:
    assert make_setup().parameters.digest().hex() == COINS_DIGEST
    assert ANNOUNCED["noise"] == 101


def test_the_context_binds_the_mechanism(mechanism: DistributedMechanism) -> None:
    """Its name and its amount, with all other parameters alike."""
    ours = make_setup(mechanism=mechanism, wrap_probability=1e-9, bits=20)
    others = [BinomialMechanism(25), SkellamMechanism(25.25), DiscreteGaussianMechanism(25.25)]
    others += [BinomialMechanism(101), SkellamMechanism(25.0), DiscreteGaussianMechanism(25.5)]
    others = [each for each in others if each != mechanism]
    assert len(others) == 5
    for other in others:
        theirs = make_setup(mechanism=other, wrap_probability=1e-9, bits=20)
        assert dataclasses.replace(theirs.parameters, mechanism=mechanism) == ours.parameters
        heard = RoundSetup.from_announcement(theirs.announce(), bytes(32))
        assert heard.context.hash != ours.context.hash
        # Nobody joins the one under the digest of the other.
        with pytest.raises(ParameterError, match="digest"):
            RoundSetup(ours.context, theirs.parameters)


@pytest.mark.parametrize(
    "noise",
    [
        True,
        -1,
        25.25,
        "skellam",
        ("laplace", 25.25),
        ("binomial", 101.0),
        ("skellam", -1.0),
        ("skellam", math.nan),
        ("skellam", 0.0),
        ("discrete-gaussian", 1e300),
        ("skellam", 25.25, 1.0),
        ("skellam",),
    ],
)
def test_announced_noise_that_is_none_is_malformed(noise: object) -> None:
    for good in (101, ("skellam", 25.25)):
        RoundSetup.from_announcement(announced(wrap_probability=1e-9, noise=good), MODEL)
    with pytest.raises(RemoteProtocolError):
        RoundSetup.from_announcement(announced(wrap_probability=1e-9, noise=noise), MODEL)


@pytest.mark.parametrize("noise", [SkellamMechanism(25.0), DiscreteGaussianMechanism(25.0)])
def test_unbounded_noise_fits_no_field_for_sure_and_has_no_schedule(noise: object) -> None:
    with pytest.raises(ParameterError, match=r"wrap_probability.*no largest value"):
        make_setup(mechanism=noise, wrap_probability=0.0)
    assert make_setup(mechanism=noise, removable=True).context.removal == ()


def test_events_count_honest_noise_only(mechanism: DistributedMechanism) -> None:
    setup = make_setup(mechanism=mechanism)
    context = dataclasses.replace(setup.context, tolerated_colluders=1, minimum_survivors=5)
    setup = RoundSetup(dataclasses.replace(context, threshold=5), setup.parameters)
    events = setup.events(6)
    bounds = Sensitivities(setup.parameters.l2_bound, setup.parameters.linf_bound)
    assert events.server == mechanism.event(bounds, 5, 200)
    assert events.outsider == mechanism.event(bounds, 6, 200)
    assert events.sybil == mechanism.event(bounds, 1, 200)
    assert setup.events(1).server == NonPrivateRelease()


def test_what_comes_back_changes_the_digest() -> None:
    stays = make_setup(mechanism=DiscreteGaussianMechanism(25.0)).parameters
    kinds = [
        ReturnedNoise(variance=v, rounds=t, divisor=n)
        for v in (9.0, 9.5)
        for t in (7, 8)
        for n in (6, 5)
    ]
    digests = {dataclasses.replace(stays, returned=each).digest() for each in (None, *kinds)}
    assert len(digests) == 9
    with pytest.raises(ParameterError, match="mechanism"):
        dataclasses.replace(make_setup().parameters, returned=kinds[0])
    with pytest.raises(ParameterError, match="returned"):
        returning = dataclasses.replace(stays, returned=kinds[0])
        context = dataclasses.replace(
            make_setup(mechanism=DiscreteGaussianMechanism(25.0)).context,
            application_digest=returning.digest(),
        )
        RoundSetup(context, returning)


def test_integers_are_another_round_and_have_neither_scale_nor_sketch() -> None:
    real = dataclasses.replace(make_setup().parameters, scale=1.0)
    real = dataclasses.replace(
        real, sketch=SketchSpec.identity(real.sketch.dimension), sketch_clip_l2=real.clip_l2
    )
    whole = dataclasses.replace(real, integers=True)
    assert whole.digest() != real.digest()
    assert (whole.l2_bound, whole.rounding_variance) == (real.clip_l2, 0.0)
    assert real.l2_bound > real.clip_l2
    written = WrittenParameters.of(whole)
    assert written.scale is None
    assert written.read(whole.model_digest) == whole
    assert WrittenParameters.of(real).read(real.model_digest) == real
    for change in (
        {"scale": 2.0},
        {"sketch_clip_l2": 0.5},
        {"returned": ReturnedNoise(variance=9.0, rounds=7, divisor=6)},
    ):
        with pytest.raises(ParameterError):
            dataclasses.replace(whole, **change)


def test_no_parameter_was_forgotten() -> None:
    tested = {name for name, _ in test_every_parameter_changes_the_digest.pytestmark[0].args[1]}
    tested |= {"returned", "integers"}  # in tests of their own; they go with other figures
    assert tested == {field.name for field in dataclasses.fields(make_setup().parameters)}


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("model_digest", [b""]),
        ("clip_l2", [0.0, math.nan, 1e-101, True, 10**400, np.float64(2.5)]),
        ("sketch_clip_l2", [math.inf, 1e101]),
        ("scale", [-1.0, 1e60, 1e-320]),
        ("linf_bound", [0]),
        ("mechanism", [101, "binomial"]),
        ("tolerated_dropouts", [-1, 6, 1 << 64, 2.0]),
        ("sketch", [SketchSpec(SketchKind.COUNT_MEAN, 200, 5, 41)]),
        ("wrap_probability", [1e-5, -1e-9, 1e-31, math.nan]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_infeasible_parameters_are_named(name: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(ParameterError, match=name):
            make_setup(**{name: value})


def test_a_field_that_is_too_small_is_refused_before_any_message() -> None:
    needed = make_setup().context.bits
    with pytest.raises(CapacityError) as caught:
        make_setup(bits=needed - 1)
    assert caught.value.required_bits == needed
    assert caught.value.bits == needed - 1


def test_made_up_peers_leave_a_client_the_batch_that_was_never_shared() -> None:
    """They hold shares of every other seed, also of those that stay in the sum."""
    setup = make_setup(removable=True)
    batches = setup.schedule.batches
    assert setup.own_noise.coins == batches[0] < setup.noise_left(6 - 1).coins < sum(batches) == 101
    for survivors in (4, 5, 6):
        assert setup.events(survivors).sybil.coins == batches[0]
        assert (
            setup.events(survivors).outsider.coins == survivors * setup.noise_left(survivors).coins
        )
    plain = make_setup()
    assert plain.own_noise.coins == plain.events(4).sybil.coins == 101


def test_rounds_without_coins_are_not_private() -> None:
    assert make_setup(coins=0).events(6).server == NonPrivateRelease()


def test_context_and_parameters_must_belong_together() -> None:
    setup, other = make_setup(), make_setup(coins=7)
    with pytest.raises(ParameterError, match="application_digest"):
        RoundSetup(setup.context, other.parameters)
    with pytest.raises(ParameterError, match="length"):
        RoundSetup(dataclasses.replace(setup.context, length=201), setup.parameters)


@given(st.binary(max_size=300))
def test_arbitrary_announcements_raise_only_the_typed_error(data: bytes) -> None:
    for candidate in (data, bytes([ANNOUNCEMENT_VERSION]) + data):
        with pytest.raises(RemoteProtocolError):
            RoundSetup.from_announcement(candidate, bytes(32))


def test_truncated_and_extended_announcements_are_refused() -> None:
    data = make_setup().announce()
    for cut in range(len(data)):
        with pytest.raises(RemoteProtocolError):
            RoundSetup.from_announcement(data[:cut], bytes(32))
    with pytest.raises(RemoteProtocolError) as caught:
        RoundSetup.from_announcement(data + b"\x00", bytes(32))
    assert caught.value.reason is Reason.MALFORMED


def test_announcements_with_other_values_are_refused_or_another_setup() -> None:
    """Every single changed byte is noticed: refused, or another context hash."""
    setup = make_setup()
    data = setup.announce()
    generator = np.random.default_rng(1)
    for position in range(1, len(data)):
        changed = bytearray(data)
        changed[position] ^= int(generator.integers(1, 256))
        try:
            other = RoundSetup.from_announcement(bytes(changed), bytes(32))
        except RemoteProtocolError:
            continue
        assert other.context.hash != setup.context.hash


def test_an_announcement_with_too_many_fields_is_refused() -> None:
    with pytest.raises(RemoteProtocolError):
        RoundSetup.from_announcement(announced(one_more=1), MODEL)


class TestSurvivors:
    """Noise, dropouts and the smallest sum are one promise."""

    def with_context(self, setup: RoundSetup, **changes: Any) -> RoundSetup:
        return RoundSetup(dataclasses.replace(setup.context, **changes), setup.parameters)

    def test_a_sum_over_fewer_than_the_noise_was_made_for_is_refused(self) -> None:
        make_setup(tolerated_dropouts=1, minimum_survivors=5)
        with pytest.raises(ParameterError, match=r"minimum_survivors = 4.*at least 5"):
            make_setup(tolerated_dropouts=1, minimum_survivors=4)

    def test_the_fewest_honest_are_survivors_without_colluders(self) -> None:
        setup = self.with_context(
            make_setup(minimum_survivors=5), tolerated_colluders=1, threshold=4
        )
        assert setup.fewest_honest == 4
        fewest = setup.events(setup.context.minimum_survivors).server
        assert fewest.coins == setup.fewest_honest * setup.parameters.mechanism.coins

    def test_somebody_honest_must_be_left(self) -> None:
        setup = make_setup(mode=Mode.SEMI_HONEST)
        with pytest.raises(ParameterError, match="somebody is left"):
            self.with_context(setup, tolerated_colluders=4, threshold=5, minimum_survivors=5)


@pytest.mark.parametrize(
    ("round_", "change"),
    [
        ({}, lambda table: (1, 1, 0)),
        # A table of what to give up belongs to coins; a client would send seeds for nothing.
        ({"mechanism": SkellamMechanism(25.0)}, lambda table: table),
        ({"mechanism": DiscreteGaussianMechanism(25.0)}, lambda table: table),
        # A server that had more seeds given up than are surplus would reduce the noise.
        ({"removable": True}, lambda table: (table[0] << 1, *table[1:])),
        ({"removable": True}, lambda table: (*table[:-1], 1)),
        ({"removable": True}, lambda table: (*table, 0)),
    ],
)
def test_only_the_schedules_own_removal_table_is_accepted(
    round_: dict[str, Any], change: Callable[..., tuple[int, ...]]
) -> None:
    setup, table = make_setup(**round_), make_setup(removable=True).context.removal
    assert setup.context.removal == (table if "removable" in round_ else ())
    context = dataclasses.replace(setup.context, removal=change(table))
    with pytest.raises(ParameterError, match="removal"):
        RoundSetup(context, setup.parameters)


def test_a_committee_of_everybody_needs_its_quorum_to_confirm_and_the_threshold_to_open() -> None:
    setup = make_setup()
    members = len(setup.context.cohort)
    numbers = SimpleNamespace(size=members, quorum=setup.context.threshold + 1)
    few = dict.fromkeys(range(members - setup.context.threshold), Stage.CONFIRM)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(SessionContext, "committee", lambda *_: numbers)
        with pytest.raises(TooFewSurvivorsError, match="confirm"):
            setup.require_left(Stage.CONFIRM, few)
        setup.require_left(Stage.UNMASK, few)


def test_capacity_counts_removable_batches() -> None:
    """Noise is largest before the surplus is taken off."""
    setup = make_setup(removable=True)
    assert setup.schedule.largest_noise <= setup.context.field.largest_centred // 6 - 100
    with pytest.raises(CapacityError):
        make_setup(removable=True, bits=setup.context.bits - 1)
