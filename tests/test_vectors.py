"""The frozen wire format, file by file, through the state machines: docs/test-vectors.md."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from vector_files import VECTORS, load

from secagg import ProtocolError, Reason
from secagg.tags import Usage

frozen = load("frozen")
runner = load("runner")
MismatchError = load("player").MismatchError
one_shot = load("one_shot.runner")

FILES = {
    f"{path.parent.name}/{path.stem}": json.loads(path.read_text())
    for path in sorted(VECTORS.glob("*/*.json"))
}


def names(kind: str) -> list[str]:
    """All files of a folder; none is an error of the tests, not an empty test."""
    found = [name for name in FILES if name.startswith(f"{kind}/")]
    assert found, f"there are no vectors in {VECTORS / kind}"
    return found


def errors(vector: dict[str, Any]) -> list[dict[str, Any]]:
    """Every refused step of a file."""
    steps = [*vector.get("operations", []), *vector.get("cases", [])]
    return [step for step in steps if "error" in step]


def test_vectors_and_hashed_labels_do_not_change_without_a_version() -> None:
    assert json.loads(frozen.RECORD.read_text()) == frozen.now(), frozen.__doc__


def test_what_changed_is_not_recorded_under_the_same_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tmp_path / "frozen.json"
    before = frozen.now()
    record.write_text(json.dumps(before))
    monkeypatch.setattr(frozen, "labels", lambda: ["another"])
    with pytest.raises(SystemExit, match=r"raise veilsum\.__version__"):
        frozen.renew(record)
    assert json.loads(record.read_text()) == before
    monkeypatch.setattr(frozen, "WIRE_VERSION", before["wire"] + 1)
    frozen.renew(record)
    assert json.loads(record.read_text()) == frozen.now() != before


# Which side of the pairwise protocol checks what; a member of Reason without an entry here fails
# the tests below.
BOTH = {"client", "server"}
SIDES = {
    "MALFORMED": BOTH,
    "OVERSIZED": BOTH,
    "UNEXPECTED_MESSAGE": BOTH,
    "UNKNOWN_SENDER": {"server"},
    "DUPLICATE_MESSAGE": {"server"},
    "WRONG_CONTEXT": BOTH,
    "BAD_SIGNATURE": BOTH,
    "BAD_KEY": BOTH,
    "DUPLICATE_KEY": BOTH,
    "OWN_ENTRY_MISSING": {"client"},
    "SET_TOO_SMALL": {"client"},
    "SET_NOT_NESTED": {"client"},
    "BAD_SEAL": {"client"},
    "BAD_SHARE": BOTH,
    "NOT_IN_TREE": {"client"},
    "BAD_LENGTH": BOTH,
    "NOT_IN_FIELD": {"server"},
    "WRONG_SEED": {"server"},
    "MISSING_SIGNATURES": {"client"},
}
# The same for a member and the server of the one-shot protocol, which has no others.
EITHER = {"member", "server"}
ONE_SHOT_SIDES = {
    "MALFORMED": EITHER,
    "OVERSIZED": EITHER,
    "UNEXPECTED_MESSAGE": EITHER,
    "UNKNOWN_SENDER": {"server"},
    "DUPLICATE_MESSAGE": {"server"},
    "WRONG_CONTEXT": EITHER,
    "BAD_SIGNATURE": EITHER,
    "BAD_KEY": {"server"},
    "SET_TOO_SMALL": {"member"},
    "SET_NOT_NESTED": EITHER,
    "BAD_SHARE": {"server"},
    "NOT_IN_TREE": {"member"},
    "BAD_LENGTH": EITHER,
    "NOT_IN_FIELD": {"server"},
    "MISSING_SIGNATURES": {"member"},
}


def runner_of(name: str) -> Any:
    """The runner of a file's protocol."""
    return one_shot if "one-shot-" in name else runner


@pytest.mark.parametrize("name", names("rounds") + names("one-shot-rounds"))
def test_round(name: str) -> None:
    assert FILES[name]["success"]
    runner_of(name).run_round(FILES[name])


@pytest.mark.parametrize("name", names("refusals") + names("one-shot-refusals"))
def test_refusal(name: str) -> None:
    vector = FILES[name]
    assert not vector["success"]
    assert [step for step in vector["operations"] if "error" in step] == vector["operations"][-1:]
    if "base" in vector:
        rounds = name.partition("/")[0].replace("refusals", "rounds")
        runner_of(name).run_refusal(vector, FILES[f"{rounds}/{vector['base']}"])
    else:
        runner_of(name).run_round(vector)


