"""Benchmarks of the parts of a round: each command's body is the module of its name."""

from __future__ import annotations

from typing import Annotated

import typer

from dp.coins import MAX_COINS
from dp.sampling.laws import MAX_VARIANCE, MIN_VARIANCE
from simulations.bench.sampler import SampledLaw
from simulations.commands.bench.options import Bits, PeerChoice, Rate, Repeats, exit_if_wrong, prose
from simulations.common.committees import numbers_of
from simulations.common.schemes import (
    AnyScheme,
    AnySchemeOption,
    CommitteeOption,
    Measures,
    show_schemes,
)
from simulations.common.tables import JsonFlag, show


def mask_command(
    dim: Annotated[int, typer.Option(help="Elements of the vector.", min=1)] = 1 << 20,
    neighbours: Annotated[
        int, typer.Option(help="Masks added to it, in pairwise rounds.", min=1)
    ] = 100,
    bits: Bits = 32,
    repeats: Repeats = 5,
    peer: PeerChoice = None,
    scheme: AnySchemeOption = AnyScheme.PAIRWISE,
    clients: Annotated[
        int, typer.Option(help="Size of the cohort, in one-shot rounds.", min=2)
    ] = 1000,
    committee: CommitteeOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Masking a vector, compared with the bare keystream, or the bare transforms, that it takes."""
    from simulations.bench.mask import bench_mask
    from simulations.bench.one_shot_mask import bench_one_shot_mask
    from simulations.bench.validated_mask import bench_validated_mask

    measures: Measures = {
        "pairwise": lambda: bench_mask(dim, neighbours, bits, repeats, peer),
        "one-shot": lambda: bench_one_shot_mask(dim, clients, bits, repeats, numbers_of(committee)),
        "validated": lambda: bench_validated_mask(dim, repeats),
    }
    show_schemes("mask", scheme, measures, ("seconds",), as_json)


def shamir_command(
    secrets: Annotated[int, typer.Option(help="Number of secrets, of 32 bytes each.", min=1)] = 1,
    holders: Annotated[int, typer.Option(help="Parties that get a share.", min=1)] = 100,
    threshold: Annotated[int, typer.Option(help="Shares needed to rebuild a secret.", min=1)] = 51,
    repeats: Repeats = 15,
    peer: PeerChoice = None,
    as_json: JsonFlag = False,
) -> None:
    """Sharing and rebuilding secrets, compared with a matrix product; status 1 if one is wrong."""
    from simulations.bench.shamir import bench_shamir

    figures = bench_shamir(secrets, holders, threshold, repeats, peer)
    show("shamir", figures, as_json)
    exit_if_wrong(figures)


def unmask_command(
    clients: Annotated[int, typer.Option(help="Clients that shared their secrets.", min=2)] = 100,
    dim: Annotated[int, typer.Option(help="Elements of the vector.", min=1)] = 1_000_000,
    dropped: Annotated[int, typer.Option(help="Clients that never uploaded.", min=0)] = 10,
    liars: Annotated[int, typer.Option(help="Survivors that send wrong shares.", min=0)] = 0,
    bits: Bits = 24,
    workers: Annotated[
        int, typer.Option(help="Number of processes; 1 for this one only.", min=1)
    ] = 1,
    repeats: Repeats = 5,
    peer: PeerChoice = None,
    as_json: JsonFlag = False,
) -> None:
    """The server's last step, compared with its masks' bare keystream; status 1 if it is wrong."""
    from simulations.bench.unmask import bench_unmask

    figures = bench_unmask(
        clients, dim, dropped, bits, workers, repeats, peer, prose.print, liars=liars
    )
    show("unmask", figures, as_json)
    exit_if_wrong(figures)


def sampler_command(
    coins: Annotated[int, typer.Option(help="Fair coins of one draw.", min=1, max=MAX_COINS)] = 64,
    law: Annotated[
        SampledLaw, typer.Option(help="Distribution to draw from.")
    ] = SampledLaw.BINOMIAL,
    variance: Annotated[
        float,
        typer.Option(
            help="Variance of one draw from the other distributions.",
            min=MIN_VARIANCE,
            max=MAX_VARIANCE,
        ),
    ] = 900.0,
    samples: Annotated[int, typer.Option(help="Length of the vector.", min=1)] = 1 << 20,
    repeats: Repeats = 9,
    as_json: JsonFlag = False,
) -> None:
    """Exact noise, compared with NumPy's samplers and the bare AES-CTR keystream."""
    from simulations.bench.sampler import bench_sampler

    show("sampler", bench_sampler(law, coins, variance, samples, repeats), as_json)


def encode_command(
    dim: Annotated[int, typer.Option(help="Elements of the update.", min=1)] = 1 << 20,
    coins: Annotated[int, typer.Option(help="Fair coins per element.", min=0, max=MAX_COINS)] = 64,
    rotate: Annotated[bool, typer.Option(help="Rotate before rounding, as rounds do.")] = True,
    threads: Annotated[int, typer.Option(help="Threads that encode at once.", min=1)] = 2,
    repeats: Repeats = 9,
    as_json: JsonFlag = False,
) -> None:
    """One client's work from clipping to the field, by stage, compared with a copy in memory."""
    from simulations.bench.encode import bench_encode

    show("encode", bench_encode(dim, coins, rotate, threads, repeats), as_json)


def sketch_command(
    dim: Annotated[int, typer.Option(help="Coordinates of the vector.", min=2)] = 1 << 20,
    rows: Annotated[int, typer.Option(help="Rows of a copy.", min=1)] = 15,
    rate: Rate = 64.0,
    copies: Annotated[int, typer.Option(help="Copies for a median, odd; 1 for none.", min=1)] = 1,
    repeats: Repeats = 9,
    as_json: JsonFlag = False,
) -> None:
    """A sketch's two directions, per row, compared with bare table look-ups and a copy."""
    from simulations.bench.sketch import bench_sketch

    try:
        figures = bench_sketch(dim, rows, rate, copies, repeats)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    show("sketch", figures, as_json)


def compress_command(
    dim: Annotated[int, typer.Option(help="Number of values for top-k.", min=1)] = 1_000_000,
    rate: Annotated[
        float, typer.Option(help="Number of values divided by the number sent.", min=1)
    ] = 16.0,
    rank: Annotated[int, typer.Option(help="Rank of PowerSGD, 1 to 204.", min=1, max=204)] = 4,
    repeats: Repeats = 15,
    as_json: JsonFlag = False,
) -> None:
    """Top-k, PowerSGD and Denoise, compared with a copy, a product and a training step."""
    from simulations.bench.compress import bench_compress

    show("compress", bench_compress(dim, rate, rank, repeats), as_json)


def local_command(
    dim: Annotated[int, typer.Option(help="Coordinates of the vector.", min=2)] = 1_000_000,
    levels: Annotated[int, typer.Option(help="Levels of PrivQuant.", min=2)] = 16,
    epsilon: Annotated[
        float, typer.Option(help="Epsilon of one report of values.", min=0.01)
    ] = 300.0,
    selection_epsilon: Annotated[
        float, typer.Option(help="Epsilon of one choice of a coordinate.", min=0.01)
    ] = 1.0,
    repeats: Repeats = 5,
    as_json: JsonFlag = False,
) -> None:
    """One local report, by each method: PrivQuant, Piecewise, and the choices EXP, PE and PS."""
    from simulations.bench.local import bench_local

    figures = bench_local(dim, levels, epsilon, selection_epsilon, repeats)
    show("local", figures, as_json)
