"""Removable files are counted by kind; what stays until it is asked for is said first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tread_lab.sweep.gc import FEATURES, SAMPLES, Removable
from tread_lab.terminal.gc import show_removable

FILES = [
    Removable("scratch", Path("/a"), 1000),
    Removable("optimizer state", Path("/b"), 500_000, "run"),
    Removable("scratch", Path("/c"), 2000),
]


def said(capsys: pytest.CaptureFixture[str], **how: object) -> str:
    show_removable(FILES, **{"freed": None, "as_json": False, **how})  # type: ignore[arg-type]
    return " ".join(capsys.readouterr().out.split())


def test_kinds_are_counted_in_their_order(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys) == (
        "what files size scratch 2 3 kB optimizer state 1 500 kB"
        " 503 kB would be freed; `tread-lab gc --yes` removes the files"
    )
    assert said(capsys, freed=3000).endswith("500 kB 3 kB were freed")
    show_removable([], None, as_json=False)
    assert capsys.readouterr().out == "nothing to remove\n"


def test_what_stays_is_offered_where_there_is_any(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, kept={SAMPLES: 4_000_000, FEATURES: 0})
    assert text.startswith("4 MB of samples stay; `tread-lab gc --samples` offers those of")
    assert "--features" not in text


def test_json_lists_every_file(capsys: pytest.CaptureFixture[str]) -> None:
    show_removable(FILES[1:2], 5, as_json=True, kept={SAMPLES: 7})
    assert json.loads(capsys.readouterr().out) == {
        "litter": [{"what": "optimizer state", "path": "/b", "bytes": 500_000, "run": "run"}],
        "freed": 5,
    }


def test_features_of_encoders_are_offered_where_there_are_any(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_removable([], None, as_json=False, kept={SAMPLES: 2000, FEATURES: 3000})
    assert capsys.readouterr().out == (
        "2 kB of samples stay; `tread-lab gc --samples` offers those of finished evaluations too"
        " (metrics and sheets of samples stay)\n"
        "3 kB of encoders' features stay; `tread-lab gc --features` offers them too (a run that"
        " needs them makes them again)\n"
        "nothing to remove\n"
    )
