"""What a metric or a guidance lacks is one line before an image is drawn."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from tests.train.runs import small_run
from tread_lab.config import RunSpec, SamplerSpec, SamplesSpec, UserError, decode
from tread_lab.config.metrics import ReferenceSpec
from tread_lab.evaluate import measurable
from tread_lab.evaluate.extraction import SPACES
from tread_lab.evaluate.measurable import check_requirements
from tread_lab.evaluate.sampling_calls import check_effect


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was looked for, in order; all of it is there."""
    found: list[Any] = []

    def opened(spec: ReferenceSpec, metrics: tuple[str, ...]) -> Any:
        found.append((spec.name, metrics))
        return SimpleNamespace(check_size=found.append)

    for name in ("inception", "dinov2-large"):
        space = replace(SPACES[name], weights=partial(found.append, name))
        monkeypatch.setitem(SPACES, name, space)  # type: ignore[arg-type]
    monkeypatch.setattr(measurable, "open_reference", opened)
    return found


class Heldout:
    """So many samples, whose images have a known shape or none."""

    def __init__(self, count: int, preview: bool) -> None:
        self.count, self.preview, self.image_shape = count, preview, (1, 16, 16)

    def __len__(self) -> int:
        return self.count


def check(
    *metrics: str, source: str = "fashion16", reference: str | None = None, **of: Any
) -> None:
    named = None if reference is None else ReferenceSpec(name=reference)
    spec = SamplesSpec(metrics=metrics, count=50_000, reference=named)
    heldout: Any = Heldout(**{"count": 10_000, "preview": False, **of})
    check_requirements(spec, source, heldout)


FILE = "got {} held-out ones. Set `reference` to a file of statistics, or remove the metric."


@pytest.mark.parametrize(
    ("metrics", "given", "said"),
    [
        (("fid", "fd"), {"reference": "imagenet64"}, "reference: must be heldout for fd, whose"),
        (
            ("fid", "is"),
            {"source": "latents", "preview": True},
            "metrics: fid requires images, but these latents have no decoder. Set TREAD_",
        ),
        (("kid",), {"count": 1}, "kid requires at least 2 reference images, " + FILE.format(1)),
        (
            ("recall",),
            {"count": 3},
            "requires at least 4 reference images, " + FILE.format(3),
        ),
    ],
)
def test_impossible_metric_is_one_line(
    metrics: tuple[str, ...], given: dict[str, Any], said: str, asked: list[Any]
) -> None:
    with pytest.raises(UserError) as caught:
        check(*metrics, **given)
    assert said in str(caught.value) and "\n" not in str(caught.value)


FLOW = small_run(process="flow")
EDM, ROWS = small_run(), small_run(routes=["1->1 by rows"])
USUAL = {"solver": "heun", "steps": 6}


def cfg(**more: Any) -> dict[str, Any]:
    return {"guidance": {"weight": 2, **more}}


def rates(strong: Any, weak: Any, **more: Any) -> dict[str, Any]:
    return cfg(strong={"rate": strong}, weak={"rate": weak}, **more)


REFUSED: list[tuple[RunSpec, dict[str, Any], str]] = [
    (FLOW, cfg(interval=[2, 5]), "interval: must contain .* its 6 levels are from 1 to"),
    (FLOW, cfg(interval=[0.31, 0.32]), "interval: must contain a noise level"),
    (FLOW, {**cfg(interval=[0.01, 0.03]), "solver": "sde"}, r"from 1 to 0\.04"),
    (EDM, cfg(interval=[90, 99]), "interval: must contain a noise level"),
    (EDM, rates(0, 0.05), r"at least one of 16 tokens, got 0\.05"),
    (EDM, cfg(weak={"rate": 0.05, "label": "none"}), "must route at least one of 16 tokens"),
    (EDM, {"guidance": {"strong": {"rate": 0.05}}}, "must route at least one of 16 tokens"),
    (ROWS, rates(0, 0.2), "must route at least one of 16 tokens"),
    (EDM, rates("0->0.05", 0.5), "at least one of 16 tokens, got 0->0.05"),
    (EDM, rates(0, "0.6->0", interval=[0, 0.003]), "must route at least one of 16 tokens"),
]  # fmt: skip
ACCEPTED: list[tuple[RunSpec, dict[str, Any]]] = [
    (FLOW, cfg(interval=[0.3, 0.4])),
    (FLOW, cfg(interval=[1, 1])),
    (EDM, cfg(interval=[0.3, 5])),
    (EDM, rates(0, 0.07)),
    (EDM, rates("0->0.6", "0.6->0")),
    (EDM, rates("0.6->0", "0.6->0.3", interval=[0, 0.03])),
    (EDM, rates(0.5, 0.57)),
]


def sampler(tree: dict[str, Any]) -> SamplerSpec:
    return decode(SamplerSpec, {**USUAL, **tree})


@pytest.mark.parametrize(("run", "tree", "message"), REFUSED)
def test_guidance_without_effect_is_refused(
    run: RunSpec, tree: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message) as refusal:
        check_effect(run, sampler(tree))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(("run", "tree"), ACCEPTED)
def test_guidance_with_effect_is_accepted(run: RunSpec, tree: dict[str, Any]) -> None:
    check_effect(run, sampler(tree))
