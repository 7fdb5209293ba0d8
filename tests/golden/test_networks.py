"""Training, sampling and measuring of every kind of run give the recorded numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.golden.adapter import Networks
from tests.golden.pinned import EXACT, LOW, Values, cases

TRAINING, SAMPLING, EVALUATION = map(cases, ("training", "sampling", "evaluation"))
ROUNDED = ("bf16", "fp16")  # precisions whose products another CPU rounds otherwise


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory) -> Networks:
    return Networks(tmp_path_factory.mktemp("golden"), TRAINING)


@pytest.fixture(scope="module")
def values() -> Iterator[dict[str, Values]]:
    rooms = {"training": TRAINING, "sampling": SAMPLING, "evaluation": EVALUATION}
    opened = {room: Values(room) for room in rooms}
    yield opened
    for room, names in rooms.items():
        opened[room].write(names)


def tolerance(settings: Any) -> float:
    return LOW if settings.get("precision") in ROUNDED else EXACT


@pytest.mark.parametrize("name", TRAINING)
def test_training_gives_the_recorded_numbers(
    name: str, networks: Networks, values: dict[str, Values]
) -> None:
    values["training"].check(name, networks.train(name), tolerance(TRAINING[name]))


@pytest.mark.parametrize("name", SAMPLING)
def test_sampling_gives_the_recorded_images(
    name: str, networks: Networks, values: dict[str, Values]
) -> None:
    run, sampler = SAMPLING[name]["run"], SAMPLING[name]["sampler"]
    values["sampling"].check(name, networks.sample(run, sampler), tolerance(sampler))


@pytest.mark.parametrize("name", EVALUATION)
def test_evaluation_gives_the_recorded_numbers(
    name: str, networks: Networks, values: dict[str, Values]
) -> None:
    case = EVALUATION[name]
    found = networks.evaluate(case["run"], case["evaluate"], case.get("baseline"))
    values["evaluation"].check(name, found)
