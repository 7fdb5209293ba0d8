"""What is refused or told before anything is measured."""

from __future__ import annotations

import pytest

from tests.train.runs import small_run
from tread_lab.config import SamplesSpec, UserError
from tread_lab.evaluate.measurable import check_measurable


def test_samples_that_are_no_images_when_decoded_are_refused_before_they_are_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("torch_fidelity")

    def refuse(data: object, samples: object) -> None:
        raise UserError("no images")

    monkeypatch.setattr("tread_lab.evaluate.measurable.check_decoded", refuse)
    check_measurable([(small_run(), SamplesSpec(count=100))])
    with pytest.raises(UserError, match="no images"):
        check_measurable([(small_run(), SamplesSpec(metrics=("fd",), count=100))])
