"""The fuzzer, short, and its controls: decoders that break the rule must be reported."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from command_line import invoke, run_json

from secagg import RemoteProtocolError
from secagg.pairwise import messages
from simulations.threats import fuzzing as package
from simulations.threats.fuzzing import Decoder, all_decoders, engine, fuzz, run_fuzz
from sketch.compressors import Denoise
from sketch.compressors.denoise import DenoiseReceiver


@pytest.fixture(scope="module")
def decoders(tmp_path_factory: pytest.TempPathFactory) -> list[Decoder]:
    return all_decoders(tmp_path_factory.mktemp("fuzz"))


def test_arbitrary_bytes_are_accepted_or_refused_with_the_typed_error(
    decoders: list[Decoder],
) -> None:
    report = fuzz(decoders, 1, cases=40 * len(decoders))
    assert [bug.figures() for bug in report.bugs] == []
    assert set(report.outcomes) == {decoder.name for decoder in decoders}
    assert report.cases == 40 * len(decoders)
    ends = sum(report.outcomes.values(), start=type(report.outcomes["set"])())
    # Hostile bytes get past the first check: reasons from inside messages occur.
    assert {"accepted", "MALFORMED", "OVERSIZED", "BAD_SIGNATURE", "BAD_LENGTH"} <= set(ends)


def test_every_decoder_takes_its_own_examples(decoders: list[Decoder]) -> None:
    numbers = {int(name.split()[1]) for d in decoders if (name := d.name).startswith("message")}
    assert numbers == set(range(1, 12))
    for decoder in decoders:
        assert engine.judge(decoder, decoder.seeds[0]) == ("accepted", None), decoder.name


def test_a_case_repeats_by_its_number(decoders: list[Decoder]) -> None:
    numbered = [d for d in decoders if d.name != "stored session"]
    first, second = (fuzz(numbered, 5, cases=200) for _ in range(2))
    assert first.outcomes == second.outcomes
    # A part of the run is that part: here its second half.
    late = fuzz(numbered, 5, cases=100, first=100)
    early = fuzz(numbered, 5, cases=100)
    for name, ends in first.outcomes.items():
        assert ends == early.outcomes.get(name, ends - ends) + late.outcomes.get(name, ends - ends)


def test_messages_of_compressors_are_used_as_well(
    decoders: list[Decoder], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twin of a receiver that adds up without looking is reported."""
    mine = [decoder for decoder in decoders if decoder.name.startswith("compressed")]
    assert {"compressed, top-k", "compressed, Denoise of factors"} <= {d.name for d in mine}

    def careless(self: Any, message: Any, state: Any) -> DenoiseReceiver:
        before = np.asarray(state.velocity)
        return DenoiseReceiver(self._read(message, before, np.empty(self.dimension)))

    wide = [decoder for decoder in mine if decoder.name == "compressed, Denoise of 64 bits"]
    assert fuzz(wide, 1, cases=400).bugs == []
    monkeypatch.setattr(Denoise, "receive", careless)
    assert fuzz(wide, 1, cases=400).bugs


@pytest.mark.parametrize(
    "line",
    [
        "seed = " + "9" * 5000,
        "seed = -0x" + "f" * 5000,
        "seed = " + "[" * 1500,
        "seed." * 3000 + "b = 1",
        "seed = 0x" + "f" * 5000,
        "a." * 100_000 + "b = 1",
    ],
)
def test_configurations_that_were_found(decoders: list[Decoder], line: str) -> None:
    """Untyped errors, of the parser and of messages about values, and a key that takes minutes."""
    decoder = next(decoder for decoder in decoders if decoder.name == "configuration")
    assert engine.judge(decoder, line.encode()) == ("ConfigurationError", None)


# -- controls ---------------------------------------------------------------------------------


def broken(decode: Callable[[bytes], Any], **options: Any) -> Decoder:
    return Decoder(
        name="broken", seeds=[b"seed", bytes(40)], decode=decode, errors=(ValueError,), **options
    )


def short_data_is_an_index_error(data: bytes) -> int:
    return data[30]


def nested_too_deep(data: bytes) -> int:
    return nested_too_deep(data) + 1


