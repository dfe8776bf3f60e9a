"""Figures for people: in groups, with units, nothing cut off, nothing lost."""

from __future__ import annotations

from rich.console import Console

from simulations.reports.labels import LABELS, grouped_table


def printed(figures: dict[str, object]) -> list[str]:
    console = Console(record=True, width=80, file=open("/dev/null", "w"))
    console.print(grouped_table("title", figures))
    console.file.close()
    return [line.strip() for line in console.export_text().splitlines() if line.strip()]


def test_figures_stand_in_groups_with_units() -> None:
    lines = printed(
        {
            "clients": 64,
            "accuracy": 0.8722,
            "epsilons": {"server": 4.9, "guaranteed": 5.0, "gaussian": {"mu": 1.0}},
            "estimated_minutes": 1.5,
            "compression": 2.5,
            "resumed_after": 0,
        }
    )
    split = [" ".join(line.split()) for line in lines]
    assert split == [
        "title",
        "training",
        "test accuracy 87.2%",
        "clients",
        "in all 64",
        "what a client sends and receives",
        "compression 2.5x",
        "epsilon of one client, against",
        "guaranteed, wherever the run stops 5",
        "the server and its colluders 4.9",
        "this machine",
        "estimated time 1.5 min",
    ]


def test_what_has_no_label_is_shown_by_its_name() -> None:
    split = [" ".join(line.split()) for line in printed({"odd_one": {"inner": 3}})]
    assert split[1:] == ["other", "odd one, inner 3"]


def test_two_sums_are_told_apart() -> None:
    text = " ".join(" ".join(printed({"left_bits": 15, "right_bits": 16})).split())
    assert "bits of a value (left factors) 15" in text
    assert "bits of a value (right factors) 16" in text


def test_every_label_is_whole_at_80_columns() -> None:
    for name, label in LABELS.items():
        lines = printed({name: 123_456_789})
        assert any(label.words in line and "123,456,789" in line for line in lines), name


def test_that_it_was_resumed_is_said_if_it_was() -> None:
    assert any("resumed after" in line for line in printed({"resumed_after": 3}))
