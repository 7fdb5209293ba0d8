"""The table of sources."""

from __future__ import annotations

from typing import Any

import pytest

from tread_lab.data import open_data, source
from tread_lab.specs import DataSpec, UserError
from tread_lab.specs.data import SOURCES


@pytest.mark.parametrize("field", ["channels", "size", "classes"])
def test_a_spec_that_contradicts_the_embedded_images_is_refused(field: str) -> None:
    wrong: dict[str, Any] = {field: 4}
    with pytest.raises(UserError, match=f"data.{field}: 4 in the spec, but the data have"):
        open_data(DataSpec(**wrong), "train")


def test_every_source_of_the_spec_has_code_and_facts() -> None:
    names = {"fashion16", "latents", "shards", "folder", "images", "safetensors"}
    assert set(source.OPENERS) == set(SOURCES) == names


def test_a_source_without_code_is_an_error_not_tars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SOURCES.built_in, "shard_files", SOURCES["shards"])
    spec: Any = DataSpec(**{"source": "shard_files", "path": "nowhere"})  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"unknown 'shard_files', did you mean 'shards'"):
        open_data(spec, "train")
