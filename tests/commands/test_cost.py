"""The cost command chooses an experiment, and has times where rates of a device are stated."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tread_lab.cli import main
from tread_lab.commands import cost
from tread_lab.commands.options import Cost
from tread_lab.engine.cost.speed import RATES


def cost_with(**options: Any) -> int:
    return cost.cost(Cost(**options))


@pytest.mark.parametrize(
    ("model", "experiment", "loaded"),
    [
        (None, None, ("tiny", ["seed=3"])),
        ("DiT-S/2", None, ("b2_imagenet256", ["seed=3", "model=DiT-S/2"])),
        (None, "s2_imagenet256", ("s2_imagenet256", ["seed=3"])),
        ("DiT-S/2", "tiny", ("tiny", ["seed=3", "model=DiT-S/2"])),
    ],
)
def test_a_model_is_taken_at_imagenet_where_no_experiment_is_named(
    model: str | None, experiment: str | None, loaded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    load = cost.load_experiment

    def noted(name: str, overrides: list[str]) -> Any:
        asked.append((name, overrides))
        return load("tiny", [])

    monkeypatch.setattr(cost, "load_experiment", noted)
    named = {"model": model, "experiment": experiment}
    assert cost_with(**named, overrides=["seed=3"]) == 0
    assert asked == [loaded]


def test_times_stand_behind_the_costs_where_a_device_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    named: dict[str, Any] = {"experiment": "tiny", "device_rates": "H200"}
    assert cost_with(**named, overrides=["evaluate=[heldout_loss]"]) == 0
    pairs = [line.split("  ", 1) for line in capsys.readouterr().out.splitlines()]
    texts = {name: text.strip() for name, text in pairs}
    assert list(texts)[-3:] == ["training time", "heldout loss", "rates of H200"]
    assert texts["heldout loss"] == "network 0 s"
    assert texts["rates of H200"] == RATES["H200"].source


def test_costs_say_the_selection_of_a_route_and_for_how_many_tokens_they_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    named: dict[str, Any] = {"experiment": "tiny"}
    assert cost_with(**named, route=["2->8 by rows"]) == 0
    rows = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()[:3]]
    assert [rows[0], rows[2]] == [
        ["experiment", "tiny, 64 tokens"],
        ["routes", "2->8 by rows at rate 0.5"],
    ]


def test_the_costs_for_scripts_are_of_the_routes_that_are_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = []
    for route, rate in ((["2->8"], 0.5), (["2->8"], 0.25), ([], None)):
        how: Any = {"route": route, "rate": rate, "as_json": True}
        cost_with(**how, experiment="tiny", device_rates="H200")
        found.append(capsys.readouterr().out)
    assert len(set(found)) == 3 and all(json.loads(text) for text in found)


def test_each_evaluation_has_its_times_by_kind_of_work(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["cost", "--experiment", "s2_imagenet256", "--device-rates"]
    assert main([*command, "A100", "reference=heldout"]) == 0
    (*_, training, loss, similarity, samples, rates) = capsys.readouterr().out.splitlines()
    assert [" ".join(line.split()) for line in (training, loss, similarity, samples)] == [
        "training time 13.2 h",
        "heldout loss network 8 s",
        "layer similarity network 1 s",
        "samples network 2 min, decoding 2 min, features 19 s, decoding of references 2 min,"
        " features of references 19 s",
    ]
    assert rates.startswith("rates of A100 ") and rates.endswith(RATES["A100"].source)
    assert main([*command, "A10"]) == 2
    assert "--device-rates: unknown 'A10', did you mean 'A100'" in capsys.readouterr().err


def test_a_lightning_dit_is_counted_on_the_latents_of_its_own_autoencoder(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["cost", "--model", "LightningDiT-XL/1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["parameters"] == 674_961_824
