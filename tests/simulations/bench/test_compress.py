"""The benchmark of compressors: what it reports, beside what."""

from __future__ import annotations

import pytest
from command_line import invoke, run_json


@pytest.fixture(scope="module")
def figures() -> dict[str, float]:
    arguments = ["--dim", "70000", "--rate", "10", "--rank", "2", "--repeats", "1"]
    return run_json("bench", "compress", *arguments)


def test_what_is_measured(figures: dict[str, float]) -> None:
    assert (figures["dim"], figures["rate"], figures["rank"]) == (70_000, 10, 2)
    assert figures["model_dim"] == 820_522
    measured = ["topk", "dgc", "copy", "partition", "powersgd", "powersgd_feedback", "product"]
    for name in (*measured, "denoise", "step"):
        assert figures[f"{name}_seconds"] > 0


def test_ratios_are_those_of_the_figures(figures: dict[str, float]) -> None:
    for name, over, under in (
        ("topk_ratio_to_copy", "topk", "copy"),
        ("topk_ratio_to_partition", "topk", "partition"),
        ("powersgd_ratio_to_product", "powersgd", "product"),
        ("denoise_overhead", "denoise", "step"),
    ):
        ratio = figures[f"{over}_seconds"] / figures[f"{under}_seconds"]
        assert figures[name] == pytest.approx(ratio)


def test_bytes_by_hand(figures: dict[str, float]) -> None:
    # 17 bits for a place among 70,000, 16 for a value.
    assert figures["topk_bytes"] == 2 + (7_000 * 17 + 7) // 8 + 7_000 * 2
    # Embedding and both input matrices, both recurrent ones, output; biases are sent whole.
    factored = [(90, 8), (1024, 8), (1024, 256), (1024, 256), (1024, 256), (90, 256)]
    numbers = sum(2 * (m + n) for m, n in factored) + 1024 + 1024 + 90
    assert figures["powersgd_bytes"] == 2 + 4 * numbers


@pytest.mark.parametrize(
    "arguments",
    [("--rate", "0.5"), ("--rank", "0"), ("--rank", "205"), ("--dim", "0"), ("--repeats", "0")],
)
def test_bad_arguments_are_refused(arguments: tuple[str, str]) -> None:
    assert invoke("bench", "compress", *arguments).exit_code == 2