@pytest.mark.parametrize("name", names("messages"))
def test_messages(name: str) -> None:
    vector = FILES[name]
    assert vector["cases"]
    assert vector["success"] is not bool(errors(vector))
    for case in vector["cases"]:
        runner_of(name).run_message(case)


@pytest.mark.parametrize("name", names("primitives"))
def test_primitive(name: str) -> None:
    assert FILES[name]["cases"]
    runner_of(name).run_primitive(FILES[name])


@pytest.mark.slow
def test_the_generator_gives_the_same_files(tmp_path: Path) -> None:
    count = load("generate").write(tmp_path)
    fresh = {path.relative_to(tmp_path): path.read_bytes() for path in tmp_path.glob("*/*.json")}
    frozen = {path.relative_to(VECTORS): path.read_bytes() for path in VECTORS.glob("*/*.json")}
    assert count == len(frozen) > 100
    assert sorted(fresh) == sorted(frozen)
    assert [str(path) for path in frozen if fresh[path] != frozen[path]] == []


def refused(kind: str) -> dict[str, set[str]]:
    """Which sides refuse something, for each reason."""
    found: dict[str, set[str]] = {}
    for name in names(kind):
        for step in errors(FILES[name]):
            if reason := step["error"].get("reason"):
                found.setdefault(reason, set()).add(step["op"].split("_")[0])
    return found


@pytest.mark.parametrize(
    ("kind", "sides"), [("refusals", SIDES), ("one-shot-refusals", ONE_SHOT_SIDES)]
)
def test_every_reason_has_a_refusal_on_every_side_that_checks_it(
    kind: str, sides: dict[str, set[str]]
) -> None:
    assert refused(kind) == sides


def test_every_reason_has_its_sides() -> None:
    missing = {reason.name for reason in Reason} - set(SIDES)
    assert not missing, f"no test vector: see docs/test-vectors.md: {missing}"


@pytest.mark.parametrize(
    ("kind", "stages"),
    [
        ("refusals", {"advertise", "share", "masked input", "confirm", "unmask"}),
        ("one-shot-refusals", {"upload", "check", "confirm", "open"}),
    ],
)
def test_every_way_to_end_without_a_sum_has_a_vector(kind: str, stages: set[str]) -> None:
    ends = [step["error"] for name in names(kind) for step in errors(FILES[name])]
    assert {each["stage"] for each in ends if each["type"] == "TooFewSurvivorsError"} == stages
    assert ("OpeningFailedError" in {each["type"] for each in ends}) is (kind != "refusals")


@pytest.mark.parametrize(
    ("before", "numbers"), [("", {*range(1, 12)}), ("one-shot-", {*range(32, 39)})]
)
def test_every_message_has_a_vector(before: str, numbers: set[int]) -> None:
    rounds = [FILES[name] for name in names(f"{before}rounds")]
    assert {int(data[4:6], 16) for v in rounds for data in v["messages"].values()} == numbers
    framed = {case["name"] for case in FILES[f"messages/{before}every-message"]["cases"]}
    assert len(framed) == len(numbers)


def test_every_message_has_a_vector_in_every_role() -> None:
    kinds = {name.split()[0] for each in names("rounds") for name in FILES[each]["messages"]}
    assert len(kinds - {"changed"}) == 11


def test_every_field_size_and_usage_that_was_promised_is_there() -> None:
    bits = {FILES[name]["context"]["bits"] for name in names("rounds")}
    assert bits == {8, 16, 24, 31, 32, 61}
    usages = {case["usage"] for case in FILES["primitives/tagged"]["cases"]}
    assert usages == {usage.value.decode() for usage in Usage}
    refused = {
        (8 if case["bits"] > 32 else 4 if case["bits"] > 16 else 2, count)
        for case in FILES["primitives/mask"]["cases"]
        for count in case["refused"]
    }
    assert refused == {(2, 0), (2, 1), (2, 2), (2, 3), (4, 0), (4, 1), (4, 2), (8, 0), (8, 1)}


# -- the runner itself ----------------------------------------------------------------------------


def changed(data: str) -> str:
    """The last hexadecimal digit changed."""
    return data[:-1] + ("0" if data[-1] != "0" else "1")


CHANGED = ("rounds/active", "one-shot-rounds/losses")


