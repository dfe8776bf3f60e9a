"""Figures of a run or a plan as a table for people: in groups, in words, with units."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from rich.box import SIMPLE
from rich.table import Table
from rich.text import Text

from simulations.common.tables import readable

SHARE: Final = "%"


@dataclass(frozen=True, slots=True)
class Label:
    """How a figure is shown."""

    group: str  # what it is about, with the figures around it
    words: str  # what it is
    unit: str = ""  # behind the value; `SHARE` for a share of 1


_RESULT, _CLIENTS, _SUM, _NOISE = "training", "clients", "protocol", "noise"
_SCHEDULE, _RETURN = "schedule", "noise that comes back"
_EACH, _ERROR, _TIME = "what a client sends and receives", "squared error", "this machine"
_EPSILON = "epsilon of one client, against"
LABELS: Final[Mapping[str, Label]] = {
    "protects": Label("warning", "this run protects"),
    "insecure_seed": Label("warning", "insecure seed"),
    "rounds": Label(_RESULT, "rounds"),
    "accuracy": Label(_RESULT, "test accuracy", SHARE),
    "best_accuracy": Label(_RESULT, "test accuracy after the best round", SHARE),
    "loss": Label(_RESULT, "test loss"),
    "backdoor": Label(_RESULT, "marked test examples that get the attackers' label", SHARE),
    "parameters": Label(_RESULT, "parameters of the model"),
    "clients": Label(_CLIENTS, "in all"),
    "cohort": Label(_CLIENTS, "invited to each round"),
    "fewest_clients": Label(_CLIENTS, "who may come to a round, at least"),
    "most_clients": Label(_CLIENTS, "who may come to a round, at most"),
    "rounds_of_one_client": Label(_CLIENTS, "rounds of one client, at most"),
    "examples_of_the_poorest_client": Label(_CLIENTS, "examples of the smallest client"),
    "colluders": Label(_CLIENTS, "colluding with the server, at most"),
    "minimum_survivors": Label(_CLIENTS, "survivors in the sum, at least"),
    "aggregator": Label(_SUM, "sum by (engine.aggregator)"),
    "mode": Label(_SUM, "server"),
    "graph.degree": Label(_SUM, "neighbours of each client"),
    "graph.threshold": Label(_SUM, "shares that recover a secret (threshold)"),
    "scheme": Label(_SUM, "name"),
    "committee.kind": Label(_SUM, "committee"),
    "committee.size": Label(_SUM, "members"),
    "committee.corrupt": Label(_SUM, "corrupt members, at most"),
    "committee.randomness": Label(_SUM, "members whose shares reveal nothing together"),
    "committee.per_polynomial": Label(_SUM, "secrets in one polynomial"),
    "committee.quorum": Label(_SUM, "signatures that fix the set of survivors (quorum)"),
    "ring.degree": Label(_SUM, "coefficients of a ring element"),
    "ring.limbs": Label(_SUM, "primes of the ring's modulus"),
    "ring.rounding_bits": Label(_SUM, "low bits of a coefficient that are not sent"),
    "ring.entries": Label(_SUM, "entries of a key in one secret"),
    "validation.bound": Label(_SUM, "longest vector, in clipping norms, noise included"),
    "validation.member_bound": Label(_SUM, "longest noise of a member, in clipping norms"),
    "validation.largest_shift": Label(_SUM, "how far all corrupt parties move the sum, likewise"),
    "validation.left_out": Label(_SUM, "honest uploads that corrupt members may have left out"),
    "validation.honest_signal": Label(_SUM, "how far the other clients move it at most"),
    "validation.ring_bits": Label(_SUM, "bits of the ring's modulus"),
    "validation.repetitions": Label(_SUM, "repetitions of the check"),
    "removable_seeds": Label(_SUM, "removable seeds of noise, each client"),
    "dimension": Label(_EACH, "length of an update", "values"),
    "length": Label(_EACH, "values sent"),
    "first_sketch": Label(_EACH, "values sent in the first round"),
    "compression": Label(_EACH, "compression", "x"),
    "compression_second_half": Label(_EACH, "the same in the second half of the rounds", "x"),
    "bits": Label(_EACH, "bits of a value"),
    "bits_exact": Label(_EACH, "bits that could never wrap"),
    "bits_per_coordinate": Label(_EACH, "bits for each value of the update"),
    "wrap_probability": Label(_EACH, "probability that a sum wraps"),
    "megabytes_per_client": Label(_EACH, "in a round, both directions", "MB"),
    "megabytes_per_client_and_round": Label(_EACH, "in a round, both directions", "MB"),
    "bytes_per_client": Label(_EACH, "in a round, both directions", "bytes"),
    "bytes_each.vector": Label(_EACH, "of that, the vector", "bytes"),
    "bytes_each.roster": Label(_EACH, "keys of the others", "bytes"),
    "bytes_each.shares": Label(_EACH, "shares of secrets", "bytes"),
    "bytes_each.confirmations": Label(_EACH, "signatures on the survivors", "bytes"),
    "bytes_each.unmasking": Label(_EACH, "shares that open the sum", "bytes"),
    "bytes_each.seals": Label(_EACH, "sealed shares for the members", "bytes"),
    "bytes_each.functional": Label(_EACH, "what members check the length with", "bytes"),
    "bytes_each.seeds": Label(_EACH, "commitments to seeds of noise", "bytes"),
    "bytes_each.header": Label(_EACH, "key and signature", "bytes"),
    "bytes_each.announcement": Label(_EACH, "announcement of the round", "bytes"),
    "bytes_each.checking": Label(_EACH, "as a member: shares to be checked", "bytes"),
    "bytes_each.opening": Label(_EACH, "as a member: answers that open the sum", "bytes"),
    "mechanism": Label(_NOISE, "mechanism"),
    "coins_per_client": Label(_NOISE, "coins of one client"),
    "variance_per_client": Label(_NOISE, "parameter of one client's noise"),
    "noise_of_the_mean_l2": Label(_NOISE, "norm in the mean update (l2)"),
    "clip_l2": Label(_NOISE, "clipping norm (l2)"),
    "linf_bound": Label(_NOISE, "largest integer of a client"),
    "scale": Label(_NOISE, "integer steps to a unit of the update"),
    "participations": Label(_SCHEDULE, "rounds of one client, at most"),
    "apart": Label(_SCHEDULE, "minimum number of rounds between them", "rounds"),
    "optimiser": Label(_SCHEDULE, "how the model adds up its sums"),
    "gain": Label(_RETURN, "noise in the model is smaller by a factor of"),
    "returned_share": Label(_RETURN, "share of a round's noise that comes back", SHARE),
    "round_noise_ratio": Label(_RETURN, "noise of one round is larger by a factor of"),
    "fresh_ratio": Label(_RETURN, "fresh variance of a round, over that of independent noise"),
    "kept_ratio": Label(_RETURN, "variance that never comes back, likewise"),
    "charge": Label(_RETURN, "squared mu of the worst client, at noise multiplier 1"),
    "pays": Label(_RETURN, "worth a committee"),
    "noise_multiplier": Label(_RETURN, "fresh noise multiplier of a round"),
    "independent_noise_multiplier": Label(_RETURN, "the same for independent noise"),
    "against.promised": Label(_EPSILON, "as promised: few members and clients are corrupt"),
    "against.without_members": Label(_EPSILON, "a server that knows the noise of all members"),
    "against.made_up": Label(_EPSILON, "server that opens uploads, or made up all others"),
    "against.delta": Label(_EPSILON, "delta of all of these"),
    "squared_error.survivors": Label(_ERROR, "of the mean update of so many clients"),
    "squared_error.noise": Label(_ERROR, "from noise and rounding"),
    "squared_error.compression_at_clip": Label(_ERROR, "from compression, at most"),
    "squared_error.gaussian_mechanism": Label(_ERROR, "of a trusted server's noise"),
    "squared_error.noise_excess": Label(_ERROR, "noise beyond that", SHARE),
    "algorithm": Label(_NOISE, "local algorithm"),
    "epsilon_of_a_report": Label(_EPSILON, "of one report"),
    "epsilons.guaranteed": Label(_EPSILON, "guaranteed, wherever the run stops"),
    "epsilons.guaranteed_against": Label(_EPSILON, "guaranteed against"),
    "epsilons.server": Label(_EPSILON, "the server and its colluders"),
    "epsilons.outsider": Label(_EPSILON, "whoever sees only the released models"),
    "epsilons.without_members": Label(_EPSILON, "a server that knows the noise of all members"),
    "epsilons.sybil": Label(_EPSILON, "a server that made up all other clients"),
    "epsilons.hidden_cohorts": Label(_EPSILON, "who is never told who came (not the server)"),
    "epsilons.secagg_alone": Label(_EPSILON, "the server, if there were no noise"),
    "epsilons.one_report": Label(_EPSILON, "of one report"),
    "epsilon_replace_one": Label(_EPSILON, "server, one update replaced by another"),
    "epsilons.delta": Label(_EPSILON, "delta of all of these"),
    "epsilons.colluders": Label(_EPSILON, "colluders that this takes into account"),
    "epsilons.adjacency": Label(_EPSILON, "what is compared"),
    "epsilons.amplified": Label(_EPSILON, "outsider's is amplified by sampling"),
    "bound": Label(_EPSILON, "counted by"),
    "chunks_of_a_cohort": Label(_TIME, "chunks of clients that train together"),
    "ranks": Label(_TIME, "processes"),
    "estimated_minutes": Label(_TIME, "estimated time", "min"),
    "megabytes_of_memory_for_clients": Label(_TIME, "memory of a process for clients", "MB"),
    "megabytes_of_disk_for_uploads": Label(_TIME, "its disk for uploads", "MB"),
    "seconds_training_and_encoding": Label(_TIME, "time of all rounds", "s"),
    "resumed_after": Label(_TIME, "resumed after", "rounds"),
    "folder": Label(_TIME, "folder"),
}
"""By name, or `outer.inner`. Figures without a label keep their names."""
UNSAID: Final = {"epsilons.gaussian": None, "epsilons.amplified": False, "resumed_after": 0}
"""Figures that are left out: of that value, or of any if it is None."""
SUMS: Final = {"left_": " (left factors)", "right_": " (right factors)"}
"""Prefixes of figures of which a run has two."""
OTHERS: Final = "other"


def grouped_table(title: str, figures: Mapping[str, object]) -> Table:
    """A row for each figure, those of a group below its name; nested ones as `outer.inner`."""
    order = list(LABELS)
    groups: dict[str, list[tuple[int, str, str]]] = {
        group: [] for group in dict.fromkeys(label.group for label in LABELS.values())
    }
    for name, value in _flat(figures):
        if name in UNSAID and UNSAID[name] in (None, value):
            continue
        label, bare, suffix = _label(name)
        place = order.index(bare) if bare in LABELS else len(order)
        cells = (place, f"  {label.words}{suffix}", _value(value, label.unit))
        groups.setdefault(label.group, []).append(cells)
    table = Table("", "", title=title, show_header=False, box=SIMPLE)
    table.columns[0].no_wrap = True
    table.columns[1].overflow = "fold"
    for group, rows in groups.items():
        if rows:
            table.add_row(Text(group, "bold"), "")
        for _, words, value in sorted(rows, key=lambda row: row[0]):
            table.add_row(Text(words), Text(value))
    return table


def _flat(figures: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    for name, value in figures.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}.{inner}", each) for inner, each in value.items())
        else:
            yield name, value


def _label(name: str) -> tuple[Label, str, str]:
    """The label of a figure, its name there, and which of two sums it is about."""
    for prefix, suffix in SUMS.items():
        bare = name.removeprefix(prefix)
        if bare != name and bare in LABELS:
            return LABELS[bare], bare, suffix
    plain = name.replace(".", ", ").replace("_", " ")
    return LABELS.get(name, Label(OTHERS, plain)), name, ""


def _value(value: object, unit: str) -> str:
    if unit == SHARE and isinstance(value, float):
        return f"{value:.1%}"
    shown = readable(value)
    return f"{shown}{'' if unit == 'x' else ' '}{unit}" if unit else shown
