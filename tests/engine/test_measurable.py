"""What is refused or told before anything is measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.runs import small_run
from tread_lab.engine.measurable import check_measurable, stand_ins
from tread_lab.specs import SamplesSpec, UserError
from tread_lab.specs.evaluation_defaults import EvaluationDefaults
from tread_lab.specs.evaluation_text import decode_evaluations
from tread_lab.specs.metrics import ReferenceSpec


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
    (fid,) = decode_evaluations(
        ["fid@100"], EvaluationDefaults(reference=ReferenceSpec(name="imagenet256"))
    )
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
