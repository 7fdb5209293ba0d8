"""Metrics, costs, statistics and defaults are the recorded ones, costs the published ones too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.golden import adapter
from tests.golden.adapter import random_inception  # noqa: F401
from tests.golden.pinned import HERE, MODE, Values, cases

METRICS, COST, COMPARISON = map(cases, ("metrics", "cost", "comparison"))
PUBLISHED = yaml.safe_load((HERE / "published.yaml").read_text())
ROUTES = [name.split() for name in PUBLISHED["speedups"]]


@pytest.fixture(scope="module")
def values() -> Iterator[dict[str, Values]]:
    rooms = {"metrics": METRICS, "cost": COST, "comparison": COMPARISON}
    rooms["defaults"] = adapter.defaults()
    opened = {room: Values(room) for room in rooms}
    yield opened
    for room, names in rooms.items():
        opened[room].write(names)


@pytest.mark.parametrize("name", METRICS)
def test_metrics_are_the_recorded_ones(
    name: str,
    values: dict[str, Values],
    random_inception: Path,  # noqa: F811
) -> None:
    ((kind, case),) = METRICS[name].items()
    values["metrics"].check(name, adapter.measure(kind, case))


@pytest.mark.parametrize("name", COST)
def test_costs_are_the_recorded_ones(name: str, values: dict[str, Values]) -> None:
    values["cost"].check(name, adapter.count_cost(**COST[name]))


@pytest.mark.parametrize("name", COMPARISON)
def test_statistics_are_the_recorded_ones(name: str, values: dict[str, Values]) -> None:
    ((kind, case),) = COMPARISON[name].items()
    values["comparison"].check(name, adapter.compare(kind, case))


def test_defaults_are_the_recorded_ones(values: dict[str, Values]) -> None:
    for part, fields in adapter.defaults().items():
        values["defaults"].check(part, fields)
    recorded, found = values["defaults"].recorded["values"], values["defaults"].found["values"]
    assert [*recorded] == [*found] or MODE == "renew"


@pytest.mark.parametrize("model", PUBLISHED["networks"])
def test_counts_of_networks_are_the_published_ones(model: str) -> None:
    printed = PUBLISHED["networks"][model]
    assert adapter.published_network(model) == pytest.approx(printed, rel=0, abs=5.1e-4)


@pytest.mark.parametrize(("model", "route"), ROUTES)
def test_speedups_of_routes_are_the_published_ones(model: str, route: str) -> None:
    for tokens, printed in PUBLISHED["speedups"][f"{model} {route}"].items():
        found = [adapter.speedup(model, route, rate, tokens) for rate in (0.25, 0.5, 0.75)]
        assert found == pytest.approx(printed, rel=0, abs=5.1e-4)
    found = [adapter.train_tflops(model), adapter.train_tflops(model, route)]
    assert found == pytest.approx(PUBLISHED["tflops"][f"{model} {route}"], rel=0, abs=5.1e-5)


@pytest.mark.parametrize(("length", "printed"), [*PUBLISHED["lengths"].items()])
def test_speedups_by_length_are_the_published_ones(length: int, printed: Any) -> None:
    found = adapter.speedup("DiT-B/2", f"1->{length}", 0.5)
    assert found == pytest.approx(printed, abs=5.1e-4)
