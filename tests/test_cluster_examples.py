"""The files for clusters start what they say: checked without a cluster.

Their own shells run them, with programs in place of torchrun and SLURM's that say how they were
called. What Kubernetes makes of a file is not tested here, only that the figures and names agree on
which the pods depend to find one another.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from ports import free_port
from torchrun_words import launched_words, torchrun_options

from protocol.planning.configuration import load, parse
from simulations.commands import cli
from simulations.learning.configuration import RunConfig, write_config

ROOT = Path(__file__).parents[1]
CLUSTER = ROOT / "examples" / "cluster"
SLURM = (CLUSTER / "slurm.sh").read_text()
KUBERNETES = (CLUSTER / "kubernetes.yaml").read_text()
INDEX = "JOB_COMPLETION_INDEX"
HOSTS = ("node-07", "node-08")
SMALL: Mapping[str, Any] = {
    "seed": 3,
    "rounds": 2,
    "task": {"population": 30, "hidden": 6, "minimum_examples": 3},
    "local": {"learning_rate": 0.3, "steps": 2, "batch_size": 8},
    "server": {"learning_rate": 2.0},
    "privacy": {"epsilon": 30.0, "delta": 1e-5, "clip_l2": 0.25},
    "cohort": {"size": 10, "tolerated_dropouts": 2, "tolerated_colluders": 1},
    "engine": {"chunk": 5},
}
JOB: Mapping[str, str] = {
    "SLURM_JOB_ID": "41",
    "SLURM_JOB_NODELIST": "node-[07-08]",
    "SLURM_JOB_NUM_NODES": str(len(HOSTS)),
    "SLURM_CPUS_PER_TASK": "16",
}

SAYS = f"#!{sys.executable}\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n"
NAMES_HOSTS = f"""#!{sys.executable}
import sys
assert sys.argv[1:] == ["show", "hostnames", {JOB["SLURM_JOB_NODELIST"]!r}], sys.argv
print({chr(10).join(HOSTS)!r})
"""
CALLS_ON = f"""#!{sys.executable}
import os, sys
words = sys.argv[1:]
begin = words.index("torchrun")
assert words[:begin] == ["--cpus-per-task=16"], words
os.execvp("torchrun", words[begin:])
"""


def called(folder: Path, command: list[str], given: Mapping[str, str]) -> list[str]:
    """The words that torchrun gets when a command runs in an environment."""
    stand_ins = folder / "bin"
    stand_ins.mkdir()
    for name, text in (("torchrun", SAYS), ("scontrol", NAMES_HOSTS), ("srun", CALLS_ON)):
        (stand_ins / name).write_text(text)
        (stand_ins / name).chmod(0o755)
    path = os.pathsep.join([str(stand_ins), "/usr/bin", "/bin"])
    done = subprocess.run(  # noqa: S603 - a file of ours
        command, cwd=ROOT, env={"PATH": path, **given}, capture_output=True, text=True
    )
    assert done.returncode == 0, f"does not run: {done.stderr}"
    words: list[str] = json.loads(done.stdout)
    return words


def check_launched(words: list[str], nodes: int) -> Any:
    """See that torchrun starts a command of ours on so many machines; its options."""
    from typer.testing import CliRunner

    launched = launched_words(words)
    assert launched is not None, f"torchrun does not start simulations: {words}"
    done = CliRunner().invoke(cli.app, [*launched, "--help"])
    assert done.exit_code == 0, f"no command of ours: {done.output}"
    options = torchrun_options(words)
    assert options.nnodes == str(nodes), f"{options.nnodes} machines, not {nodes}"
    assert int(options.nproc_per_node) > 1, "one rank on a machine"
    return options


def check_slurm(text: str, folder: Path) -> None:
    """See that a script starts the same run on all machines of a job, and asks for these."""
    file = folder / "job.sh"
    file.write_text(text)
    syntax = subprocess.run(["bash", "-n", str(file)], capture_output=True, text=True)  # noqa: S603, S607
    assert syntax.returncode == 0, f"no script: {syntax.stderr}"
    asked = dict(re.findall(r"^#SBATCH --([\w-]+)=(\S+)$", text, re.MULTILINE))
    assert asked.get("ntasks-per-node") == "1", "not one torchrun for each machine"
    assert int(asked.get("nodes", "1")) > 1, "one machine"
    assert "cpus-per-task" in asked, "no cores are asked for"
    options = check_launched(called(folder, ["bash", str(file)], JOB), len(HOSTS))
    assert options.rdzv_backend == "c10d", "machines are not numbered, so c10d has to"
    assert options.rdzv_endpoint.rpartition(":")[0] == HOSTS[0], "not all look for one machine"
    assert options.rdzv_id == JOB["SLURM_JOB_ID"], "two jobs would have one identifier"
    check_shared(ROOT / options.training_script_args[1])


def check_shared(file: Path) -> None:
    """See that ranks can share the run of a configuration."""
    assert file.is_file(), f"there is no {file}"
    load(file, RunConfig).check(ranks=8)


def check_kubernetes(text: str, folder: Path) -> None:
    """See that names and figures agree on which the pods depend, and what each of them starts."""
    parts = {part["kind"]: part for part in yaml.safe_load_all(text)}
    assert parts.keys() == {"Service", "Job"}
    service, job = parts["Service"], parts["Job"]
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    name, subdomain = job["metadata"]["name"], service["metadata"]["name"]
    assert service["spec"]["clusterIP"] == "None", "the service has an address of its own"
    assert service["spec"]["selector"] == {"job-name": name}, "the service is for other pods"
    assert pod["subdomain"] == subdomain, "pods have no names in the service"
    assert spec["completionMode"] == "Indexed", "pods have no numbers"
    pods = spec["completions"]
    assert spec["parallelism"] == pods, "pods that wait for pods that are not begun"
    assert pod["restartPolicy"] == "Never"
    (container,) = pod["containers"]
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounted.keys() == {volume["name"] for volume in pod["volumes"]}, "volumes are missing"
    for number in range(pods):
        own = folder / str(number)
        own.mkdir()
        words = called(own, container["command"], {INDEX: str(number)})
        options = check_launched(words, pods)
        assert options.node_rank == number, "a pod that does not know its number"
        assert options.master_addr == f"{name}-0.{subdomain}", "not all look for pod 0"
        check_places(options.training_script_args, mounted)
        check_config(text, pod, options.training_script_args[1], mounted["config"])
        threads = int(re.findall(r"engine\.workers=(\d+)", " ".join(words))[0])
        cores = int(container["resources"]["limits"]["cpu"])
        assert threads * int(options.nproc_per_node) == cores, "threads are not cores / ranks"


def check_config(text: str, pod: Mapping[str, Any], read: str, mounted: str) -> None:
    """See that the command in the comment makes the ConfigMap that the pods read."""
    (told,) = re.findall(r"kubectl create configmap (\S+) --from-file=(\S+?)=(\S+)", text)
    name, key, file = told
    (volume,) = (volume for volume in pod["volumes"] if volume["name"] == "config")
    assert volume["configMap"]["name"] == name, "another ConfigMap"
    assert read == f"{mounted}/{key}", "no such file in the ConfigMap"
    check_shared(ROOT / file)


def check_places(words: list[str], mounted: Mapping[str, str]) -> None:
    """See that a run reads and writes where something is mounted."""
    _, config, *_ = words
    places = {
        "config": config,
        "data": words[words.index("--data-dir") + 1],
        "runs": words[words.index("--out") + 1],
    }
    for name, place in places.items():
        inside = Path(place).is_relative_to(mounted[name])
        assert inside, f"{place} is not in the volume {name}"


def test_the_slurm_script(tmp_path: Path) -> None:
    check_slurm(SLURM, tmp_path)


def test_the_kubernetes_job(tmp_path: Path) -> None:
    check_kubernetes(KUBERNETES, tmp_path)


def broken(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1, old
    return text.replace(old, new)


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ("mnist-cnn.toml", "mnist-cnm.toml", "there is no"),
        ('NODELIST")', 'NODELIST"', "no script"),
        ("--ntasks-per-node=1", "--ntasks-per-node=4", "not one torchrun"),
        ("--nodes=2", "--nodes=1", "one machine"),
        ("#SBATCH --cpus-per-task=16\n", "", "no cores"),
        (' --cpus-per-task="$SLURM_CPUS_PER_TASK"', "", "does not run"),
        ('"$SLURM_JOB_NUM_NODES"', "3", "3 machines, not 2"),
        ("RANKS_PER_MACHINE=4", "RANKS_PER_MACHINE=1", "one rank"),
        ("RANKS_PER_MACHINE=4", "RANKS=4", "does not run.*unbound"),
        ("--rdzv-backend=c10d", "--rdzv-backend=static", "c10d has to"),
        ("--rdzv-id", "--rdzv_ident", "does not start"),
        ('"$SLURM_JOB_ID"', "veilsum", "one identifier"),
        ('"$host:29400"', '"$HOSTNAME:29400"', "not all look"),
        ('NODELIST")', 'NODELIST" | tac)', "not all look"),
        ("-m simulations", "simulations", "does not start"),
        ("-m simulations", "-m simulation", "does not start"),
        ("--out", "--folder", "no command of ours"),
        ("simulations run", "simulations rnu", "no command of ours"),
    ],
)
def test_wrong_slurm_scripts_would_be_noticed(
    tmp_path: Path, old: str, new: str, match: str
) -> None:
    with pytest.raises(AssertionError, match=f"(?s){match}"):
        check_slurm(broken(SLURM, old, new), tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ("clusterIP: None", "clusterIP: 10.0.0.7", "address of its own"),
        ("job-name: veilsum", "job-name: veilsums", "other pods"),
        ("subdomain: veilsum", "subdomain: veilsums", "no names"),
        ("completionMode: Indexed", "completionMode: NonIndexed", "no numbers"),
        ("completions: 2", "completions: 3", "wait for pods"),
        ("parallelism: 2", "parallelism: 1", "wait for pods"),
        ("restartPolicy: Never", "restartPolicy: OnFailure", "Never"),
        ("--nnodes 2", "--nnodes 3", "3 machines, not 2"),
        ("--nproc-per-node 4", "--nproc-per-node 1", "one rank"),
        ("--nproc-per-node 4", "--nproc-per-node 8", "threads are not"),
        ('"$JOB_COMPLETION_INDEX"', "0", "know its number"),
        ('"$JOB_COMPLETION_INDEX"', '"$INDEX"', "does not run"),
        ("veilsum-0.veilsum", "veilsum-1.veilsum", "pod 0"),
        ("veilsum-0.veilsum", "veilsum.veilsum-0", "pod 0"),
        ("--master-port", "--master_ports", "does not start"),
        ("-m simulations", "-m simulation", "does not start"),
        ("--data-dir", "--data", "no command of ours"),
        ("/data --out", "/dataset --out", "not in the volume data"),
        ("--out /runs", "--out runs", "not in the volume runs"),
        ("            - {name: config, mountPath: /config, readOnly: true}\n", "", "volumes"),
        ("engine.workers=2", "engine.workers=8", "threads are not"),
        ("configMap: {name: veilsum}", "configMap: {name: veilsums}", "another ConfigMap"),
        ("file=config.toml=", "file=run.toml=", "no such file"),
        ("configs/mnist-cnn.toml", "configs/mnist.toml", "there is no"),
    ],
)
def test_wrong_kubernetes_jobs_would_be_noticed(
    tmp_path: Path, old: str, new: str, match: str
) -> None:
    with pytest.raises(AssertionError, match=match):
        check_kubernetes(broken(KUBERNETES, old, new), tmp_path)


PAGE = ROOT / "docs" / "howto" / "beyond-one-machine.md"


def commands(text: str) -> list[str]:
    """Commands in an example's comments, which are indented."""
    return re.findall(r"^#     (\w.*)$", text, re.MULTILINE)