@pytest.mark.parametrize(
    ("file", "name"), [(file, name) for file in CHANGED for name in sorted(FILES[file]["messages"])]
)
def test_the_runner_sees_a_change_of_any_message(file: str, name: str) -> None:
    vector = copy.deepcopy(FILES[file])
    vector["messages"][name] = changed(vector["messages"][name])
    with pytest.raises((MismatchError, ProtocolError)):
        runner_of(file).run_round(vector)


@pytest.mark.parametrize(
    ("file", "key", "value"),
    [
        *((file, "total", [0] * size) for file, size in zip(CHANGED, (5, 3), strict=True)),
        *((file, "survivors", [0, 1]) for file in CHANGED),
        *((file, "seeds", {"0": ["00"]}) for file in CHANGED),
        ("rounds/active", "culprits", [1]),
        *(("one-shot-rounds/losses", key, [1]) for key in ("excluded", "wrong_members")),
        ("one-shot-rounds/losses", "noisy", [0]),
    ],
)
def test_the_runner_sees_a_change_of_the_result(file: str, key: str, value: Any) -> None:
    vector = copy.deepcopy(FILES[file])
    vector["operations"][-1]["expect"][key] = value
    with pytest.raises(MismatchError, match=r"server_(unmask|open)"):
        runner_of(file).run_round(vector)


@pytest.mark.parametrize("name", ["client-malformed", "server-malformed", "client-bad-share"])
@pytest.mark.parametrize(
    "error",
    [
        {"type": "RemoteProtocolError", "party": 0, "reason": "DUPLICATE_KEY"},
        {"type": "TooFewSurvivorsError", "stage": "share", "survivors": 1, "needed": 2},
    ],
    ids=["reason", "type"],
)
def test_the_runner_sees_another_error(name: str, error: dict[str, int | str]) -> None:
    vector = copy.deepcopy(FILES[f"refusals/{name}"])
    vector["operations"][-1]["error"] = error
    with pytest.raises(MismatchError):
        runner.run_refusal(vector, FILES["rounds/active"])


@pytest.mark.parametrize("name", ["refusals/client", "refusals/server"])
def test_the_runner_sees_that_a_message_is_not_refused(name: str) -> None:
    _sees_acceptance(f"{name}-malformed", FILES["rounds/active"])


@pytest.mark.parametrize("side", ["member", "server"])
def test_the_one_shot_runner_sees_another_error_and_none(side: str) -> None:
    name, base = f"one-shot-refusals/{side}-malformed", FILES["one-shot-rounds/plain"]
    other = copy.deepcopy(FILES[name])
    other["operations"][-1]["error"]["reason"] = "DUPLICATE_KEY"
    with pytest.raises(MismatchError):
        one_shot.run_refusal(other, base)
    _sees_acceptance(name, base)


def _sees_acceptance(name: str, base: dict[str, Any]) -> None:
    vector = copy.deepcopy(FILES[name])
    last = vector["operations"][-1]
    last["data"] = last["instead_of"]
    with pytest.raises(MismatchError, match="accepted"):
        runner_of(name).run_refusal(vector, base)


def test_the_runner_sees_changed_primitives() -> None:
    def change(value: Any) -> Any:
        if isinstance(value, str):
            return changed(value)
        return value + 1 if isinstance(value, int) else change(value[0])

    outputs = {
        "mask": "elements",
        "shamir": "shares",
        "ring": "order",
        "committee": "committee",
        "tree": "root",
        "seal": "sealed",
        "commitment": "commitment",
        "context": "encoded",
        "keys": "pair_mask_key",
        "tagged": "tagged",
        "field": "packed",
        "set": "bitmap",
        "one-shot-gaussian": "samples",
        "one-shot-public-element": "sha256",
        "one-shot-ciphertext": "delta",
        "one-shot-shares": "secrets",
        "one-shot-context": "encoded",
        "one-shot-draw": "seed",
        "one-shot-undrawn": "argument",
    }
    assert {f"primitives/{name}" for name in outputs} == set(names("primitives"))
    for name, output in outputs.items():
        vector = copy.deepcopy(FILES[f"primitives/{name}"])
        case = vector["cases"][1]
        if isinstance(case[output], list):
            case[output][0] = change(case[output][0])
        else:
            case[output] = change(case[output])
        with pytest.raises((MismatchError, ValueError)):
            runner_of(f"primitives/{name}").run_primitive(vector)
