"""Where clients train: named by the user, so looked at before anything else is done.

May use torch; must not know models or rounds.
"""

from __future__ import annotations

import torch

from protocol.errors import ConfigurationError


def require_device(name: str) -> None:
    """See that torch can compute on a device.

    Args:
        name: as torch names it, "cpu" or "cuda:0".

    Raises:
        ConfigurationError: there is no such device, or this build of torch cannot use it.
    """
    try:
        # The way there and back: a name alone says nothing, and one device ("meta") has no values.
        torch.zeros(1, device=name).cpu()
    except (AssertionError, RuntimeError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ConfigurationError(
            "engine.device",
            f"torch cannot compute on {name!r} here ({reason})",
            ", ".join(("cpu", *_accelerators())),
        ) from None


def _accelerators() -> list[str]:
    return [f"cuda:{number}" for number in range(torch.cuda.device_count())]
