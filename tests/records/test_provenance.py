"""Claims about provenance: what differs between runs, and what changed within one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.synthetic import small, with_provenance, write_sweep
from tread_lab.frames import trials_frame
from tread_lab.records.provenance import mixtures, provenance_differences


@pytest.mark.parametrize(
    ("made", "said"),
    [
        pytest.param(
            {
                "one": [{"code": "aaaaaaaaaaaa", "data x": "d"}],
                "two": [{"code": "aaaaaaaaaaaa"}, {"code": "bbbbbbbbbbbb", "data x": "d"}],
                "old": [{}],
            },
            "code differs: aaaaaaaa in 2 runs, bbbbbbbb in 1 run; it changed within 1 of them",
            id="what has one digest alone is no difference",
        ),
        pytest.param(
            {"one": [{"code": "a"}, {"code": "a"}], "two": [{"code": "b"}]},
            "code differs: a in 1 run, b in 1 run",
            id="two attempts with one code are no change within a run",
        ),
        pytest.param(
            {"one": [{"products": "bf16 kernels"}], "two": [{"products": "rounded operands"}]},
            "products differs: bf16 kernels in 1 run, rounded operands in 1 run",
            id="words are shown whole",
        ),
    ],
)
def test_a_difference_says_in_how_many_runs_what_was_seen(
    made: dict[str, list[dict[str, str]]], said: str
) -> None:
    assert [str(found) for found in provenance_differences(made)] == [said]


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
