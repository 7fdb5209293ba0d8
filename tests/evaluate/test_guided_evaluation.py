"""One trained run is sampled under every guidance: nothing is trained again, all of it recorded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.train.runs import CPU, evaluate, lab_with_a_run, small_run
from tread_lab.config import SamplesSpec, UserError, decode
from tread_lab.evaluate.sampling_calls import sample_flops
from tread_lab.records import metric_names
from tread_lab.records.run_folder import RunFolder

RUN = small_run(
    execution={"keep_steps": [2]},
    model={**{"depth": 4, "width": 16, "heads": 2}, "patch": 4, "init": "official_code"},
)
METHODS: dict[str, Any] = {
    "none": 1,
    "cfg": 2,
    "routed": {"weight": 1, "strong": {"rate": 0.5}},
    "sparse": {"weight": 2, "weak": {"rate": 0.75}},
    "both": {"weight": 2, "weak": {"rate": 0.75, "label": "none"}},
    "auto": {"weight": 2, "weak": {"step": 2}},
    "auto and sparse": {"weight": 2, "weak": {"step": 2, "rate": "0.6->0"}},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return lab_with_a_run(tmp_path_factory.mktemp("lab"), RUN).run_of(RUN)


def drawn(folder: RunFolder, guidance: Any, **sampler: Any) -> tuple[np.ndarray, dict[str, Any]]:
    tree = {"steps": 2, "sigma_max": 10, "guidance": guidance, **sampler}
    spec = decode(SamplesSpec, {"count": 4, "sampler": tree})
    assert evaluate(folder, spec, CPU) == {}
    place = folder.evaluation(spec)
    with np.load(place.path / "samples.npz") as arrays:
        return arrays["arr_0"], place.read() or {}


def test_every_method_draws_other_images_and_records_its_cost(folder: RunFolder) -> None:
    before = {path: path.stat().st_mtime_ns for path in folder.checkpoints.iterdir()}
    pictures = {}
    for name, guidance in METHODS.items():
        pictures[name], record = drawn(folder, guidance)
        spec = decode(SamplesSpec, {k: v for k, v in record["spec"].items() if k != "kind"})
        assert record[metric_names.SAMPLE_FLOPS] == sample_flops(RUN, spec.sampler) > 0
        assert record["step"] == 6
    assert {path: path.stat().st_mtime_ns for path in folder.checkpoints.iterdir()} == before
    assert len({images.tobytes() for images in pictures.values()}) == len(METHODS)


def test_the_strong_branch_may_be_an_earlier_checkpoint(folder: RunFolder) -> None:
    images, record = drawn(folder, {"strong": {"step": 2}})
    assert record["step"] == 2
    assert not np.array_equal(images, drawn(folder, 1)[0])


def test_sampling_in_a_lower_precision_is_asked_for_and_signed(folder: RunFolder) -> None:
    exact, half = drawn(folder, 1)[0], drawn(folder, 1, precision="bf16")[0]
    assert not np.array_equal(exact, half)
    assert np.abs(exact.astype(int) - half.astype(int)).mean() < 3
    with pytest.raises(UserError, match="has no tf32"):
        drawn(folder, 1, precision="tf32")
