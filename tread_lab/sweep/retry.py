"""The retry policy: a table of how often each kind of failure is tried, and what then changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tread_lab.records.attempts import Attempt


@dataclass(frozen=True)
class Rule:
    """What a kind of failure means for the next attempt.

    Attributes:
        tries: attempts of this kind after which the run has failed; nothing where the failure is
            not the run's doing, so that it is never counted.
        whole_device: the next attempt gets a device to itself.
    """

    tries: int | None
    whole_device: bool = False


RULES: Mapping[str, Rule] = {
    "exception": Rule(tries=2),
    "oom": Rule(tries=2, whole_device=True),
    "died": Rule(tries=3),
    "hung": Rule(tries=2),
    "lost": Rule(tries=None),
    "orphaned": Rule(tries=None),
    "interrupted": Rule(tries=None),
    "disk": Rule(tries=None),
    "mistake": Rule(tries=None),
}


@dataclass(frozen=True)
class Verdict:
    """What comes next: another attempt, or the end of the run as `last` ended it.

    Attributes:
        whole_device: the attempt needs a device to itself.
        last: the attempt that used up the tries of its kind; nothing while there may be another.
    """

    whole_device: bool = False
    last: Attempt | None = None


def verdict(attempts: Sequence[Attempt], rules: Mapping[str, Rule] = RULES) -> Verdict:
    """Decide from the record alone whether a run is tried again, and how."""
    counted = [attempt for attempt in attempts if attempt.ended in rules and not attempt.forgiven]
    times = Counter(attempt.ended for attempt in counted)
    for attempt in reversed(counted):
        tries = rules[attempt.ended].tries
        if tries is not None and times[attempt.ended] >= tries:
            return Verdict(last=attempt)
    return Verdict(whole_device=any(rules[kind].whole_device for kind in times))
