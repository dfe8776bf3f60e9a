"""Surnames of 18 languages: tell the language from the spelling.

May use numpy; must not know torch, models or the protocol.

Source: S. Robertson, "Practical PyTorch", classifying names with a character-level RNN.
"""

from __future__ import annotations

import unicodedata

import numpy as np

from simulations.learning.data.base import DataKind, Dataset, Split
from simulations.learning.data.catalog import NAMES
from simulations.learning.data.files import DataFolder
from simulations.learning.data.splitting import SPLIT_SEED, TEST_FRACTION, split_stratified
from simulations.learning.data.text import VOCABULARY, encode_text, pad_left

LANGUAGES = tuple(sorted(NAMES))
"""The labels in the order of their numbers."""


def load_names(
    folder: DataFolder,  # holds ``names/*.txt``
    *,
    length: int = 20,  # characters kept of a name; the longest has 20
    distinct: bool = True,
    test_fraction: float = TEST_FRACTION,  # share of the test split, in (0, 1)
    seed: int = SPLIT_SEED,  # of the stratified split
) -> Dataset:
    """Load surnames as tokens, padded on the left.

    Post: inputs are int64[m, length], label i is ``LANGUAGES[i]``.
    """
    if length < 1:
        raise ValueError(f"length must be at least 1, got {length}")
    pairs = [
        (without_accents(name), label)
        for label, language in enumerate(LANGUAGES)
        for name in read_names(folder, language)
    ]
    if distinct:
        pairs = list(dict.fromkeys(pairs))
    inputs = np.stack([pad_left(encode_text(name), length) for name, _ in pairs])
    labels = np.array([label for _, label in pairs], dtype=np.int64)
    train, test = split_stratified(labels, test_fraction, seed)
    return Dataset(
        name="names",
        kind=DataKind.TEXT,
        classes=len(LANGUAGES),
        vocabulary=VOCABULARY,
        train=Split(inputs[train], labels[train]),
        test=Split(inputs[test], labels[test]),
    )


def read_names(folder: DataFolder, language: str) -> list[str]:
    """Return all surnames of a language, with accents and repetitions."""
    lines = folder.read_text(NAMES[language]).splitlines()
    return [line.strip() for line in lines if line.strip()]


def without_accents(name: str) -> str:
    """Return the name in plain letters where Unicode knows how: "Ábrahám" is "Abraham"."""
    parts = unicodedata.normalize("NFKD", name.replace("ß", "ss").replace("ł", "l"))
    return "".join(part for part in parts if not unicodedata.combining(part))
