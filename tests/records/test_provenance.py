"""Claims about provenance: what differs between runs, and what changed within one."""

from __future__ import annotations

from pathlib import Path

from tests.synthetic import small, with_provenance, write_sweep
from tread_lab.frames import trials_frame
from tread_lab.records.provenance import NOW, mixtures, provenance_differences


def test_only_what_has_several_digests_is_a_difference() -> None:
    made = {
        "one": [{"code": "aaaaaaaaaaaa", "data x": "d"}],
        "two": [{"code": "aaaaaaaaaaaa", "data x": "d"}, {"code": "bbbbbbbbbbbb", "data x": "d"}],
        "old": [{}],
        NOW: [{"code": "bbbbbbbbbbbb"}],
    }
    (found,) = provenance_differences(made)
    assert found.what == "code" and found.within == ["two"]
    assert str(found) == (
        "code differs: aaaaaaaa in 2 runs, bbbbbbbb in 1 run and what is to be run now;"
        " it changed within 1 of them"
    )


def test_two_attempts_with_the_same_code_are_no_change_within_a_run() -> None:
    made = {"one": [{"code": "a"}, {"code": "a"}], "two": [{"code": "b"}]}
    (found,) = provenance_differences(made)
    assert found.runs == {"a": ("one",), "b": ("two",)} and found.within == []


def test_what_is_in_words_is_shown_whole() -> None:
    made = {"one": [{"products": "bf16 kernels"}], NOW: [{"products": "rounded operands"}]}
    (found,) = provenance_differences(made)
    assert str(found) == (
        "products differs: bf16 kernels in 1 run, rounded operands in what is to be run now"
    )


def test_data_of_earlier_versions_are_those_of_the_same_digest_with_a_scale() -> None:
    old, now = "latents 3f2a", "latents 3f2a x 0.18"
    made = {
        "old": [{f"held-out data {old}": "h", f"decoder of {old}": "a"}],
        "new": [{f"held-out data {now}": "h", f"decoder of {now}": "b"}],
        "half": [{f"held-out data {old} x 0.5": "g", f"decoder of {old} x 0.5": "c"}],
    }
    (found,) = provenance_differences(made)
    assert (found.what, found.runs) == (f"decoder of {now}", {"a": ("old",), "b": ("new",)})


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
