"""What is read from records is frozen: nobody changes it on the way to a table."""

from __future__ import annotations

from tests.frozen import not_frozen
from tread_lab import records


def test_every_dataclass_is_frozen() -> None:
    assert not_frozen(records) == set()
