"""Plans from flat words, as tests vary them: each word goes to the part of a plan that it is of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from protocol.noise.noise import Independent
from protocol.planning.training_plan import TrainingPlan
from protocol.schemes import OneShot, Pairwise
from protocol.schemes.committee import Everyone

_NOISE = {"mechanism": "mechanism", "exact_noise": "exact"}
_PAIRWISE = ("mode", "degree", "threshold", "security_bits")


def plan_of_words(words: Mapping[str, Any]) -> TrainingPlan:
    """A plan of pairwise rounds, or of one-shot ones if a committee is among the words."""
    words = dict(words)
    noise = {name: words.pop(word) for word, name in _NOISE.items() if word in words}
    pairwise = {name: words.pop(name) for name in _PAIRWISE if name in words}
    if noise:
        words["noise"] = Independent(**noise)
    if "committee" in words:
        words["scheme"] = OneShot(committee=words.pop("committee") or Everyone())
    elif pairwise and "scheme" not in words:
        words["scheme"] = Pairwise(**pairwise)
    return TrainingPlan(**words)
