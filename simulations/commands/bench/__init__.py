"""`veilsum bench`: its commands, as options; what they measure is loaded when one runs."""

from __future__ import annotations

import typer

from simulations.commands.bench import campaigns, parts, rounds

bench_app = typer.Typer(
    help="Measure speed and compare it with its physical limit.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)
bench_app.command("compress")(parts.compress_command)
bench_app.command("flower")(rounds.flower_command)
bench_app.command("simulate")(rounds.simulate_command)
bench_app.command("local")(parts.local_command)
bench_app.command("growth")(rounds.growth_command)
bench_app.command("faults")(campaigns.faults_command)
bench_app.command("fuzz")(campaigns.fuzz_command)
bench_app.command("mask")(parts.mask_command)
bench_app.command("shamir")(parts.shamir_command)
bench_app.command("unmask")(parts.unmask_command)
bench_app.command("sampler")(parts.sampler_command)
bench_app.command("encode")(parts.encode_command)
bench_app.command("sketch")(parts.sketch_command)
bench_app.command("controller")(rounds.controller_command)
bench_app.command("round")(rounds.round_command)
bench_app.command("validated")(rounds.validated_command)
