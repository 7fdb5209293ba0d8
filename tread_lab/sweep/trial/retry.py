"""The retry policy: from a run's attempts, whether another one follows and on what device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tread_lab.records.attempts import Attempt
from tread_lab.records.endings import ENDINGS
from tread_lab.specs.errors import lookup


@dataclass(frozen=True)
class Decision:
    """The decision on a run: another attempt, or its end as the attempt `last` ended.

    Attributes:
        whole_device: whether the next attempt needs a device to itself.
        last: the attempt that used up the tries of its kind; `None` if another one follows.
    """

    whole_device: bool = False
    last: Attempt | None = None


def decide(attempts: Sequence[Attempt]) -> Decision:
    """Decide from the record alone whether a run is tried again, and how.

    Raises:
        UserError: the record holds an ending that this version does not know.
    """
    counted = [attempt for attempt in attempts if attempt.ended and not attempt.forgiven]
    times = Counter(attempt.ended for attempt in counted)
    endings = {kind: lookup(ENDINGS, kind, "how an attempt has ended") for kind in times}
    for attempt in reversed(counted):
        tries = endings[attempt.ended].tries
        if tries is not None and times[attempt.ended] >= tries:
            return Decision(last=attempt)
    return Decision(whole_device=any(ending.whole_device for ending in endings.values()))
