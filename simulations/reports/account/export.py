"""What an account tells other tools: the pair that dominates a run, its curve and its losses."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Final, Protocol

from dp import FailingGaussian
from dp.report import json_number
from protocol.errors import ConfigurationError

EXPORT_FORMAT: Final = "veilsum-account/1"
_CURVE_POINTS: Final = 201
_FINEST_INTERVAL: Final = 1e-3
_MOST_MASSES: Final = 1 << 16


class Exported(Protocol):
    """What a mechanism costs, or what a ledger adds up to."""

    @property
    def delta(self) -> float:
        """That its epsilons are stated at."""
        ...

    @property
    def pair(self) -> FailingGaussian | None:
        """What dominates the run; None if nothing does."""
        ...

    def as_json(self) -> dict[str, object]:
        """Return JSON values."""
        ...


def gaussian_figures(pair: FailingGaussian | None) -> dict[str, dict[str, float]]:
    """The pair as (open failure, mu-GDP) and as approximate zCDP; nothing if there is none."""
    if pair is None:
        return {}
    return {
        "gaussian": {"failure": pair.failure, "mu": pair.mu},
        "zcdp": {"rho": pair.rho, "delta": pair.failure},
    }


def export_account(account: Exported, path: Path, room: float = 1.0) -> None:
    """Write the figures, the trade-off curve and a privacy loss distribution to a JSON file.

    Args:
        room: what mu is raised by, relative. Above 1 for figures that were rounded to the nearest,
            those of a ledger's second reader: others compose on what is written, so it is a bound.
    """
    pair, figures = account.pair, account.as_json()
    if pair is None:
        raise ConfigurationError("export", "a run without a bound by Gaussian DP", "left out")
    if room > 1.0:
        failure = math.nextafter(pair.failure, math.inf) if pair.failure > 0.0 else 0.0
        pair = FailingGaussian(failure, pair.mu * room)
        raised = json_number(pair.epsilon(account.delta))
        figures = {**figures, "epsilon": raised, **gaussian_figures(pair)}
    # Losses lie within ten deviations of their mean, and a file has an end.
    widest = 2.0 * (pair.rho + 10.0 * pair.mu)
    losses = pair.losses(max(_FINEST_INTERVAL, widest / _MOST_MASSES))
    errors = [i / (_CURVE_POINTS - 1) for i in range(_CURVE_POINTS)]
    written = {
        "format": EXPORT_FORMAT,
        **figures,
        "trade_off": {
            "type_one_error": errors,
            "type_two_error": pair.type_two_error(errors).tolist(),
        },
        "privacy_loss": {
            "interval": losses.step,
            "first": losses.first,
            "masses": losses.masses.tolist(),
            "infinite": losses.infinite,
        },
    }
    try:
        with path.open("x", encoding="utf-8") as file:
            json.dump(written, file)
    except FileExistsError:
        raise ConfigurationError("export", f"{path} exists", "a new file") from None