def promises_are_believed(data: bytes) -> int:
    return len(bytearray(1 << 25)) if data[:1] != b"s" else 0


def out_of_memory(data: bytes) -> None:
    raise MemoryError


def never_ends(data: bytes) -> None:
    while True:
        pass


@pytest.mark.parametrize(
    ("decode", "what"),
    [
        (short_data_is_an_index_error, "IndexError"),
        (nested_too_deep, "RecursionError"),
        (promises_are_believed, "allocated"),
        (out_of_memory, "MemoryError"),
    ],
)
def test_a_broken_decoder_is_reported(decode: Callable[[bytes], Any], what: str) -> None:
    report = fuzz([broken(decode)], 1, cases=40)
    assert report.bugs
    assert all(what in bug.what for bug in report.bugs)
    # The case does it again by its number, and by the bytes in the report.
    bug = report.bugs[0]
    again = fuzz([broken(decode)], 1, cases=1, first=bug.case)
    assert [each.data for each in again.bugs] == [bytes.fromhex(bug.figures()["bytes"])]


def test_a_decoder_that_never_ends_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "CASE_SECONDS", 1)
    report = fuzz([broken(never_ends)], 1, cases=1)
    assert "HangError" in report.bugs[0].what


def test_two_forms_of_one_value_are_reported() -> None:
    lax = broken(bytes.rstrip, encode=bytes)
    assert "other bytes" in engine.judge(lax, b"value ")[1]
    allowed = broken(bytes.rstrip, encode=bytes, one_form=False)
    assert engine.judge(allowed, b"value ") == ("accepted, another form", None)
    assert engine.judge(allowed, b"value") == ("accepted", None)

    grows = broken(bytes, encode=lambda value: value + b"!", one_form=False)
    assert "each time" in engine.judge(grows, b"value")[1]

    def picky(data: bytes) -> bytes:
        if data.endswith(b"!"):
            raise ValueError
        return data

    closed = broken(picky, encode=lambda value: value + b"!", one_form=False)
    assert "cannot be encoded: ValueError" in engine.judge(closed, b"value")[1]


def test_a_real_decoder_that_loses_its_check_is_reported(
    monkeypatch: pytest.MonkeyPatch, decoders: list[Decoder]
) -> None:
    """The twin of the message decoder that lets the codec's own errors out."""

    def careless(decoder: Any, data: bytes, party: int, limit: int) -> Any:
        if len(data) > limit:
            raise RemoteProtocolError(party, messages.Reason.OVERSIZED)
        return decoder.decode(memoryview(data)[1:])

    monkeypatch.setattr(messages, "decode_message", careless)
    report = fuzz([d for d in decoders if d.name.startswith("message")], 1, cases=100)
    assert any("ValidationError" in bug.what for bug in report.bugs)


def test_only_the_first_bugs_of_a_decoder_are_listed() -> None:
    report = fuzz([broken(out_of_memory)], 1, cases=50)
    assert len(report.bugs) == engine.MOST_BUGS
    assert report.outcomes["broken"] == {"BUG": 50}


# -- the command ------------------------------------------------------------------------------


def test_the_command_prints_cases_by_decoder_and_outcome() -> None:
    arguments = ["bench", "fuzz", "--cases", "40", "--decoder", "set", "--decoder", "share"]
    figures = run_json(*arguments)
    assert (figures["cases"], figures["bugs"]) == (40, [])
    assert figures["cases_per_second"] > 0
    assert "set" in figures["decoders"]
    assert "set" in invoke(*arguments).stdout


def test_the_command_fails_when_there_is_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package, "all_decoders", lambda _: [broken(short_data_is_an_index_error)])
    result = invoke("bench", "fuzz", "--seconds", "0.2", "--json")
    assert result.exit_code == 1
    figures = json.loads(result.stdout)
    assert "IndexError" in figures["bugs"][0]["what"]


def test_a_decoder_that_does_not_exist_is_refused() -> None:
    with pytest.raises(LookupError, match="nobody"):
        run_fuzz(1, cases=1, names=["nobody"])
    result = invoke("bench", "fuzz", "--decoder", "nobody")
    assert result.exit_code == 2
