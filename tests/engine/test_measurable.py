"""What is refused or told before anything is measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.engine.runs import small_run
from tread_lab.engine.measurable import check_measurable, stand_ins
from tread_lab.specs import HeldoutSpec, SamplesSpec, UserError
from tread_lab.specs.evaluation_text import decode_evaluations
from tread_lab.specs.metrics import ReferenceSpec
from tread_lab.specs.run import InitSpec


def test_samples_that_are_no_images_when_decoded_are_refused_before_they_are_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("torch_fidelity")

    def refuse(data: object, samples: object) -> None:
        raise UserError("no images")

    monkeypatch.setattr("tread_lab.engine.measurable.check_decoded", refuse)
    assert check_measurable([(small_run(), SamplesSpec(count=100))]) == []
    with pytest.raises(UserError, match="no images"):
        check_measurable([(small_run(), SamplesSpec(metrics=("fd",), count=100))])


def test_numbers_by_stand_ins_say_so_whatever_they_are_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = {name: tmp_path / name for name in ("vae", "dino", "adm")}
    for path in places.values():
        path.mkdir()
    (places["adm"] / "imagenet256.npz").touch()
    monkeypatch.setenv("TREAD_LAB_AUTOENCODER", str(places["vae"]))
    monkeypatch.setenv("TREAD_LAB_REFERENCES", str(places["adm"]))
    latents = {"source": "latents", "channels": 4, "size": 8, "classes": 2}
    run = small_run(data=latents, repa={"path": str(places["dino"])})
    (fid,) = decode_evaluations(["fid@100"], reference=ReferenceSpec(name="imagenet256"))
    drawn = SamplesSpec(count=4)
    assert [*stand_ins([run], [(run, fid)])] == []
    for path in places.values():
        (path / "stand-in.txt").touch()
    said = [line.partition(" in /")[0] for line in stand_ins([run], [(run, fid)])]
    assert said == ["the frozen encoder", "the autoencoder", "reference imagenet256"]
    assert [*stand_ins([small_run()], [(small_run(), fid), (run, drawn)])] == [
        f"reference imagenet256 in {places['adm']} is a stand-in of random numbers; bring the real"
        " one"
    ]


def test_classes_that_no_step_has_seen_are_told() -> None:
    plain, guided = decode_evaluations([{"samples": {"sampler": {"guidance": w}}} for w in (1, 2)])
    seen, never = small_run(), small_run(train={"steps": 6, "batch": 8, "label_drop": 0})
    child = replace(never, init_from=InitSpec(run=seen))
    of_file = replace(never, init_from=InitSpec(file="DiT.pt", digest="0"))
    others = [(never, plain), (seen, guided), (child, guided), (of_file, guided)]
    assert check_measurable(others) == []
    (line,) = check_measurable([*others, (never, guided)])
    assert line.startswith("samples: a guidance takes the null class, which is never trained where")
    bare = small_run(train={"steps": 6, "batch": 8, "label_drop": 1})
    (null,) = decode_evaluations(
        [{"samples": {"sampler": {"guidance": {"strong": {"label": "none"}}}}}]
    )
    family = replace(bare, init_from=InitSpec(run=seen))
    assert check_measurable([(bare, null), (family, plain)]) == []
    for asked in (plain, guided, HeldoutSpec()):
        (line,) = check_measurable([(bare, asked)])
        assert line.startswith("train.label_drop is 1, so that no step sees a class, and what is")


def test_a_weak_branch_that_is_no_earlier_checkpoint_is_told() -> None:
    sampler = {"guidance": {"weight": 2, "weak": {"step": 4, "label": "none"}}}
    asked = decode_evaluations([{"samples": {"sampler": sampler, "at": [3, 4, 5, "end"]}}])
    lines = check_measurable([(small_run(), spec) for spec in asked])
    assert [line.partition(" a guidance has a branch of step 4, ")[::2] for line in lines] == [
        ("samples: at step 3", "which is better trained"),
        ("samples: at step 4", "which is the same network"),
    ]
