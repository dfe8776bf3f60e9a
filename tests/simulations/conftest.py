"""Makes the helpers beside these tests importable, and keeps torch to one thread if asked to."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# Tests are collected in importlib mode, where a folder of tests is not on the path by itself.
_HERE = str(Path(__file__).parent)
if _HERE not in sys.path:
    sys.path.insert(0, _HERE)


@pytest.fixture
def one_thread() -> None:
    """Keep torch to one thread: sums in one order, and no waiting where cores are shared."""
    # Most tests here need no torch, and loading it takes seconds.
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def cluster() -> Iterator[str]:
    """The address of a Dask cluster of two processes."""
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        yield cluster.scheduler_address


@pytest.fixture
def refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """A `Refused`: what a command says that ends with status 2 and without a traceback."""
    from simulations.__main__ import main

    def said(*arguments: object) -> str:
        monkeypatch.setattr(sys, "argv", ["veilsum", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            main()
        assert caught.value.code == 2
        error = capsys.readouterr().err
        assert "Traceback" not in error, error
        return error

    return said
