"""The one switch on sources."""

from __future__ import annotations

from typing import Any

import pytest

from tread_lab.data import open_data
from tread_lab.spec import DataSpec, UserError


def test_the_default_spec_opens_the_embedded_images() -> None:
    train, heldout = open_data(DataSpec(), "train"), open_data(DataSpec(), "heldout")
    assert (len(train), len(heldout)) == (20_000, 10_000)
    assert train.shape == (1, 16, 16) and train.classes == 10 and not train.preview


@pytest.mark.parametrize("field", ["channels", "size", "classes"])
def test_a_spec_that_contradicts_the_embedded_images_is_refused(field: str) -> None:
    wrong: dict[str, Any] = {field: 4}
    with pytest.raises(UserError, match=f"data.{field}: 4 in the spec, but the data have"):
        open_data(DataSpec(**wrong), "train")
