"""Private federated averaging in NVFlare's simulator: six clients read scikit-learn's digits.

Needs: veilsum[nvflare], scikit-learn
Run with: python examples/nvflare/digits.py WORKSPACE

Six clients do not hide anybody well, so epsilon is large here. What matters is how the parts fit
together; docs/integrations/nvflare.md says what to change for your own federation.
"""

import argparse
import json
import shutil
import sys
from pathlib import Path

from digits_parts import DIMENSION, DigitsTrainer, ScoredPersistor
from nvflare.app_common.workflows.fedavg import FedAvg
from nvflare.job_config.api import FedJob

from protocol.adapters.nvflare import MaskedTraining, PrivateAveraging
from protocol.adapters.nvflare.site import make_identity, write_registry

CLIENTS, ROUNDS = 6, 6
PACKAGES = ["protocol", "secagg", "dp", "sketch"]
AGREEMENT = f"""\
rounds = {ROUNDS}
dimension = {DIMENSION}

[privacy]
noise_multiplier = 0.2
delta = 1e-5
clip_l2 = 1.0

[cohort]
size = {CLIENTS}
tolerated_dropouts = 1
tolerated_colluders = 1
"""
# Whatever job a client is sent, nothing but masked results leaves it.
PRIVACY = {
    "scopes": [
        {
            "name": "masked",
            "task_result_filters": [{"path": "protocol.adapters.nvflare.filters.OnlyAnswers"}],
        }
    ],
    "default_scope": "masked",
}


def provision(local: Path, clients: list[str]) -> None:
    """What every site has before there is any job. The simulator gives all sites one folder."""
    folder = local / "veilsum"
    folder.mkdir(parents=True)
    write_registry(folder, {name: make_identity(folder, name) for name in clients})
    (folder / "agreement.toml").write_text(AGREEMENT)
    (local / "privacy.json").write_text(json.dumps(PRIVACY))


def private_job(scores: Path, leaves_in: int) -> FedJob:
    """The job: a workflow, a persistor, and a trainer behind `MaskedTraining`."""
    # One client may be missing; NVFlare ends a job with fewer than `min_clients`.
    job = FedJob("private_digits", min_clients=CLIENTS - 1)
    # Installed on every site; not to be taken from a job.
    job.set_app_packages(PACKAGES)
    job.to_server(ScoredPersistor(str(scores)), id="persistor")
    job.to_server(PrivateAveraging(ROUNDS, learning_rate=1.5))
    trainer = DigitsTrainer(CLIENTS, leaver=f"site-{CLIENTS}", leaves_in=leaves_in)
    job.to_clients(MaskedTraining(job.as_id(trainer)), tasks=["veilsum_*"])
    return job


def plain_job(scores: Path) -> FedJob:
    """The same with NVFlare's own averaging, for comparison."""
    job = FedJob("plain_digits", min_clients=CLIENTS)
    job.to_server(ScoredPersistor(str(scores)), id="persistor")
    job.to_server(FedAvg(num_clients=CLIENTS, num_rounds=ROUNDS))
    job.to_clients(DigitsTrainer(CLIENTS), tasks=["train"])
    return job


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workspace", type=Path, help="new folder")
    parser.add_argument("--plain", action="store_true", help="NVFlare's own averaging instead")
    parser.add_argument("--leaves-in", type=int, default=2, help="round that loses a client")
    parser.add_argument("--threads", type=int, default=CLIENTS, help="clients that run at once")
    parser.add_argument("--interval", type=float, default=0.5, help="seconds between task requests")
    options = parser.parse_args()
    workspace = options.workspace.absolute()
    clients = [f"site-{number}" for number in range(1, CLIENTS + 1)]
    scores = workspace.with_name(workspace.name + ".scores.jsonl")
    scores.unlink(missing_ok=True)
    shutil.rmtree(workspace, ignore_errors=True)
    if options.plain:
        job = plain_job(scores)
    else:
        provision(workspace / "local", clients)
        (workspace / "startup").mkdir()
        job = private_job(scores, options.leaves_in)
    job.to_server({"server": {"task_request_interval": options.interval}})
    failed = job.simulator_run(str(workspace), n_clients=CLIENTS, threads=options.threads)
    if scores.exists():
        print(scores.read_text(), end="")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
