"""The server: stock FedAvg over a `SecureGrid`."""

from __future__ import annotations

import json
from pathlib import Path

from flwr.app import Array, ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from digits_app.task import Model, test_examples
from protocol.adapters.flower import SecureGrid

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train for some rounds and print what came of it."""
    examples, zero = test_examples(), Model.zero()

    def evaluate(_: int, arrays: ArrayRecord) -> MetricRecord:
        model = Model(arrays["weights"].numpy(), arrays["bias"].numpy())
        return MetricRecord({"accuracy": model.accuracy(examples)})

    # Clients' own evaluation is left out: its results would leave them as they are.
    strategy = FedAvg(fraction_evaluate=0.0)
    with SecureGrid.from_context(grid, context, strategy) as secure:
        result = strategy.start(
            grid=secure,
            initial_arrays=ArrayRecord({"weights": Array(zero.weights), "bias": Array(zero.bias)}),
            num_rounds=int(context.run_config["num-server-rounds"]),
            evaluate_fn=evaluate,
        )
    accuracy = [metrics["accuracy"] for metrics in result.evaluate_metrics_serverapp.values()]
    report = {
        "accuracy": accuracy,
        "epsilon": secure.reports[-1].epsilons.guaranteed,
        "epsilon spent": [each.epsilons.server for each in secure.reports],
        "survivors": [each.survivors for each in secure.reports],
        "lost": [list(each.lost.values()) for each in secure.reports],
        "round trips": [each.exchanges for each in secure.reports],
        "bytes for each client": [each.bytes_per_survivor for each in secure.reports],
    }
    print(json.dumps(report))
    if context.run_config["result"]:
        Path(str(context.run_config["result"])).write_text(json.dumps(report))
