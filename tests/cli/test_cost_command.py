"""The cost command chooses an experiment, and has times where rates of a device are stated."""

from __future__ import annotations

import json

import pytest

from tread_lab.cli.main import main


@pytest.mark.parametrize(
    ("words", "row", "text"),
    [
        ("", 0, "experiment tiny, 64 tokens"),
        ("--model DiT-S/2", 0, "experiment b2_imagenet256, 256 tokens"),
        ("--model DiT-S/2", 1, "model DiT-S/2"),
        ("s2_imagenet256", 0, "experiment s2_imagenet256, 256 tokens"),
        ("--model DiT-12x32/2 tiny", 0, "experiment tiny, 64 tokens"),
        ("tiny --route 2->8_by_rows", 2, "routes 2->8 by rows at rate 0.5"),
    ],
)
def test_a_model_is_taken_at_imagenet_where_no_experiment_is_named(
    words: str, row: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cost", *(word.replace("_by_", " by ") for word in words.split())]) == 0
    assert " ".join(capsys.readouterr().out.splitlines()[row].split()) == text


def test_the_costs_for_scripts_are_of_the_model_and_the_routes_that_are_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = []
    for words in ("--route 2->8 --rate 0.5", "--route 2->8 --rate 0.25", "routes=[]"):
        assert main(["cost", "tiny", "--json", *words.split()]) == 0
        found.append(json.loads(capsys.readouterr().out)["train_flops"])
    assert len(set(found)) == 3
    assert main(["cost", "--model", "LightningDiT-XL/1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["parameters"] == 674_961_824
