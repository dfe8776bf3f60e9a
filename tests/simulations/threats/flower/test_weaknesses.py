"""Flower's weaknesses on its own code where it is installed, and our clients in its place."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest

from secagg import RemoteProtocolError, SessionAbortedError
from secagg.errors import Reason
from simulations.threats.attack import Effort
from simulations.threats.flower import flower_weaknesses
from simulations.threats.flower.clients import flower_upload, take_both_secrets
from simulations.threats.flower.masks import LARGEST, PAIR_SEED_BITS, RING, weak_mask, weak_pair_key
from simulations.threats.flower.our_upload import (
    COLLUDER,
    HONEST,
    VICTIM,
    OurRound,
    ask_for_both_secrets,
)
from simulations.threats.seed_search.search import recovers

needs_flower = pytest.mark.skipif(
    importlib.util.find_spec("flwr") is None, reason="flwr is not installed"
)
# Flower's dependencies warn about each other.
pytestmark = pytest.mark.filterwarnings("ignore")


# -- our clients -------------------------------------------------------------------------------


def test_our_round_is_a_real_one_and_ends_in_the_sum() -> None:
    round_ = OurRound(30, np.random.default_rng(1))
    round_.run()
    opened = {total.members: total.vector for total in round_.knowledge.sums()}
    assert opened.keys() == {(VICTIM, HONEST), (COLLUDER,)}
    for members, vector in opened.items():
        assert np.array_equal(vector, round_.inputs[list(members)].sum(0))
    assert not round_.refusals


def test_our_clients_give_up_shares_for_one_set_only() -> None:
    refused = ask_for_both_secrets(5, np.random.default_rng(2))
    before, after = refused[:2], refused[2:]
    for error in before:
        assert isinstance(error, RemoteProtocolError)
        assert error.reason is Reason.UNEXPECTED_MESSAGE
    assert [type(error) for error in after] == [SessionAbortedError] * 2


def test_a_request_that_comes_in_turn_is_answered() -> None:
    """The control of the one above: the same message, once, when a set is due."""
    round_ = OurRound(5, np.random.default_rng(3))
    round_.until_shared()
    round_.deliver()
    survivors = (VICTIM, HONEST, COLLUDER)
    assert round_.told_out_of_turn(HONEST, survivors) is None
    assert isinstance(round_.told_out_of_turn(HONEST, survivors), RemoteProtocolError)


def test_without_flower_there_is_nothing_to_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert flower_weaknesses() == []


# -- Flower itself -----------------------------------------------------------------------------


@pytest.fixture
def utilities() -> ModuleType:
    name = "flwr.common.secure_aggregation.secaggplus_utils"
    return pytest.importorskip(name, reason="flwr is not installed")


@pytest.mark.parametrize("modulus", [251, 1 << 20, RING])
def test_our_copy_of_the_weak_generator_is_flowers(utilities: ModuleType, modulus: int) -> None:
    for seed in (bytes(32), bytes(range(32)), weak_pair_key()):
        theirs = utilities.pseudo_rand_gen(seed, modulus, [(3,), (4, 5), ()])
        flat = np.concatenate([each.reshape(-1) for each in theirs])
        assert np.array_equal(weak_mask(seed, modulus, 24), flat)


@needs_flower
def test_f1_and_f2_hold() -> None:
    first, second = flower_weaknesses(Effort.QUICK, 1)
    assert (first.id, second.id) == ("F1", "F2")
    assert first.held, first
    assert second.held, second
    assert first.without_defence["varying_bits_seen"] == PAIR_SEED_BITS
    refused = second.with_defence["refused_with"]
    assert refused == "RemoteProtocolError UNEXPECTED_MESSAGE, SessionAbortedError"


@needs_flower
def test_one_request_each_gives_flowers_clients_away() -> None:
    figures = take_both_secrets(40, np.random.default_rng(4))
    assert figures["requests_answered"] == figures["threshold"] == 3
    assert figures["coordinates_recovered"] == figures["coordinates"] == 41
    # A second request is refused: the first one was enough.
    assert figures["second_requests_answered"] == 0


@needs_flower
def test_an_honest_round_of_flowers_leaves_one_mask_and_the_search_removes_it() -> None:
    upload = flower_upload(40, np.random.default_rng(5), 12)
    assert upload.plain[0] == LARGEST
    assert not np.any(upload.peeled.words == upload.plain)
    assert recovers(upload)[0]
    last = upload.candidates.stop
    elsewhere = replace(upload, candidates=range(last, last + len(upload.candidates)))
    assert not recovers(elsewhere)[0]
