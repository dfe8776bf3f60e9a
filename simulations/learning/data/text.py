"""Text as tokens: one fixed alphabet, and windows to predict the next character from.

The alphabet is fixed, never read off the data, which clients of a private protocol could not
share for free. It has 82 tokens: 0 pads on the left, 1 stands for every other character, the
rest are newline, space, 16 punctuation marks, digits and the Latin letters.

May use numpy only; must not know files or data sets.
"""

from __future__ import annotations

import string

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

PAD = 0
"""Token that fills contexts up on the left."""

UNKNOWN = 1
"""Token of characters outside the alphabet."""

ALPHABET = "\n " + "!\"$&'(),-./:;?[]" + string.digits + string.ascii_letters
"""The 80 characters; the one at place i is token i + 2."""

VOCABULARY = len(ALPHABET) + 2
"""Number of token values."""

Tokens = NDArray[np.int64]
"""int64[n], each in [0, VOCABULARY)."""


def _code_table() -> Tokens:
    """Return the token of each of the 128 ASCII codes."""
    table = np.full(128, UNKNOWN, dtype=np.int64)
    table[[ord(character) for character in ALPHABET]] = np.arange(2, VOCABULARY)
    return table


_TOKEN_OF_CODE = _code_table()


def encode_text(text: str) -> Tokens:
    """Return one token per character: int64[len(text)].

    Post: no token is PAD; characters outside the alphabet are UNKNOWN.
    """
    codes = np.frombuffer(text.encode("utf-32-le", errors="replace"), dtype="<u4")
    # Code 127 is a control character, so it stands for all that is not ASCII.
    tokens: Tokens = _TOKEN_OF_CODE[np.minimum(codes, 127)]
    return tokens


def pad_left(tokens: Tokens, length: int) -> Tokens:
    """Return the first ``length`` tokens, filled up on the left: int64[length]."""
    kept = tokens[:length]
    padded = np.full(length, PAD, dtype=np.int64)
    padded[length - len(kept) :] = kept
    return padded


def next_token_windows(tokens: Tokens, length: int, stride: int) -> tuple[Tokens, Tokens]:
    """Cut one text into contexts and the token that follows each.

    The first context is the first one that is full, or the longest there is, padded, in a text
    too short for that; the others follow at the given distance. So every text of two tokens
    gives an example, and no long text gives a padded one.

    Args:
        tokens: int64[n].

    Int64[w, length] contexts and int64[w] next tokens; w = 0 if n < 2, else w = 1 + (n - 1 -
    min(length, n - 1)) // stride.
    """
    if length < 1 or stride < 1:
        raise ValueError(f"length and stride must be at least 1, got {length} and {stride}")
    if len(tokens) < 2:
        return np.zeros((0, length), dtype=np.int64), np.zeros(0, dtype=np.int64)
    targets = np.arange(min(length, len(tokens) - 1), len(tokens), stride)
    padded = np.concatenate([np.full(length, PAD, dtype=np.int64), tokens])
    # The window that starts at place t of the padded text ends just before token t.
    return sliding_window_view(padded, length)[targets], tokens[targets]
