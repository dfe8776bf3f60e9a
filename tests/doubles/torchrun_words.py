"""A command line of torchrun, read as torchrun reads it."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence


def torchrun_options(words: Sequence[str]) -> Namespace:
    """What torchrun makes of the words behind its name."""
    # Imported here: other tests of commands do without torch.
    from torch.distributed.run import get_args_parser

    try:
        return get_args_parser().parse_args(list(words))
    except SystemExit as error:
        raise ValueError(f"torchrun refuses {list(words)}") from error


def launched_words(words: Sequence[str]) -> list[str] | None:
    """What each rank is given as words of `veilsum`; None if torchrun would start anything else."""
    try:
        options = torchrun_options(words)
    except ValueError:
        return None
    if not options.module or options.training_script != "simulations":
        return None
    return list(options.training_script_args)
