"""The client: a training function like any other, behind `secure_mod`."""

from __future__ import annotations

from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from digits_app.task import Model, training_part
from protocol.adapters.flower import secure_mod

app = ClientApp(mods=[secure_mod])


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train on our own digits.

    The metrics stay here: the mod sends on nothing but the update, clipped, noised and masked.
    """
    arrays = message.content["arrays"]
    model = Model(arrays["weights"].numpy(), arrays["bias"].numpy())
    node, run = context.node_config, context.run_config
    examples = training_part(int(node["partition-id"]), int(node["num-partitions"]))
    trained = model.trained(examples, int(run["local-epochs"]), float(run["learning-rate"]))
    content = RecordDict(
        {
            "arrays": ArrayRecord({"weights": Array(trained.weights), "bias": Array(trained.bias)}),
            "metrics": MetricRecord({"num-examples": examples.labels.size}),
        }
    )
    return Message(content, reply_to=message)
