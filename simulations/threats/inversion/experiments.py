"""The attacks, run on real models and pictures, each on a plain update, a sum and a noised sum.

The attacker of a sum takes the mean update for what one client sent. The imprint is after the
pictures of all clients, the others after those of client 0.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import torch

from dp.clipping import clip_l2
from protocol import PrivacyGoal
from secagg import ParameterError
from simulations.audits.base import Floats, derived_seed
from simulations.learning.data import Split
from simulations.learning.models import DataShape, ReluMlpTask, Task, Vector, build_task
from simulations.learning.models.convolutional import image_sides
from simulations.threats.inversion.analytic import (
    imprint_model,
    imprint_task,
    leaked_label,
    read_bins,
    row_ratio,
    to_pixels,
)
from simulations.threats.inversion.optimisation import Search, invert
from simulations.threats.inversion.pictures import (
    Gallery,
    Recognition,
    best_guesses,
    distinct,
    drawn,
    flat,
    psnr,
)
from simulations.threats.inversion.results import Labels, Reconstructions
from simulations.threats.inversion.views import CLIP_L2, GradientRound, ServerView, named

Collected = defaultdict[ServerView, list[tuple[Floats, Floats]]]
"""By view, originals float64[m, pixels] and guesses float64[k, pixels] at them, in any order."""


@dataclass(frozen=True, slots=True)
class InversionSetting:
    """Whose pictures are attacked, and behind what."""

    gallery: Gallery
    clients: int
    goal: PrivacyGoal
    seed: int

    @property
    def shape(self) -> DataShape:
        """What a model has to know of the pictures."""
        return DataShape.of(self.gallery.data)

    def own(self, *labels: object) -> int:
        """A seed for a part."""
        return derived_seed(self.seed, self.gallery.data.name, *labels)

    def honest_model(self, name: str) -> tuple[Task, Vector]:
        """A model as it is before training."""
        task = build_task(name, self.shape)
        generator = torch.Generator().manual_seed(self.own("model", name) % 2**63)
        return task, task.initial(generator)

    def recognition(self, guesses: int) -> Recognition:
        """When a picture counts as recovered by so many guesses."""
        return Recognition.of(self.gallery.public, guesses, self.own("blind", guesses))

    def result(self, attack: str, title: str, guesses: int, found: Collected) -> Reconstructions:
        """Label what an attack found."""
        _, height, width = image_sides(self.gallery.data.shape)
        best = {v: [best_guesses(*pair) for pair in pairs] for v, pairs in found.items()}
        return Reconstructions(
            attack,
            title,
            self.gallery.data.name,
            (height, width),
            self.recognition(guesses),
            {v: np.concatenate([originals for originals, _ in found[v]]) for v in found},
            {v: np.concatenate(parts) for v, parts in best.items()},
        )


def rounds_of(
    setting: InversionSetting, task: Task, model: Vector, examples: int, count: int, about: str
) -> Iterator[tuple[GradientRound, list[np.ndarray], int]]:
    """Yield rounds whose clients hold so many examples each, their positions, and a noise seed."""
    rng = np.random.default_rng(setting.own(about))
    for number in range(count):
        held = drawn(setting.gallery.private, setting.clients * examples, rng)
        members = list(held.reshape(setting.clients, examples))
        yield (
            GradientRound.of(task, model, setting.gallery.private, members),
            members,
            setting.own(about, number),
        )


def attack_first_layer(setting: InversionSetting, rounds: int) -> tuple[Reconstructions, Labels]:
    """Picture by row ratio and label by sign, from clients with one example each.

    On the perceptron of two hidden layers, untrained.
    """
    task, model = setting.honest_model("mlp60")
    private, found = setting.gallery.private, Collected(list)
    right = dict.fromkeys(ServerView, 0)
    for played, members, seed in rounds_of(setting, task, model, 1, rounds, "first layer"):
        target = members[0]
        for view in ServerView:
            gradient = named(task, played.gradient(view, setting.goal, seed))
            first = [gradient[f"layer0.{part}"].numpy() for part in ("weight", "bias")]
            found[view].append((flat(private, target), to_pixels(row_ratio(*first))))
            label = leaked_label(gradient["layer2.bias"].numpy())
            right[view] += int(label == private.labels[target[0]])
    classes = setting.gallery.data.classes
    labels = Labels(
        setting.gallery.data.name, right, rounds, classes, permitted(setting.goal, 1.0 / classes)
    )
    return setting.result("row_ratio", "row ratio of the first layer", 1, found), labels


def attack_by_search(
    setting: InversionSetting, rounds: int, examples: int, steps: int
) -> Reconstructions:
    """Pictures by search, from clients with a few examples each; on the CNN, untrained."""
    task, model = setting.honest_model("cnn")
    private, found, about = setting.gallery.private, Collected(list), f"search {examples}"
    for played, members, seed in rounds_of(setting, task, model, examples, rounds, about):
        target, search = members[0], Search(steps=steps, seed=seed % 2**63)
        for view in ServerView:
            gradient = played.gradient(view, setting.goal, seed)
            guesses = invert(
                task,
                model,
                gradient,
                private.labels[target],
                setting.gallery.data.shape,
                search,
            )
            found[view].append((flat(private, target), guesses))
    many = "one picture" if examples == 1 else f"{examples} pictures"
    return setting.result(f"search_{examples}", f"gradient matching, {many}", examples, found)


def attack_by_imprint(
    setting: InversionSetting, rounds: int, examples: int, bins: int
) -> Reconstructions:
    """Pictures by a malicious model, from clients with some examples each, all distinct."""
    task = imprint_task(setting.shape, bins)
    model = imprint_model(task, setting.gallery.public, setting.own("imprint model"))
    private, found = setting.gallery.private, Collected(list)
    rng = np.random.default_rng(setting.own("imprint"))
    for number in range(rounds):
        held = distinct(private, setting.clients * examples, rng)
        members = list(held.reshape(setting.clients, examples))
        played = GradientRound.of(task, model, private, members)
        for view in ServerView:
            gradient = played.gradient(view, setting.goal, setting.own("imprint", number))
            wanted = members[0] if view is ServerView.PLAIN else held
            found[view].append((flat(private, wanted), read_bins(task, gradient)))
    return setting.result("imprint", f"malicious model with {bins} bins", bins, found)


def permitted(goal: PrivacyGoal, chance: float) -> float:
    """Share of right guesses at most, if without the client's update it is ``chance``.

    P[right] <= e^epsilon P[right without the update] + delta, by the definition of (epsilon,
    delta) for contributions replaced by zero. One round is all the goal is for.
    """
    if goal.rounds != 1:
        raise ParameterError("goal", goal, "for one round")
    return min(1.0, math.exp(goal.epsilon) * chance + goal.delta)


GUESSES: Final = 2
"""Guesses at each picture."""


@dataclass(frozen=True, slots=True)
class Noised:
    """How close an attack on one round came, behind the noise of an epsilon."""

    epsilon: float
    psnr: Floats  # of every client's picture, each attacked on its own, float64[n], dB

    def recovered(self, threshold: float) -> int:
        """How many pictures are beyond a threshold in dB."""
        return int((self.psnr > threshold).sum())


def pictures_by_epsilon(setting: InversionSetting, epsilons: Sequence[float]) -> list[Noised]:
    """Attack the pictures of one round behind different noise; one picture for each client.

    The delta is that of the setting's goal.
    """
    task = imprint_task(setting.shape, 1)
    public, private = setting.gallery.public, setting.gallery.private
    model = imprint_model(task, public, setting.own("one unit"))
    rng = np.random.default_rng(setting.own("one each"))
    held = distinct(private, setting.clients, rng)
    played = GradientRound.of(task, model, private, list(held.reshape(-1, 1)))
    own = -np.stack([clip_l2(update, CLIP_L2).values for update in played.updates])
    originals, found = flat(private, held), []
    for epsilon in epsilons:
        noise = setting.clients * _mean(setting, played, epsilon) - own.sum(axis=0)
        guesses = [_pictures(task, each + noise, public) for each in own]
        reached = [
            psnr(each[None], guess)[0] for each, guess in zip(originals, guesses, strict=True)
        ]
        found.append(Noised(epsilon, np.array(reached)))
    return found


def _mean(setting: InversionSetting, played: GradientRound, epsilon: float) -> Floats:
    """The mean gradient as released, with noise for an epsilon or none."""
    seed = setting.own("by epsilon", epsilon)
    if math.isinf(epsilon):
        return played.gradient(ServerView.SUM, setting.goal, seed)
    return played.gradient(ServerView.NOISED, replace(setting.goal, epsilon=epsilon), seed)


def _pictures(task: ReluMlpTask, seen: Floats, public: Split) -> Floats:
    """Read a row whose scale is unknown in two ways: float64[2, pixels]."""
    parameters = named(task, seen)
    row = np.append(parameters["layer0.weight"].numpy()[0], parameters["layer0.bias"].numpy())
    usual = np.append((2.0 * flat(public) - 1.0).mean(axis=0), 1.0)
    scales = np.array([row[-1], (row @ usual) / (usual @ usual)])
    return to_pixels(row[:-1] / scales[:, None])
