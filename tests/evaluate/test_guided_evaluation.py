"""A trained run is sampled by an earlier checkpoint, and in another precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.train.runs import CPU, evaluate, lab_with_a_run, small_run
from tread_lab.config import SamplesSpec, UserError, decode
from tread_lab.records.run_folder import RunFolder

RUN = small_run(
    execution={"keep_steps": [2]},
    model={**{"depth": 4, "width": 16, "heads": 2}, "patch": 4, "init": "official_code"},
)


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


def test_strong_branch_may_be_earlier(folder: RunFolder) -> None:
    images, record = drawn(folder, {"strong": {"step": 2}})
    assert record["step"] == 2
    assert not np.array_equal(images, drawn(folder, 1)[0])


def test_sampling_precision_is_signed(folder: RunFolder) -> None:
    exact, half = drawn(folder, 1)[0], drawn(folder, 1, precision="bf16")[0]
    assert not np.array_equal(exact, half)
    assert np.abs(exact.astype(int) - half.astype(int)).mean() < 3
    with pytest.raises(UserError, match="has no tf32"):
        drawn(folder, 1, precision="tf32")
