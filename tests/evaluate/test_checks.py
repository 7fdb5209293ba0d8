"""What a metric needs is asked for before an image is drawn, and what lacks is one line."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from tread_lab.config import SamplesSpec, UserError
from tread_lab.config.metrics import ReferenceSpec
from tread_lab.evaluate import measurable
from tread_lab.evaluate.extraction import SPACES
from tread_lab.evaluate.measurable import check_requirements


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


def check(*metrics: str, source: str = "fashion16", preview: bool = False, **more: Any) -> None:
    reference = more.pop("reference", None)
    named = None if reference is None else ReferenceSpec(name=reference)
    spec = SamplesSpec(metrics=metrics, count=50_000, reference=named)
    check_requirements(spec, source, preview=preview, **{"heldout": 10_000, **more})


@pytest.mark.parametrize(
    ("metrics", "source", "looked_for"),
    [
        ((), "latents", set()),
        (("fd", "kid"), "fashion16", set()),
        (("fid",), "fashion16", {"inception"}),
        (("fd", "fd_dinov2", "is"), "fashion16", {"dinov2-large", "inception"}),
        (("kid",), "latents", {"inception"}),
    ],
)
def test_only_weights_that_metrics_need_are_asked_for(
    metrics: tuple[str, ...], source: str, looked_for: set[str], asked: list[Any]
) -> None:
    check(*metrics, source=source)
    assert {*asked} == looked_for


OWN = (
    "is in features of fashion16's own images, and compares with those alone; leave the reference"
    " out of it: `reference: heldout`"
)
FILE = "; name a file of statistics (reference), or leave the metric out"


@pytest.mark.parametrize(
    ("metrics", "given", "said"),
    [
        (("fid", "fd"), {"reference": "imagenet64"}, f"reference: fd {OWN}"),
        (("recall", "kid"), {"reference": "imagenet64"}, f"reference: recall {OWN}"),
        (
            ("fid", "is"),
            {"source": "latents", "preview": True},
            "metrics: fid needs images, and these latents have no decoder; name the SD"
            " autoencoder's folder in TREAD_LAB_AUTOENCODER, or leave the metric out",
        ),
        *(
            (
                ("fid", "is", metric),
                {"heldout": fewest - 1},
                f"metrics: {first} compares with at least {fewest} images, and the data hold out"
                f" {fewest - 1}{FILE}",
            )
            for metric, first, fewest in (
                *(("fd", "fid", 2), ("kid", "fid", 2)),
                *(("precision", "precision", 4), ("recall", "recall", 4)),
            )
        ),
    ],
)
def test_what_a_metric_cannot_have_is_one_line(
    metrics: tuple[str, ...], given: dict[str, Any], said: str, asked: list[Any]
) -> None:
    with pytest.raises(UserError) as caught:
        check(*metrics, **given)
    assert str(caught.value) == said
    assert asked == [] or "preview" not in given


def test_what_a_metric_can_have_is_taken(asked: list[Any]) -> None:
    check("fd", "kid", heldout=2)
    check("precision", "recall", heldout=4)
    check("fid", reference="imagenet64", heldout=1, shape=(1, 16, 16))
    assert asked[-2:] == [("imagenet64", ("fid",)), (1, 16, 16)]
    check("is", "is_shuffled", heldout=1)
    check(preview=True, source="latents")
