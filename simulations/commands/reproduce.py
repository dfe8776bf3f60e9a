"""The commands of `veilsum reproduce`, one package of `simulations.reproduce` each."""

from __future__ import annotations

import typer

from simulations.reproduce.adaptive_mean.command import adaptive_mean_command
from simulations.reproduce.autotune.command import autotune_command
from simulations.reproduce.compression.command import compression_command
from simulations.reproduce.cpsgd.command import cpsgd_command
from simulations.reproduce.cpsgd_training.command import cpsgd_mnist_command
from simulations.reproduce.equal_error.command import equal_error_command
from simulations.reproduce.fedsel.command import fedsel_command
from simulations.reproduce.secure_compression.command import secure_compression_command
from simulations.reproduce.sqsgd.command import sqsgd_command
from simulations.reproduce.trust_models.command import trust_models_command

reproduce_app = typer.Typer(
    help="Run published results again, beside this project's own.", no_args_is_help=True
)
reproduce_app.command("compression")(compression_command)
reproduce_app.command("equal-error")(equal_error_command)
reproduce_app.command("fedsel")(fedsel_command)
reproduce_app.command("secure-compression")(secure_compression_command)
reproduce_app.command("sqsgd")(sqsgd_command)
reproduce_app.command("trust-models")(trust_models_command)
reproduce_app.command("cpsgd")(cpsgd_command)
reproduce_app.command("cpsgd-mnist")(cpsgd_mnist_command)
reproduce_app.command("adaptive-mean")(adaptive_mean_command)
reproduce_app.command("autotune")(autotune_command)