def test_the_page_has_the_commands_of_the_files() -> None:
    shown = PAGE.read_text()
    for command in (*commands(SLURM), *commands(KUBERNETES)):
        assert command in shown or command.startswith("kubectl delete")


@pytest.mark.slow
def test_two_launchers_run_what_the_page_says(tmp_path: Path) -> None:
    """As many machines would, both on this one; each has a rank."""
    (line,) = re.findall(
        r"^torchrun (--nnodes.*?)\n```", PAGE.read_text(), re.DOTALL | re.MULTILINE
    )
    words = line.replace("\\\n", " ")
    config, folder = tmp_path / "config.toml", tmp_path / "run"
    write_config(parse(SMALL, RunConfig), config)
    for old, new in {
        "--nproc-per-node 4": "--nproc-per-node 1",
        "HOST:29400": f"localhost:{free_port()}",
        "FILE": str(config),
        "DATA": str(tmp_path),
        "FOLDER": str(folder),
    }.items():
        words = broken(words, old, new)
    command = [sys.executable, "-m", "torch.distributed.run", *shlex.split(words), "--json"]
    launchers = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # noqa: S603
        for _ in range(2)
    ]
    told = [launcher.communicate(timeout=300) for launcher in launchers]
    assert [launcher.returncode for launcher in launchers] == [0, 0], told
    # One of them has rank 0, whose voice is the only one.
    (summary,) = (json.loads(out) for out, _ in told if out)
    assert summary["rounds"] == SMALL["rounds"]
    assert summary["folder"] == str(folder)
