"""The cost command chooses an experiment, and has times where rates of a device are stated."""

from __future__ import annotations

import json

import pytest

from tread_lab.cli import main
from tread_lab.engine.cost.speed import RATES


@pytest.mark.parametrize(
    ("words", "row", "text"),
    [
        ("", 0, "experiment tiny, 64 tokens"),
        ("--model DiT-S/2", 0, "experiment b2_imagenet256, 256 tokens"),
        ("--model DiT-S/2", 1, "model DiT-S/2"),
        ("s2_imagenet256", 0, "experiment s2_imagenet256, 256 tokens"),
        ("--model DiT-12x32/2 tiny", 0, "experiment tiny, 64 tokens"),
        ("tiny --route 2->8_by_rows", 2, "routes 2->8 by rows at rate 0.5"),
        ("--device-rates H200 evaluate=[heldout_loss]", -2, "heldout loss network 0 s"),
        ("--device-rates H200", -1, f"rates of H200 {RATES['H200'].source}"),
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


def test_each_evaluation_has_its_times_by_kind_of_work(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["cost", "s2_imagenet256", "--device-rates"]
    assert main([*command, "A100", "reference=heldout"]) == 0
    (*_, training, loss, similarity, samples, rates) = capsys.readouterr().out.splitlines()
    assert [" ".join(line.split()) for line in (training, loss, similarity, samples)] == [
        "training time 6.8 h to 12.7 h",
        "heldout loss network 7 s",
        "layer similarity network 1 s",
        "samples network 79 s, decoding 2 min, features 19 s, decoding of references 2 min,"
        " features of references 19 s",
    ]
    assert rates.startswith("rates of A100 ") and rates.endswith(RATES["A100"].source)
    assert main([*command, "A100", "--json"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "--device-rates: its times are no part of --json; leave" in err
