"""A private mean in one call, as a simulation in this process."""

from __future__ import annotations

import math
import tempfile
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp import Ledger
from protocol import PrivacyGoal, PrivateTraining, TrainingPlan
from protocol.round.losses import NOBODY, Dropouts
from protocol.schemes import SCHEMES, Scheme
from protocol.training.local import local_aggregator, named_identities
from secagg import Identity, ParameterError
from secagg.keys import os_random
from sketch.controllers import FixedRate

FEW: Final = 4
"""Fewer clients than this are warned: a sum says much about each of them."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class MeanEstimate:
    """What the server learned, and what it cost.

    Attributes:
        mean: float64[d], the private mean over those whose vector arrived.
        epsilon: guaranteed to every client, for this call or, with a ledger, for all calls on it;
            against a server that may deviate from the protocol and work together with as many
            clients as the plan tolerates.
        delta: of that guarantee.
        noise: standard deviation of the error that noise and rounding make in a coordinate of the
            mean, in the units of the vectors.
        survivors: clients whose vector is in the mean.
        shortened: vectors that were longer than the clip; their own clients know it, and a
            simulation, but not the server.
        bytes_sent: by a client, all messages together; the mean over the survivors.
    """

    mean: NDArray[np.float64]
    epsilon: float
    delta: float
    noise: float
    survivors: int
    shortened: int
    bytes_sent: float

    def __str__(self) -> str:
        """One line for people."""
        return (
            f"mean of {self.survivors} vectors of length {self.mean.size}, each coordinate with "
            f"noise {self.noise:.3g}, at epsilon {self.epsilon:.3g}, delta {self.delta:.0e}"
        )


def private_mean(
    vectors: Sequence[ArrayLike] | NDArray[Any],
    *,
    epsilon: float,
    delta: float = 1e-6,
    clip_l2: float = 1.0,
    compression: float = 1.0,
    dropouts: Dropouts = NOBODY,
    ledger: str | Path | None = None,
    names: Sequence[str] | None = None,
    rounds: int = 1,
    scheme: str | Scheme = "pairwise",
    **plan: Any,
) -> MeanEstimate:
    """Compute the mean of vectors, one of each client, as an untrusted server would learn it.

    This is a simulation: all clients and the server are in this process, and play one round with
    real keys, masks and noise. It shows what the protocol releases and costs. It protects nobody,
    since this process has all vectors.

    Args:
        vectors: one of each client: float[n, d], n arrays or tensors of length d, or a data frame
            with a row for each client; n at least 2.
        epsilon: of the promise to every client. Without a ledger it is about this call alone, and
            what several calls tell of one client adds up.
        delta: of that guarantee; take one well below 1 / n.
        clip_l2: a longer vector is shortened to this length. Choose it without looking at the
            vectors: the noise grows with it.
        compression: d divided by the length of what is sent; above 1, a sketch.
        dropouts: clients by index, and the stage before which each is lost.
        ledger: a file for the record of what was released, kept nowhere if left out. All calls on
            it share one promise: a client that has taken part ``rounds`` times is refused.
        names: of the clients, one for each vector; needed with a ledger, which counts by them. The
            same person has the same name at every call.
        rounds: calls on the ledger that a client may take part in; the noise grows with them.
        scheme: "pairwise", "one-shot", "validated", or a scheme with arguments of its own, such
            as ``OneShot(committee=Named(...))``.
        plan: other arguments of `TrainingPlan`. Unless told otherwise, a tenth of the clients may
            be lost, and a twentieth may work for the server.

    Raises:
        ParameterError: no such vectors or names, a ledger without names, or figures that do not fit
            together.
        ProtocolError, PrivacyError: as `PrivateTraining.run_round`.
    """
    rows = _rows(vectors)
    if not isinstance(compression, int | float) or not compression >= 1.0:
        raise ParameterError("compression", compression, "at least 1, where nothing is compressed")
    count, dimension = rows.shape
    goal = PrivacyGoal(epsilon=epsilon, delta=delta, rounds=rounds)
    chosen = plan_of(count, goal, clip_l2, scheme, plan)
    if count < FEW:
        warnings.warn(
            f"{count} clients: with so few, each knows nearly as much about the others as the sum "
            "says, and the noise is about as large as the mean",
            stacklevel=2,
        )
    people = people_of(names, count, ledger)
    aggregator = local_aggregator(chosen, people, dimension)
    with ExitStack() as stack:
        if ledger is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="veilsum-mean-"))
            ledger = Path(folder) / "ledger.jsonl"
        opened = stack.enter_context(Ledger.open(ledger))
        training = PrivateTraining(chosen, dimension, FixedRate(compression), aggregator, opened)
        cohort = [person.public for person in people]
        result = training.run_round(cohort, os_random(32), lambda index: rows[index], dropouts)
    shortened = int(np.count_nonzero(np.linalg.norm(rows, axis=1) > clip_l2))
    if shortened:
        warnings.warn(
            f"{shortened} of {count} vectors were longer than clip_l2 = {clip_l2:g} and were "
            "shortened to it: the mean is that of the shortened ones",
            stacklevel=2,
        )
    release = result.release
    return MeanEstimate(
        mean=release.update,
        epsilon=result.epsilons.guaranteed,
        delta=delta,
        noise=math.sqrt(release.noise_variance),
        survivors=release.survivors,
        shortened=shortened,
        bytes_sent=result.outcome.bytes_per_survivor(),
    )


def plan_of(
    count: int, goal: PrivacyGoal, clip_l2: float, scheme: str | Scheme, plan: Mapping[str, Any]
) -> TrainingPlan:
    """The plan of a call for so many clients: a tenth may be lost, a twentieth may collude."""
    choices: dict[str, Any] = {
        "tolerated_dropouts": count // 10,
        "tolerated_colluders": count // 20,
        **plan,
    }
    return TrainingPlan(
        goal=goal, cohort=count, clip_l2=clip_l2, scheme=scheme_of(scheme), **choices
    )


def people_of(names: Sequence[str] | None, count: int, ledger: str | Path | None) -> list[Identity]:
    """An identity for each vector: new ones if no ledger counts what they spend."""
    if names is None:
        if ledger is not None:
            valid = "given with names=: one for each vector, the same for a person in every call"
            raise ParameterError("ledger", "given without names", valid)
        return [Identity.generate() for _ in range(count)]
    if ledger is None:
        raise ParameterError("names", "given without a ledger", "given with ledger=, which counts")
    if isinstance(names, str) or len(names) != count:
        raise ParameterError("names", f"{len(names)} of them", f"{count}, one for each vector")
    return named_identities(names)


def scheme_of(scheme: str | Scheme) -> Scheme:
    """A scheme by its name, or as it is given."""
    if not isinstance(scheme, str):
        return scheme
    if scheme not in SCHEMES:
        raise ParameterError("scheme", repr(scheme), f"one of {', '.join(SCHEMES)}, or an object")
    return SCHEMES[scheme]()


def _array(given: Any) -> Any:
    """What NumPy can iterate over row by row: data frames go by column, and tensors may not go."""
    valid = "one vector of each client, such as list({})"
    if hasattr(given, "batch_sampler"):
        first = given.dataset[0] if hasattr(given.dataset, "__getitem__") else None
        rows = "x for x, *_ in loader.dataset" if isinstance(first, tuple) else "loader.dataset"
        valid = valid.replace("list({})", "[{}]" if isinstance(first, tuple) else "list({})")
        raise ParameterError("vectors", "a DataLoader", valid.format(rows))
    if isinstance(given, Mapping):
        raise ParameterError("vectors", "a mapping", valid.format("vectors.values()"))
    if hasattr(given, "detach"):
        given = given.detach().cpu()
    to_numpy = getattr(given, "to_numpy", None) or getattr(given, "numpy", None)
    if to_numpy is not None:
        return to_numpy()
    if hasattr(given, "__array__") or not isinstance(given, Iterable) or isinstance(given, str):
        return np.asanyarray(given)
    return [_array(each) for each in given]


def _rows(vectors: Sequence[ArrayLike] | NDArray[Any]) -> NDArray[np.float64]:
    """The vectors as float64[n, d]."""
    valid = "n vectors of one length d, of finite numbers"
    try:
        given = [np.asanyarray(each) for each in _array(vectors)]
        is_masked = any(np.ma.isMaskedArray(each) for each in given)
        is_complex = any(np.iscomplexobj(each) for each in given)
        rows = np.zeros((0, 0)) if is_masked or is_complex else np.array(given, dtype=np.float64)
    except ParameterError:
        raise
    except (TypeError, ValueError, RuntimeError) as error:
        raise ParameterError("vectors", f"({error})", valid) from None
    if is_masked:
        raise ParameterError("vectors", "masked", f"{valid}, none of them masked")
    if is_complex:
        raise ParameterError("vectors", "complex", f"{valid}, real and imaginary parts apart")
    if rows.ndim != 2 or rows.size == 0:
        raise ParameterError("vectors", f"of shape {rows.shape}", valid)
    wrong = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    if wrong.size:
        raise ParameterError(f"vectors[{wrong[0]}]", "with a NaN or an infinity", valid)
    return rows
