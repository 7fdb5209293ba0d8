"""Overrides reach the file that they belong to, and paths are those of the user."""

from __future__ import annotations

from pathlib import Path

from tread_lab.config.load import load_experiment, load_sweep


def test_a_key_with_a_sign_belongs_to_the_sweep_file_if_its_name_does(in_folder: Path) -> None:
    Path("s.yaml").write_text("experiment: tiny\nquestion: Why?\naxes: {rate: [0.5]}\n")
    overrides = ["+seeds=[3,4]", "~question", "train.steps=7"]
    name, sweep, experiment = load_sweep("s.yaml", overrides)
    assert (name, sweep.seeds, sweep.question) == ("s", (3, 4), "")
    assert experiment.run["train"]["steps"] == 7


def test_a_path_of_data_is_that_of_the_users_home_and_folder(in_folder: Path) -> None:
    for written, meant in (("~/x", Path.home() / "x"), ("x", in_folder / "x")):
        Path("e.yaml").write_text(f"model: DiT-S/2\ndata: {{path: {written}}}\n")
        assert load_experiment("e.yaml").run["data"]["path"] == str(meant)
