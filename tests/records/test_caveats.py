"""Claims about provenance: what differs between runs, and what changed within one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.synthetic import small, with_provenance, write_sweep
from tread_lab.records.caveats import made_otherwise, mixed_runs, mixtures
from tread_lab.records.lab import Lab
from tread_lab.results import trials_frame


@pytest.mark.parametrize(
    ("made", "said", "mixed"),
    [
        (
            {
                "a1": [{"code": "aaaaaaaaaaaa", "data x": "d"}],
                "b2": [{"code": "aaaaaaaaaaaa"}, {"code": "bbbbbbbbbbbb", "data x": "d"}],
                "c3": [{}],
            },
            ["code differs: aaaaaaaa in 2 runs, bbbbbbbb in 1 run"],
            {"b2"},
        ),
        ({"a1": [{"code": "a"}], "b2": [{}]}, [], set()),
        (
            {"a1": [{"products": "bf16 kernels"}], "b2": [{"products": "rounded operands"}]},
            ["products differs: bf16 kernels in 1 run, rounded operands in 1 run"],
            {"b2"},
        ),
    ],
)
def test_differences_name_digests_and_runs(
    made: dict[str, list[dict[str, str]]], said: list[str], mixed: set[str], lab: Lab
) -> None:
    for run, attempts in made.items():
        for fingerprint in attempts:
            code = f"{run}-dirty" if run == "b2" else run
            lab.run(run).open_attempt(fingerprint=fingerprint, origin={"code": code})
    assert mixtures(lab, made) == [f"not one comparison: {line}" for line in said]
    assert mixed_runs(lab, made) == mixed
    (line,) = made_otherwise(lab, made)
    assert line.endswith(
        "commits: "
        + ", ".join(["a1", "b2-dirty", "c3"][: len(made)])
        + "; code had uncommitted changes"
    )
    assert [*mixtures(lab, made)] == line.split("; ")[:-2] and not made_otherwise(lab, ["a1"])


def test_numbers_under_two_decoders_never_stand_in_one_table_unmarked(tmp_path: Path) -> None:
    lab = write_sweep(tmp_path, small())
    runs = list(trials_frame(lab, "placement")["run"])
    assert mixtures(lab, runs) == []
    samples, decoder = small().evaluations[1], "decoder of latents 3f2a"
    for run, digest in zip(runs, "aabb", strict=True):
        with_provenance(lab.run(run), samples, {decoder: digest})
    assert mixtures(lab, runs) == [
        "not one comparison: decoder of latents 3f2a differs: a in 2 runs, b in 2 runs"
    ]
    assert mixtures(lab, runs[:2]) == []
