"""Claims about the retry policy: tries are counted by kind of failure, literally."""

from __future__ import annotations

import pytest

from tread_lab.records.attempts import Attempt
from tread_lab.sweep.trial.retry import Decision, decide


def history(*kinds: str) -> list[Attempt]:
    return [Attempt(n=n, ended=kind) for n, kind in enumerate(kinds, 1)]


@pytest.mark.parametrize("kinds", [("died", "died"), ("oom", "exception"), ("hung", "died")])
def test_tries_of_different_kinds_are_counted_apart(kinds: tuple[str, ...]) -> None:
    assert decide(history(*kinds)).last is None


def test_a_run_ends_as_the_kind_that_used_up_its_tries() -> None:
    ended = decide(history("exception", "exception", "lost")).last
    assert ended is not None and (ended.n, ended.ended) == (2, "exception")


def test_an_earlier_lack_of_memory_still_asks_for_a_whole_device() -> None:
    assert decide(history("oom", "lost")) == Decision(whole_device=True)
    assert decide(history("lost", "oom", "died")) == Decision(whole_device=True)


def test_an_open_attempt_is_no_try() -> None:
    assert decide(history("exception", "")) == Decision()
