"""Which strategies can work when the server sees one mean and no single update.

A strategy gets one reply to a round, with the model moved by the mean update. What only averages
replies, and then does what it likes with the average, cannot tell the difference. What compares,
sorts, selects or reweighs single replies would get an answer and a wrong one, so it is refused.
"""

from __future__ import annotations

from collections.abc import Mapping

from flwr.serverapp.strategy import Strategy

from protocol.adapters.flower.clear import EVALUATION, in_the_clear
from protocol.adapters.flower.errors import StrategyError

MEAN_BASED = ("FedAvg", "FedAvgM", "FedAdagrad", "FedAdam", "FedProx", "FedYogi")

_SINGLE = "needs every client's update by itself"
_NOISE = "clips single updates and adds noise of its own, and both are done on the clients here"
_TREES = "collects trees, which have no mean"

REFUSED: Mapping[str, str] = {
    "Krum": _SINGLE,
    "MultiKrum": _SINGLE,
    "Bulyan": _SINGLE,
    "FedMedian": _SINGLE,
    "FedTrimmedAvg": _SINGLE,
    "QFedAvg": "weighs every client's update by its own loss",
    "FedXgbBagging": _TREES,
    "FedXgbCyclic": _TREES,
    "DifferentialPrivacyFixedClippingBase": _NOISE,
    "DifferentialPrivacyServerSideFixedClipping": _NOISE,
    "DifferentialPrivacyClientSideFixedClipping": _NOISE,
    "DifferentialPrivacyAdaptiveBase": _NOISE,
    "DifferentialPrivacyServerSideAdaptiveClipping": _NOISE,
    "DifferentialPrivacyClientSideAdaptiveClipping": _NOISE,
}
"""Flower's strategies that cannot work, by the name of their class, and why."""

DEFAULT_WEIGHT_KEY = "num-examples"


def check_strategy(strategy: Strategy, allow_evaluation_in_the_clear: bool = False) -> None:
    """See that a strategy works with one mean, and asks for no answers in the clear.

    A subclass of a mean-based strategy is taken at its word; one of a refused strategy is refused.

    Raises:
        StrategyError: it does not, or nobody knows, or it asks; names it and what would work.
    """
    _check_mean(strategy)
    # Without the attribute, a strategy's messages are looked at when it sends them.
    fraction = getattr(strategy, "fraction_evaluate", 0.0)
    if fraction and not allow_evaluation_in_the_clear:
        what = f"strategy {type(strategy).__name__} has clients evaluate each round"
        cure = f"fraction_evaluate = {fraction}; valid: 0.0"
        raise StrategyError(in_the_clear(f"{what} ({cure})", EVALUATION))


def _check_mean(strategy: Strategy) -> None:
    names = [each.__name__ for each in type(strategy).__mro__ if _is_flowers(each)]
    reason = next((REFUSED[name] for name in names if name in REFUSED), None)
    if reason is None and any(name in MEAN_BASED for name in names):
        return
    raise StrategyError(
        f"strategy {type(strategy).__name__} "
        f"{reason or 'is not known to use the mean of all updates only'}; the server sees nothing "
        f"but a noisy mean. What works: {', '.join(MEAN_BASED)} and their subclasses"
    )


def weight_key(strategy: Strategy | None) -> str:
    """The metric by which a strategy weighs replies; ours is the only reply, of weight n."""
    return str(getattr(strategy, "weighted_by_key", DEFAULT_WEIGHT_KEY))


def _is_flowers(kind: type) -> bool:
    return kind.__module__.split(".")[0] == "flwr"
