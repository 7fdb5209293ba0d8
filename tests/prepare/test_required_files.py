"""Each file that users bring is known by its origin, and whether it is here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.docs.pages import DOCS
from tread_lab.prepare.required_files import REQUIRED, RequiredFile, absences


def test_the_documentation_names_the_same_files() -> None:
    page = (DOCS / "your_data_and_gpus.md").read_text()
    for file in REQUIRED.values():
        if file.check is not None:
            rows = [row for row in page.splitlines() if row.endswith(f"| {file.named_by} |")]
            assert len(rows) == 1 and f"| {file.size} |" in rows[0], file
            assert all(word in rows[0] for word in file.origin.split() if "/" in word), file


def test_a_file_is_here_or_one_line_says_why_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in REQUIRED.values():
        monkeypatch.delenv(file.named_by, raising=False)
    assert absences()["ImageNet"] is None  # no variable names it
    assert absences()["autoencoder"] == "TREAD_LAB_AUTOENCODER is not set"
    wrong = {file.named_by: file for file in REQUIRED.values() if file.check is not None}
    for variable in wrong:
        monkeypatch.setenv(variable, str(tmp_path / "gone"))
    for name, why in absences().items():
        assert why is None or (why and "\n" not in why and "gone" in why), name


def test_a_network_of_another_shape_is_not_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    encoder: RequiredFile = REQUIRED["DINOv2 base"]
    monkeypatch.setenv(encoder.named_by, str(tmp_path))
    config = {"hidden_size": 768, "patch_size": 14}
    for tree, says in (
        ([], "no readable"),
        ({**config, "hidden_size": 384}, "has hidden_size 384"),
    ):
        (tmp_path / "config.json").write_text(json.dumps(tree))
        assert says in str(encoder.absence())
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors.index.json").touch()  # which names the files of weights
    assert "holds no weights" in str(encoder.absence())
    (tmp_path / "model.safetensors").touch()
    assert encoder.absence() == ""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    lacks = "needs the package transformers: `pip install transformers`"
    assert encoder.absence() == f"TREAD_LAB_ENCODER: {lacks}"
