"""Stands in for `flwr_datasets`, as far as an app of `flwr new` uses it: no network."""

from __future__ import annotations

from collections.abc import Mapping

from datasets import Dataset

from flwr_datasets.partitioner import IidPartitioner

_PICTURES = 100


class FederatedDataset:
    """A data set in parts, one for each client."""

    def __init__(self, dataset: str, partitioners: Mapping[str, IidPartitioner]) -> None:
        self._parts = partitioners["train"].num_partitions

    def load_partition(self, partition_id: int) -> Dataset:
        """A client's own."""
        assert 0 <= partition_id < self._parts
        return Dataset.made(_PICTURES, seed=partition_id)
