"""What making data sets prints: how far it is, its rate, what it holds, its settings."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from tread_lab.prepare.measure import Measured
from tread_lab.prepare.packed import Steps
from tread_lab.terminal import data
from tread_lab.terminal.data import (
    data_settings,
    progress_line,
    show_measured,
    show_packed,
    show_steps,
)

MANIFEST: dict[str, Any] = {
    "made_with": {"scale": 0.18215, "classes": 1000},
    "samples": 40,
    "labels": 7,
    "latent": [4, 32, 32],
    "damaged": 2,
    "files": {"latents.npy": {"bytes": 2_000_000}},
}


def test_progress_says_rate_time_left_and_damage() -> None:
    assert progress_line(Steps(0, 100), "images", 0.0) == "0/100 images"
    assert progress_line(Steps(50, 1000, 1), "images", 1.0) == "50/1,000 images, 1 damaged"
    line = progress_line(Steps(500, 2000), "images", 10.0)
    assert line == "500/2,000 images, 50 images/s, 30 s left"


def test_a_packed_set_is_shown_with_its_settings(capsys: pytest.CaptureFixture[str]) -> None:
    show_packed(Path("latents"), MANIFEST, as_json=False)
    assert capsys.readouterr().out.splitlines() == [
        "latents: 40 samples of 4x32x32, 7 labels, 2 MB",
        "2 damaged images left out; damaged.txt names them",
        "data: {source: latents, path: latents, channels: 4, size: 32, classes: 1000,"
        " decoder_scale: 0.18215}",
    ]


def test_what_was_packed_scaled_or_normalised_stays_so() -> None:
    tars = {**MANIFEST, "made_with": {"packed": "shards", "scaled": True}}
    assert data_settings(Path("x"), tars) | {"scale": 1, "decoder_scale": 0.18215} == data_settings(
        Path("x"), tars
    )
    repa = data_settings(Path("x"), {**MANIFEST, "made_with": {"packed": "folder"}})
    assert repa["decoder_scale"] == 0.18215 and "scale" not in repa
    lightning = {**MANIFEST, "made_with": {"packed": "safetensors", "scaled": True}}
    lightning["files"] = {"statistics.json": {"bytes": 1}}
    assert data_settings(Path("x"), lightning)["normalise"] == "true"


def test_measured_values_are_a_table_and_scales(capsys: pytest.CaptureFixture[str]) -> None:
    mean, deviation = np.array([0.5, -1.0]), np.array([5.0, 5.2])
    measured = Measured((2, 4, 4), (3, 0, 2), mean, deviation, 0.0, 5.1, -9.0, 8.0)
    show_measured(measured, as_json=False)
    out = capsys.readouterr().out
    assert "5 samples of 2x4x4, 2 labels, 2 to 3 of each, 1 label without samples" in out
    assert "over all 5.1, from -9 to 8" in out
    assert "scale for a deviation of 0.5 (EDM's sigma_data): 0.098039; of 1: 0.19608" in out
    assert "these look like latents of the SD autoencoder: its factor is 0.18215" in out


def test_classes_are_those_of_the_labels_where_the_data_say_none() -> None:
    settings = data_settings(Path("x"), {**MANIFEST, "made_with": {}})
    assert settings == {
        "source": "latents", "path": Path("x"), "channels": 4, "size": 32, "classes": 7
    }  # fmt: skip


MEASURED = Measured(
    (2, 4, 4), (3, 1, 0, 2), np.array([0.5, -1.0]), np.array([5.0, 5.2]), 0.25, 5.0, -9.0, 8.0
)


def test_measured_values_are_a_tree_for_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    show_measured(MEASURED, as_json=True)
    assert json.loads(capsys.readouterr().out) == {
        "shape": [2, 4, 4],
        "counts": [3, 1, 0, 2],
        "mean_C": [0.5, -1.0],
        "deviation_C": [5.0, 5.2],
        "spread": 0.25,
        "deviation": 5.0,
        "lowest": -9.0,
        "highest": 8.0,
        "scale": {"edm": 0.1, "flow": 0.2},
    }


def test_what_no_number_can_say_is_null_in_the_tree(capsys: pytest.CaptureFixture[str]) -> None:
    damaged = replace(MEASURED, mean_C=np.array([0.5, np.nan]), deviation=np.nan, lowest=-np.inf)
    show_measured(damaged, as_json=True)
    out = capsys.readouterr().out
    tree = json.loads(out, parse_constant=pytest.fail)
    assert (tree["mean_C"], tree["deviation"], tree["lowest"]) == ([0.5, None], None, None)
    assert tree["scale"] == {"edm": None, "flow": None}


def test_counts_and_channels_stand_in_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    show_measured(MEASURED, as_json=False)
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[:5] == [
        "6 samples of 2x4x4, 3 labels, 1 to 3 of each, 1 label without samples",
        "channel mean deviation",
        "0 0.5 5",
        "1 -1 5.2",
        "over all 5 (of it 0.25 by the encoder's posterior), from -9 to 8",
    ]
    show_measured(replace(MEASURED, counts=(4, 4), spread=0.0), as_json=False)
    text = capsys.readouterr().out
    assert text.startswith("8 samples of 2x4x4, 2 labels, 4 of each\n")
    assert "over all 5, from" in text
    show_measured(replace(MEASURED, counts=(1, 2, 1)), as_json=False)
    assert "3 labels, 1 to 2 of each\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("deviation", "said"), [(5.1, True), (6.1, True), (4.1, True), (6.2, False), (0.5, False)]
)
def test_latents_that_spread_like_those_of_sd_are_said(
    deviation: float, said: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Within a fifth of 0.93 / 0.18215, which is 5.11."""
    show_measured(replace(MEASURED, deviation=deviation), as_json=False)
    assert ("SD autoencoder" in capsys.readouterr().out) == said


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(data.time, "monotonic", lambda: now[0])
    return now


