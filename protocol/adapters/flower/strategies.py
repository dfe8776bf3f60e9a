"""Which strategies can work when the server sees one mean and no single update.

A strategy gets one reply to a round, with the model moved by the mean update. What only averages
replies, and then does what it likes with the average, cannot tell the difference. What compares,
sorts, selects or reweighs single replies would get an answer and a wrong one, so it is refused.
"""

from __future__ import annotations

from collections.abc import Mapping

from flwr.app import MetricRecord, RecordDict
from flwr.serverapp.strategy import Strategy

from protocol.adapters.flower.clear import EVALUATION, in_the_clear
from protocol.adapters.flower.errors import StrategyError

MEAN_BASED = ("FedAvg", "FedAvgM", "FedAdagrad", "FedAdam", "FedProx", "FedYogi")

_ADAPTIVE = frozenset({"FedAdagrad", "FedAdam", "FedYogi"})

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
REPORTED = ("survivors", "epsilon", "epsilon-spent", "sketch-size", "bytes-per-survivor")
"""Metrics of a round, beside its weight: those of a `RoundReport`."""
REPORTED_HIDDEN = ("epsilon", "epsilon-outsider-hidden-cohorts", "sketch-size")
"""Likewise, of a hidden cohort."""


def check_strategy(
    strategy: Strategy,
    allow_evaluation_in_the_clear: bool = False,
    evaluates_privately: bool = False,
) -> None:
    """See that a strategy works with one mean, and asks for no answers in the clear.

    A subclass of a mean-based strategy is taken at its word; one of a refused strategy is refused.
    """
    _check_mean(strategy)
    if evaluates_privately:
        _check_averaging(strategy)
        return
    # Without the attribute, a strategy's messages are looked at when it sends them.
    fraction = getattr(strategy, "fraction_evaluate", 0.0)
    if fraction and not allow_evaluation_in_the_clear:
        what = f"strategy {type(strategy).__name__} has clients evaluate each round"
        remedy = f"fraction_evaluate = {fraction}; valid: 0.0, or metrics declared as evaluation"
        raise StrategyError(in_the_clear(f"{what} ({remedy})", EVALUATION))


def require_linear(strategy: Strategy) -> None:
    """See that noise which comes back cancels: a strategy adds up means in the same way always."""
    if name := {each.__name__ for each in type(strategy).__mro__}.intersection(_ADAPTIVE):
        raise StrategyError(
            f"strategy {min(name)} has rates of its own for each number, which change from round "
            "to round: noise that comes back does not cancel. What works: FedAvg, FedAvgM, FedProx"
        )


def _check_averaging(strategy: Strategy) -> None:
    """See that nothing of the strategy's own averages the metrics of a private evaluation."""
    combine = getattr(strategy, "evaluate_metrics_aggr_fn", None)
    if callable(combine) and not _is_flowers_own(combine):
        raise StrategyError(
            f"evaluate_metrics_aggr_fn of strategy {type(strategy).__name__} averages clients' "
            "metrics in a way of its own, and there is one record, of sums over all clients; "
            "valid: left out. What it should compute can be declared in the table evaluation"
        )


def _is_flowers_own(function: object) -> bool:
    return str(getattr(function, "__module__", "")).startswith("flwr.")


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


def require_all_clients(strategy: Strategy, clients: int, cohort: int, step: str = "train") -> None:
    """See that a strategy invites as many clients as a round is planned for.

    Args:
        strategy: that samples `fraction_train` of the nodes, as Flower's do; others pass, and those
            that invite nobody at all.
        step: "train" or "evaluate".
    """
    fraction = getattr(strategy, f"fraction_{step}", None)
    if fraction is None or (step == "evaluate" and fraction == 0.0):
        return
    invited = max(int(fraction * clients), int(getattr(strategy, f"min_{step}_nodes", 0)))
    if invited < cohort:
        raise StrategyError(
            f"strategy {type(strategy).__name__} {step}s on a sample "
            f"(fraction_{step} = {fraction}): {invited} of {clients} clients, and a round is "
            f"planned for {cohort}; those that are not invited would count as lost, and "
            "sampling makes nobody more private here. Valid: "
            f"fraction_{step} = 1.0, or a cohort of at most {invited}"
        )


def require_metrics(strategy: Strategy, *, hidden: bool = False) -> None:
    """See that a strategy finds what it reads in the one reply to a round.

    What clients measure stays with them: the reply has the weight and figures of the round.

    Args:
        hidden: whether cohorts are, and with them what follows who came.
    """
    key = getattr(strategy, "weighted_by_key", DEFAULT_WEIGHT_KEY)
    name = type(strategy).__name__
    if not isinstance(key, str) or not key:
        raise StrategyError(
            f"strategy {name} weighs replies by weighted_by_key = {key!r}; valid: the name of a "
            f"metric, such as {DEFAULT_WEIGHT_KEY!r}. It is in the reply whatever its name is"
        )
    combine = getattr(strategy, "train_metrics_aggr_fn", None)
    if not callable(combine) or _is_flowers_own(combine):
        return
    reported = REPORTED_HIDDEN if hidden else REPORTED
    sample = MetricRecord({key: 2, **dict.fromkeys(reported, 1.0)})
    try:
        combine([RecordDict({"metrics": sample})], key)
    except KeyError as error:
        raise StrategyError(
            f"train_metrics_aggr_fn of strategy {name} reads {error}, which stays with the "
            f"clients: nothing makes their metrics private. A round's one reply has: "
            f"{', '.join(sample)}"
        ) from error


def weight_key(strategy: Strategy | None) -> str:
    """The metric by which a strategy weighs replies; ours is the only reply, of weight n."""
    return str(getattr(strategy, "weighted_by_key", DEFAULT_WEIGHT_KEY))


def _is_flowers(kind: type) -> bool:
    return kind.__module__.split(".")[0] == "flwr"
