"""Scoring: what grows with damage, what the cache may not change, what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch_fidelity
from torch import Tensor
from torch_fidelity.feature_extractor_base import FeatureExtractorBase

from tests.metrics.conftest import Images, score
from tread_lab.metrics import features as door
from tread_lab.metrics.extraction import Reference
from tread_lab.metrics.extractor import load_extractor
from tread_lab.metrics.features import MEASURES, Scorer, _number, evenly
from tread_lab.records.metric_names import METRIC_KINDS
from tread_lab.specs.errors import UserError
from tread_lab.specs.metrics import METRICS

OWN = "fashion16-v1"
ALL = ("fd", "kid", "precision", "recall")


class OwnFeatures(FeatureExtractorBase):
    """The shipped extractor as torch-fidelity wants one."""

    def __init__(self, name: str, features_list: list[str], **_: Any) -> None:
        super().__init__(name, features_list)
        self.model = load_extractor(OWN)

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        found = dict(zip(self.get_provided_features_list(), self.model(images), strict=True))
        return tuple(found[name].double() for name in self.features_list)

    @staticmethod
    def get_provided_features_list() -> tuple[str, ...]:
        return "features", "logits"

    @staticmethod
    def get_default_feature_layer_for_metric(metric: str) -> str:
        return "logits" if metric == "isc" else "features"

    @staticmethod
    def can_be_compiled() -> bool:
        return False


def _fd(generated: Tensor, reference: Tensor, cache: Path | None = None) -> float:
    found = score(generated, reference, metrics=["fd"], extractor=OWN, cache=cache)
    return found[f"fd[{OWN}]@{len(generated)}"]


def test_the_distance_grows_with_noise(real: Tensor, reference: Tensor) -> None:
    noise = torch.randn(real.shape, generator=torch.Generator().manual_seed(0))
    noisy = [
        (real + level * noise).round().clamp(0, 255).to(torch.uint8) for level in (0, 8, 16, 32, 64)
    ]
    distances = [_fd(x, reference) for x in noisy]
    assert distances == sorted(distances)
    assert distances[0] < 1 < distances[1] < 5 < distances[-1]


def test_every_metric_is_what_torch_fidelity_gives_in_one_call(
    real: Tensor, reference: Tensor
) -> None:
    torch_fidelity.register_feature_extractor("own", OwnFeatures)
    theirs = torch_fidelity.calculate_metrics(
        input1=Images(real),
        input2=Images(reference),
        feature_extractor="own",
        **dict.fromkeys(("fid", "kid", "prc"), True),
        kid_subset_size=300,
        cuda=False,
        cache=False,
        save_cpu_ram=True,
        verbose=False,
    )
    ours = score(real, reference, metrics=ALL, extractor=OWN)
    keys = (
        "frechet_inception_distance",
        "kernel_inception_distance_mean",
        "precision",
        "recall",
    )
    for value, key in zip(ours.values(), keys, strict=True):
        assert value == pytest.approx(theirs[key], rel=1e-6)


def test_only_precision_and_recall_cap_the_references(
    real: Tensor, reference: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = score(real, reference, metrics=["fd"], extractor=OWN)
    near = score(real, evenly(reference, 200), metrics=["precision", "recall"], extractor=OWN)
    monkeypatch.setattr(door, "MOST_NEIGHBOURS", 200)
    capped = score(real, reference, metrics=["precision", "fd", "recall"], extractor=OWN)
    assert capped == {**whole, **near}


def test_references_are_spread_over_a_sorted_set() -> None:
    images = torch.arange(1000)[:, None, None, None]
    assert evenly(images, 10).flatten().tolist() == list(range(0, 1000, 100))
    assert torch.equal(evenly(images, 5000), images)


@pytest.mark.parametrize("metrics", [("fd",), ALL])
def test_cached_equals_uncached(
    real: Tensor, reference: Tensor, tmp_path: Path, metrics: tuple[str, ...]
) -> None:
    fresh = score(real, reference, metrics=metrics, extractor=OWN)
    for _ in range(2):
        again = score(real, reference, metrics=metrics, extractor=OWN, cache=tmp_path)
        assert again == fresh
    assert list(tmp_path.glob("*.safetensors"))


def test_other_references_under_one_name_never_share_an_entry(
    real: Tensor, reference: Tensor, tmp_path: Path
) -> None:
    _fd(real, reference, tmp_path)
    for other in (reference[:500], reference.flip(3)):
        assert _fd(real, other, tmp_path) == _fd(real, other)


def cut(content: bytes) -> bytes:
    return content[:-100]


def flip(content: bytes) -> bytes:
    return content[:-100] + bytes([content[-100] ^ 64]) + content[-99:]


@pytest.mark.parametrize("damage", [cut, flip])
def test_a_damaged_entry_is_computed_again(
    real: Tensor, reference: Tensor, tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    fresh = _fd(real, reference, tmp_path)
    (entry,) = tmp_path.glob("*.safetensors")
    whole = entry.read_bytes()
    entry.write_bytes(damage(whole))
    assert _fd(real, reference, tmp_path) == fresh
    assert entry.read_bytes() == whole


def test_every_metric_of_the_spec_has_code_behind_it() -> None:
    assert set(MEASURES) == set(METRICS) <= set(METRIC_KINDS)


def test_references_come_batch_by_batch_and_only_once(
    real: Tensor, reference: Tensor, tmp_path: Path
) -> None:
    asked: list[int] = []

    def batches() -> Iterator[Tensor]:
        for part in reference.split(200):
            asked.append(len(part))
            yield part

    streamed = Reference("data-decoder-1000", batches)
    for _ in range(2):
        found = score(real, streamed, metrics=["fd"], extractor=OWN, cache=tmp_path)
        assert found == score(real, reference, metrics=["fd"], extractor=OWN)
    assert asked == [200] * 5
    (entry,) = tmp_path.iterdir()
    assert entry.name.startswith("data-decoder-1000-1x16x16-fashion16-v1-")


class Layers:
    """An extractor of three layers, by the first pixel of an image."""

    POOL = torch.tensor([[1.0, 0], [-1, 0], [0, 1], [0, -1]])
    extractor, called, device = "inception", "inception", torch.device("cpu")

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __call__(self, images_BCHW: Tensor) -> dict[str, Tensor]:
        pool_BD = self.POOL[images_BCHW[:, 0, 0, 0].long()]
        return {"pool": pool_BD, "spatial": pool_BD + 2, "logits": 1000 * pool_BD}


def test_each_metric_is_of_its_layer_and_sums_go_on_from_their_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both layers have the covariance 2/3 I; the references have I, and means 0 and 1."""
    monkeypatch.setattr(door, "Extraction", Layers)
    metrics = ["is", "sfid", "fid", "recall"]
    first, scorer = (Scorer(metrics, "inception", count=4, device=Layers.device) for _ in range(2))
    images = torch.arange(4, dtype=torch.uint8)[:, None, None, None]
    first.add(images[:2])
    assert {name.rpartition("/")[0] for name in first.state()} == {
        "pool moments", "spatial moments", "logits moments"
    }  # fmt: skip
    scorer.load(first.state())
    scorer.add(images[2:])
    given = {
        "pool": (torch.zeros(2).double(), torch.eye(2).double()),
        "spatial": (torch.ones(2).double(), torch.eye(2).double()),
    }
    reference = Reference("r", lambda: [images], heldout=False, moments=given)
    described = scorer.described(reference, (1, 1, 1), None)
    taken = [first.take_features(), scorer.take_features()]
    assert first.take_features() == {}
    found = scorer.scores(described, taken, 4)
    spread = 2 * (1 + 2 / 3 - 2 * (2 / 3) ** 0.5)
    assert {name: round(value, 9) for name, value in found.items()} == {
        "is@4": pytest.approx(2.0),
        "sfid@4": pytest.approx(2 + spread),
        "fid@4": pytest.approx(spread),
        "recall@4": 1.0,
    }


def test_each_name_stands_for_its_number() -> None:
    compared: Any = SimpleNamespace(
        frechet={"pool": 1.0, "spatial": 2.0}.__getitem__,
        extrapolated=(3.0, 4.0),
        inception_score=5.0,
        neighbours={"precision": 6.0, "recall": 7.0},
    )
    numbers = {
        "fd": 1.0, "fd_dinov2": 1.0, "fid": 1.0, "fid_inf": 3.0, "fid_inf_error": 4.0, "sfid": 2.0,
        "is": 5.0, "precision": 6.0, "recall": 7.0,
    }  # fmt: skip
    assert {name: MEASURES[name](compared) for name in numbers} == numbers


def test_a_number_that_is_none_is_refused_with_its_cause() -> None:
    line = "evaluate: fd: nan is no finite number; the features of the images are not finite"
    with pytest.raises(UserError, match=f"^{line}$"):
        _number("fd", SimpleNamespace(frechet=lambda layer: float("nan")))  # type: ignore[arg-type]
