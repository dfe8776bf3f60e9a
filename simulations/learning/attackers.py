"""Malicious clients in a simulated run: what they send in place of what they trained.

Those who plant a backdoor train as others do, on examples of their own and on marked copies of them
with the label that marked examples shall get.

An attacker runs the protocol, with noise of its own, but chooses its vector. Up to the clipping
norm the honest encoder takes it. Beyond, an attacker leaves the clip out, and what that adds to the
sum is added to the opened integers: nothing below the simulator knows of attackers. Where vectors
are validated, one beyond the bound is left out, as if its client had been lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from protocol.errors import ConfigurationError
from protocol.exchange.aggregators import Aggregator, UpdateSource
from protocol.exchange.stages import ReleaseHook, RoundOutcome, no_hook
from protocol.round.losses import Dropouts, Stage
from protocol.round.lottery import Members
from protocol.round.setup import RoundEncoding
from secagg import FieldVector
from secagg.field import add_into
from simulations.learning.data import Split
from simulations.learning.partition import Partition
from sketch import Rotation

if TYPE_CHECKING:
    from simulations.learning.configuration import RunConfig
    from simulations.learning.federated import Updates

_STREAM = 6
"""Tells the choice of attackers apart from the run's other streams."""
TARGET, MARKED = 0, 3
"""The label that a backdoor gives, and how many numbers of an example are its mark."""


class Attackers:
    """Who attacks in a run, and how: the same clients, and one direction, in all rounds."""

    def __init__(self, config: RunConfig) -> None:
        table, population = config.attackers, config.task.population
        self._rng_of = (config.seed, _STREAM)
        self.table = table
        count = round(table.fraction * population) if table else 0
        drawn = np.random.default_rng(self._rng_of).choice(population, count, replace=False)
        self.clients = frozenset(drawn.tolist())
        self._clip = config.privacy.clip_l2

    def vector(self, trained: NDArray[np.float32]) -> NDArray[np.float32]:
        """What an attacker sends in place of what it trained: float32[d], of the table's length."""
        if self.table is None:
            return trained
        aim = trained.astype(np.float64)
        if self.table.kind == "sign-flip":
            aim = -aim
        elif self.table.kind == "spike":
            aim = np.zeros(aim.size)
            aim[np.random.default_rng(self._rng_of).integers(aim.size)] = 1.0
        elif self.table.kind == "direction":
            aim = np.random.default_rng(self._rng_of).normal(size=aim.size)
        # What trains for a backdoor, or is scaled, is sent as it is.
        norm = float(np.linalg.norm(aim))
        if norm:
            aim *= self.table.length * self._clip / norm
        return aim.astype(np.float32)

    @property
    def plant(self) -> bool:
        """Whether attackers plant a backdoor."""
        return self.table is not None and self.table.kind == "backdoor"

    def marked(self, split: Split, mark: float) -> Split | None:
        """Examples of other labels than the target, with a mark and that label; None if none are.

        Args:
            mark: what the last numbers of an example become.
        """
        if split.inputs.dtype != np.float32 or split.labels.ndim > 1:
            valid = "sign-flip, scaled, spike or direction: the mark is in numbers, of one label"
            raise ConfigurationError("attackers.kind", "value 'backdoor' for these data", valid)
        inputs = split.inputs[split.labels != TARGET].copy()
        if not len(inputs):
            return None
        inputs.reshape(len(inputs), -1)[:, -MARKED:] = mark
        return Split(inputs, np.full(len(inputs), TARGET, np.int64))

    def poisoned(self, train: Split, members: Partition, mark: float) -> tuple[Split, Partition]:
        """The examples of all clients, with those that attackers add to their own."""
        parts, changed, count = [train], list(members), len(train)
        for client in sorted(self.clients):
            own = members[client]
            more = self.marked(Split(train.inputs[own], train.labels[own]), mark)
            if more is not None:
                changed[client] = np.concatenate([own, np.arange(count, count + len(more))])
                parts, count = [*parts, more], count + len(more)
        if len(parts) == 1:
            return train, members
        arrays = ([getattr(part, name) for part in parts] for name in ("inputs", "labels"))
        return Split(*map(np.concatenate, arrays)), tuple(changed)


class AttackedUpdates:
    """The updates of a cohort, of which attackers send others."""

    def __init__(self, updates: Updates, attackers: Attackers, clients: Iterable[int]) -> None:
        self._updates, self._attackers = updates, attackers
        self._places = {i for i, client in enumerate(clients) if client in attackers.clients}

    @property
    def seconds(self) -> float:
        """As of the updates themselves."""
        return self._updates.seconds

    def __call__(self, index: int) -> NDArray[np.float32]:
        """The update of client `index`, float32[d]."""
        update = self._updates(index)
        return self._attackers.vector(update) if index in self._places else update


class AttackedAggregator:
    """An aggregator to which some identities send vectors beyond the clip.

    Args:
        keys: identity keys of the attackers.
        length: of their vectors, in clipping norms, above 1.
    """

    def __init__(self, aggregator: Aggregator, keys: Iterable[bytes], length: float) -> None:
        self._aggregator, self._keys, self._length = aggregator, frozenset(keys), length

    def members(self, session_id: bytes, cohort: Sequence[bytes], round_number: int) -> Members:
        """The committee's signed keys for a round: see `HasCommittee.members`."""
        committee: Any = self._aggregator
        found: Members = committee.members(session_id, cohort, round_number)
        return found

    def run(
        self,
        setup: RoundEncoding,
        updates: UpdateSource,
        dropouts: Dropouts,
        *,
        before_release: ReleaseHook = no_hook,
    ) -> RoundOutcome:
        """As `Aggregator.run`, with what attackers add."""
        attackers = {i for i, key in enumerate(setup.identities) if key in self._keys}
        parameters = setup.parameters
        units = parameters.scale * parameters.sketch_clip_l2
        whole = np.zeros(parameters.length, np.int64)
        whole[0] = round(self._length * units)
        if not setup.accepts(whole):
            lost = {**dropouts, **dict.fromkeys(attackers, Stage.INPUT)}
            return self._aggregator.run(setup, updates, lost, before_release=before_release)
        beyond: dict[int, NDArray[np.int64]] = {}
        sketch = parameters.sketch.build(parameters.public_seed)
        rotation = Rotation(parameters.length, parameters.public_seed)

        def asked(index: int) -> NDArray[Any]:
            update = updates(index)
            if index in attackers:
                sent = rotation.forward(sketch.encode(update.astype(np.float64)))
                norm = float(np.linalg.norm(sent)) or 1.0
                beyond[index] = np.rint(sent * ((self._length - 1.0) * units / norm)).astype(
                    np.int64
                )
            return update

        outcome = self._aggregator.run(setup, asked, dropouts, before_release=before_release)
        field, total = setup.context.field, outcome.total.vector.elements.copy()
        for index in beyond.keys() & set(outcome.total.survivors):
            residues = (beyond[index] % field.modulus).astype(field.dtype)
            add_into(total, FieldVector(field, residues))
        vector = FieldVector(field, total)
        return replace(outcome, total=replace(outcome.total, vector=vector))