def steps(clock: list[float], *seconds: float) -> Iterator[Steps]:
    """Steps of 100 samples each, at these seconds after the start."""
    for number, second in enumerate(seconds, start=1):
        clock[0] = 100.0 + second
        yield Steps(100 * number, 1000)


def test_a_log_has_a_line_of_progress_every_20_seconds(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    show_steps(steps(clock, 19.9, 20.0, 39.9, 40.0, 41.0), "images")
    assert capsys.readouterr() == (
        "",
        "200/1,000 images, 10 images/s, 80 s left\n"
        "400/1,000 images, 10 images/s, 60 s left\n"
        "images done in 41 s\n",
    )
    show_steps(steps(clock, 0.0, 5.0), "images")
    assert capsys.readouterr() == ("", "")


def test_a_terminal_has_a_bar_of_each_step(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    console = Console(force_terminal=True, file=io.StringIO(), width=100)
    said, updates = list[str](), list[dict[str, Any]]()

    class Bars(data.Progress):
        def update(self, *_: Any, **values: Any) -> None:
            updates.append(values)

    monkeypatch.setattr(data, "notices", console)
    monkeypatch.setattr(data, "say", said.append)
    monkeypatch.setattr(data, "Progress", Bars)
    show_steps(steps(clock, 1.0, 30.0), "images")
    assert updates == [
        {"total": 1000, "completed": 100, "note": "100/1,000 images"},
        {"total": 1000, "completed": 200, "note": "200/1,000 images, 6.67 images/s, 2 min left"},
    ]
    assert said == ["images done in 30 s"]


def test_numbers_of_measured_values_have_their_digits(capsys: pytest.CaptureFixture[str]) -> None:
    measured = Measured(
        (1, 4, 4), (2000, 1000, 2000), np.array([0.123456789]), np.array([5.123456789]),
        0.0123456789, 5.123456789, -9.87654321, 8.76543219,
    )  # fmt: skip
    show_measured(measured, as_json=False)
    assert [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()] == [
        "5000 samples of 1x4x4, 3 labels, 1,000 to 2,000 of each",
        "channel mean deviation",
        "0 0.12346 5.1235",
        "over all 5.1235 (of it 0.0123 by the encoder's posterior), from -9.877 to 8.765",
        "scale for a deviation of 0.5 (EDM's sigma_data): 0.09759; of 1: 0.19518",
        "these look like latents of the SD autoencoder: its factor is 0.18215",
    ]


def test_trees_for_scripts_are_indented_by_one(capsys: pytest.CaptureFixture[str]) -> None:
    show_measured(MEASURED, as_json=True)
    assert capsys.readouterr().out.startswith('{\n "shape": [\n  2,\n')
    show_packed(Path("x"), MANIFEST, as_json=True)
    out = capsys.readouterr().out
    assert out.startswith('{\n "made_with": {\n  "scale"') and json.loads(out) == MANIFEST


def test_a_whole_packed_set_has_no_line_of_damage(capsys: pytest.CaptureFixture[str]) -> None:
    files = {"a.npy": {"bytes": 1500}, "b.npy": {"bytes": 500}}
    whole = {**MANIFEST, "damaged": 0, "files": files, "samples": 1, "made_with": {}}
    show_packed(Path("x"), whole, as_json=False)
    assert capsys.readouterr().out == (
        "x: 1 sample of 4x32x32, 7 labels, 2 kB\n"
        "data: {source: latents, path: x, channels: 4, size: 32, classes: 7}\n"
    )


def test_rates_have_three_digits_and_no_time_is_said_in_the_first_two_seconds() -> None:
    assert progress_line(Steps(1234, 5678), "images", 1.99) == "1,234/5,678 images"
    line = "1,234/5,678 images, 617 images/s, 7 s left"
    assert progress_line(Steps(1234, 5678), "images", 2.0) == line
    slow = progress_line(Steps(100, 5678, 3), "images", 81.0)
    assert slow == "100/5,678 images, 1.23 images/s, 75 min left, 3 damaged"
