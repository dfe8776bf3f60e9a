#!/bin/bash
# One run of veilsum on several machines of a SLURM cluster:
#
#     sbatch examples/cluster/slurm.sh
#
# If it ends early, at its time limit for instance, give the same command again: the run goes on
# from its last finished round.
#
# To change: the figures below; CONFIG, DATA and OUT, which every machine must see under these paths
# (they begin where you call sbatch); and the line that activates your environment.

#SBATCH --job-name=veilsum
#SBATCH --nodes=2
#SBATCH --cpus-per-task=16
#SBATCH --time=04:00:00
# One task for each machine: torchrun starts the ranks of its machine itself.
#SBATCH --ntasks-per-node=1
# For engine.device = "cuda", as many devices as there are ranks on a machine:
##SBATCH --gpus-per-node=4

set -euo pipefail

CONFIG="${CONFIG:-examples/configs/mnist-cnn.toml}"
DATA="${DATA:-$PWD/data}"
OUT="${OUT:-$PWD/runs/mnist-cnn}"
RANKS_PER_MACHINE=4

# source "$PWD/.venv/bin/activate"

# The first machine of the job is the one that all others look for.
read -r host < <(scontrol show hostnames "$SLURM_JOB_NODELIST")

# srun does not take the number of cores from the lines above by itself. The port is any free one.
srun --cpus-per-task="$SLURM_CPUS_PER_TASK" \
    torchrun \
    --nnodes "$SLURM_JOB_NUM_NODES" \
    --nproc-per-node "$RANKS_PER_MACHINE" \
    --rdzv-id "$SLURM_JOB_ID" \
    --rdzv-backend=c10d \
    --rdzv-endpoint="$host:29400" \
    -m simulations run "$CONFIG" --data-dir "$DATA" --out "$OUT"
