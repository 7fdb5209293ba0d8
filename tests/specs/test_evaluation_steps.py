"""Steps of evaluations: how they are written, and what a run makes of them."""

from __future__ import annotations

from typing import Any

import pytest

from tread_lab.specs import UserError, decode, encode, signature
from tread_lab.specs.evaluation import HeldoutSpec, SamplesSpec, decode_evaluations
from tread_lab.specs.evaluation_labels import MetricNames, evaluation_label
from tread_lab.specs.evaluation_steps import at_steps, in_words, kept_steps, steps_of


def steps(*items: Any) -> list[Any]:
    return [spec.step for spec in decode_evaluations(items)]


@pytest.mark.parametrize(
    "items",
    [
        ["fid@10k at 50000, 25%, end"],
        ["fid@10k at 50k 25% end"],
        ["fid@10k at 50000", "25%", "end"],  # a comma within brackets makes items
        ["fid@10k", "at", 50000, "25%", "end"],  # and a shell makes words
        [{"samples": {"metrics": ["fid"], "count": 10_000, "at": [50_000, "25%", "end"]}}],
    ],
)
def test_steps_are_written_as_a_text_a_list_or_a_key(items: list[Any]) -> None:
    specs = decode_evaluations(items)
    assert [(s.metrics, s.count, s.step) for s in specs if isinstance(s, SamplesSpec)] == [
        (("fid",), 10_000, 50_000),
        (("fid",), 10_000, "25%"),
        (("fid",), 10_000, None),
    ]


def test_other_items_of_a_list_are_no_steps() -> None:
    specs = decode_evaluations(["heldout_loss at 10", 20, "fd@1k", {"layer_similarity": {"at": 5}}])
    assert [(spec.kind, spec.step) for spec in specs] == [
        ("heldout_loss", 10),
        ("heldout_loss", 20),
        ("samples", None),
        ("layer_similarity", 5),
    ]


def test_metrics_of_one_step_share_its_images_and_no_others() -> None:
    specs = decode_evaluations(["fd@1k at 10, end", "kid@1k at 10"])
    assert [(s.metrics, s.step) for s in specs if isinstance(s, SamplesSpec)] == [
        (("fd", "kid"), 10),
        (("fd",), None),
    ]


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        ("fd@1k at 0", r"evaluate\[0\].samples: '0' is no step; the first one is 1"),
        ("fd@1k at soon", r"'soon' is no step; steps are written as in `fd@1k at 250, 50%, end`"),
        ("heldout_loss at 101%", "'101%' is no step"),
        ({"heldout_loss": {"at": []}}, "at: has no steps"),
        ({"heldout_loss": {"at": [True]}}, "True is no step"),
        ({"heldout_loss": {"step": -1}}, "-1 is no step"),
        ({"heldout_loss": {"at": 5, "step": 5}}, "say the same; leave one"),
        ("heldoutloss at 5", "unknown evaluation 'heldoutloss', did you mean 'heldout_loss'"),
    ],
)
def test_what_is_no_step_is_said_in_one_line(item: Any, problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        decode_evaluations([item])


def test_a_run_makes_steps_of_shares_and_its_last_one_is_the_end() -> None:
    specs = at_steps(decode_evaluations(["heldout_loss at 1%, 25%, 300, 400, end"]), 400)
    assert [spec.step for spec in specs] == [4, 100, 300, None]
    assert kept_steps(specs) == (4, 100, 300)
    with pytest.raises(UserError, match="step 300 lies beyond the 200 steps of training"):
        at_steps(decode_evaluations(["heldout_loss at 300"]), 200)


def test_an_evaluation_of_the_end_is_signed_as_before_there_were_steps() -> None:
    assert "step" not in encode(HeldoutSpec())
    assert signature(HeldoutSpec(step=None)) == signature(HeldoutSpec()) == "62fa427c5a99abb1"
    assert signature(HeldoutSpec(step=10)) != signature(HeldoutSpec())
    assert signature(HeldoutSpec(pick="even")) != signature(HeldoutSpec(pick="first"))
    assert signature(HeldoutSpec(pick="first")) == "62fa427c5a99abb1"
    again = decode(HeldoutSpec, encode(HeldoutSpec(step=10)))
    assert again.step == 10


def test_a_metric_has_one_name_at_all_steps() -> None:
    early, late = map(encode, decode_evaluations(["fd@1k at 10, end"]))
    assert [evaluation_label(tree) for tree in (early, late)] == ["fd@1k at 10", "fd@1k"]
    names = MetricNames([early, late])
    assert [names.name("fd@1k", signature(tree), tree) for tree in (early, late)] == ["fd@1k"] * 2


def test_steps_are_said_in_words() -> None:
    assert [in_words(own) for own in ([], [5], [5, 10, 20])] == ["none", "5", "5, 10 and 20"]


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("100%", (None,)),
        ("100.0%", (None,)),
        ("END", (None,)),
        ("12.50%", ("12.5%",)),
        ("5k", (5000,)),
        ("250, 50%, 250 end,", (250, "50%", None)),
        ([5, "5", 7], (5, 7)),
        (9, (9,)),
    ],
)
def test_steps_in_every_spelling(written: Any, found: tuple[Any, ...]) -> None:
    assert steps_of(written) == found


@pytest.mark.parametrize("written", [True, [False], "0%", "0", "101%", "-5", "1.5", "", 0.5])
def test_what_is_no_step_is_refused(written: Any) -> None:
    with pytest.raises(UserError, match=r"is no step|has no steps"):
        steps_of(written)


@pytest.mark.parametrize("step", [True, "100%", "5k", "end", 0, "25.0%", "5"])
def test_a_spec_takes_a_step_in_one_spelling_alone(step: Any) -> None:
    with pytest.raises(UserError, match=r"is no step"):
        HeldoutSpec(step=step)
    assert [HeldoutSpec(step=own).step for own in (None, 1, "25%")] == [None, 1, "25%"]


@pytest.mark.parametrize(
    ("share", "total", "step"), [("1%", 10, 1), ("25%", 10, 2), ("26%", 10, 3), ("99%", 10, None)]
)
def test_a_share_is_the_nearest_step_and_at_least_the_first(
    share: str, total: int, step: int | None
) -> None:
    assert [spec.step for spec in at_steps([HeldoutSpec(step=share)], total)] == [step]


def test_evaluations_that_meet_at_one_step_are_one() -> None:
    specs = [HeldoutSpec(step="50%"), HeldoutSpec(step=5), HeldoutSpec(step=10), HeldoutSpec()]
    assert at_steps(specs, 10) == (HeldoutSpec(step=5), HeldoutSpec())
    assert kept_steps([HeldoutSpec(step=n) for n in (9, 3, 9, 5)]) == (3, 5, 9)
