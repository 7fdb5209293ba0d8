"""The schema command prints the schema as it stands, without another end of line."""

from __future__ import annotations

import pytest

from tread_lab.commands import schema


def test_the_schema_of_the_kind_is_printed_as_it_stands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(schema, "schema_text", lambda kind: f"{kind}\n")
    assert schema.run(kind="experiment") == 0
    assert capsys.readouterr() == ("experiment\n", "")
