"""NVIDIA FLARE: rounds over its tasks. A controller on the server, an executor on every client.

NVFlare carries the bytes, finds the clients, and ends what takes too long. What a client insists on
comes from its own site, never from the job; see docs/integrations/nvflare.md.
"""

from protocol.adapters.nvflare.controller import PrivateAveraging
from protocol.adapters.nvflare.executor import MaskedTraining
from protocol.adapters.nvflare.filters import OnlyAnswers

__all__ = ["MaskedTraining", "OnlyAnswers", "PrivateAveraging"]
