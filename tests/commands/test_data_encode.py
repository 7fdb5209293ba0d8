"""The data encode command hands each option to the encoding, and says which part is done."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tread_lab.commands import data_encode
from tread_lab.prepare.encode import Stored


@pytest.mark.parametrize("whole", [True, False])
def test_options_reach_the_encoding(
    whole: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[Any] = []
    images = SimpleNamespace(names=range(1234), classes=range(10))

    def opened(*what: Any) -> Any:
        calls.append(what)
        return images

    def encode(*what: Any, **how: Any) -> str:
        calls.append((what[0] is images, what[1:], how))
        return "steps"

    monkeypatch.setattr(data_encode, "open_images", opened)
    monkeypatch.setattr(data_encode, "Encoder", lambda name, range: f"encoder {name} {range}")
    monkeypatch.setattr(data_encode, "encode", encode)
    monkeypatch.setattr(data_encode, "show_steps", lambda *what: calls.append(what))
    monkeypatch.setattr(data_encode, "read_manifest", lambda out: {"a": 1} if whole else None)
    monkeypatch.setattr(data_encode, "show_packed", lambda *what, **how: calls.append((what, how)))
    how: dict[str, Any] = {
        "images": Path("in"), "out": Path("out"), "autoencoder": "sd", "size": 128,
        "posterior": "sample", "range": "unit", "flips": True, "with_images": True,
        "captions": Path("c"), "limit": 5, "batch": 3, "device": "cpu", "part": (2, 4),
        "skip_damaged": True, "licence": "mine", "as_json": True,
    }  # fmt: skip
    for fp32, workers, cores in ((False, 7, 12), (True, None, 12), (True, None, None)):
        calls.clear()
        monkeypatch.setattr(data_encode.os, "cpu_count", lambda cores=cores: cores)
        assert data_encode.run(**how, fp32=fp32, workers=workers) == 0
        stored = Stored(size=128, posterior="sample", flips=True, images=True,
                        dtype="float32" if fp32 else "float16")  # fmt: skip
        options = {
            "devices": [torch.device("cpu")], "part": (2, 4), "batch": 3,
            "workers": workers or cores or 1,
            "skip_damaged": True, "licence": "mine",
        }  # fmt: skip
        assert calls == [
            (Path("in"), Path("c"), 5),
            (True, (Path("out"), "encoder sd unit", stored), options),
            ("steps", "images"),
            *([((Path("out"), {"a": 1}), {"as_json": True})] if whole else []),
        ]
        out, err = capsys.readouterr()
        said = "" if whole else "part 2/4 of out is done; other parts are still to come\n"
        assert (out, err) == ("", f"1,234 images of 10 classes in in\n{said}")


@pytest.mark.parametrize(
    ("names", "gpus", "devices"),
    [
        (None, 0, ["cpu"]),
        (None, 2, ["cuda:0", "cuda:1"]),
        ("cuda:1, cpu", 2, ["cuda:1", "cpu"]),
    ],
)
def test_all_gpus_encode_where_no_device_is_named(
    names: str | None, gpus: int, devices: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(data_encode, "pick", lambda name: name)
    assert data_encode._devices(names) == devices
