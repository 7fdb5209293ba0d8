"""Claims about axes, their cells, and the box in which a search moves."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tread_lab.specs import UserError, decode
from tread_lab.specs.axes import Space, cell_of, distinct, grid, is_range
from tread_lab.specs.cell import Trial
from tread_lab.specs.expansion import Expansion, expand
from tread_lab.specs.fields import with_cell, with_fields
from tread_lab.specs.sweep import Experiment, SweepSpec

RUN = {"model": {"depth": 12, "width": 32, "heads": 2}, "train": {"steps": 10}}
TINY = Experiment(name="tiny", run=RUN, evaluate=("heldout_loss",))


def expansion(**sweep: Any) -> Expansion:
    return expand(decode(SweepSpec, {"experiment": "tiny", **sweep}), TINY)


def cells(**sweep: Any) -> list[dict[str, Any]]:
    return [trial.cell for trial in trials(**sweep)]


def trials(**sweep: Any) -> list[Trial]:
    return [trial for trial in expansion(**sweep).trials if trial.role == "trial"]


def test_zipped_axes_vary_together_and_cross_the_others() -> None:
    found = trials(
        fixed={"routes": ["2->8"]},
        axes={
            "rate": [0.25, 0.5],
            "zip": {"model.depth": [12, 24], "train": {"lr": [1e-3, 5e-4], "batch": "7..8"}},
        },
    )
    seen = [
        (t.cell["rate"], t.spec.model.depth, t.spec.train.lr, t.spec.train.batch) for t in found
    ]
    assert seen == [
        (rate, *together) for rate in (0.25, 0.5) for together in ((12, 1e-3, 7), (24, 5e-4, 8))
    ]


def test_several_zips_cross_and_a_zip_may_stand_below_a_field() -> None:
    both = [{"train.lr": [1e-3, 2e-3], "train.steps": [8, 9]}, {"model.depth": [12, 14]}]
    assert len(cells(axes={"zip": both})) == 4
    assert cells(axes={"route": {"zip": {"start": [0, 2], "end": [3, 8]}, "rate": [0.5]}}) == [
        {"start": 0, "end": 3, "rate": 0.5},
        {"start": 2, "end": 8, "rate": 0.5},
    ]


def test_listed_trials_stand_alone_or_beside_axes_and_meet_the_same_rules() -> None:
    listed = [{"route": "2->8"}, {"route": {"start": 0, "end": 3}, "train": {"ema": 0.9}}, {}]
    assert cells(trials=listed) == [
        {"route": "2->8"},
        {"start": 0, "end": 3, "train.ema": 0.9},
        {},
    ]
    beside = expansion(
        axes={"route": {"start": "0..1", "end": [8]}}, trials=listed[:2], where="start < 2"
    )
    assert [t.cell.get("start") for t in beside.trials[2:]] == [0, 1, 0]
    assert [hole.count for hole in beside.excluded] == [1]


def test_an_axis_or_a_trial_may_name_variants() -> None:
    variants = {"method": {"a": {"routes": ["2->8"]}, "b": {"routes": ["0->3"]}}}
    grids = [{"method": ["a"], "train.steps": [5, 6]}, {"method": ["b"], "train.steps": [7]}]
    assert cells(variants=variants, axes=grids) == [
        {"method": "a", "train.steps": 5},
        {"method": "a", "train.steps": 6},
        {"method": "b", "train.steps": 7},
    ]
    (extra,) = cells(variants=variants, trials=[{"method": "b", "rate": 0.25}])[2:]
    assert extra == {"method": "b", "rate": 0.25}


def test_a_value_may_be_computed_from_others_and_the_depth() -> None:
    found = trials(
        axes={
            "model.depth": [12, 24],
            "route": {"start": [2, 3], "end": "=start + B//2"},
            "train.lr": "=6e-3 * (1 - rate)",
        },
        fixed={"train": {"warmup": "=train.steps // 5"}},
    )
    routes = [(t.spec.model.depth, str(t.spec.routes[0])) for t in found]
    assert routes == [(12, "2->8"), (12, "3->9"), (24, "2->14"), (24, "3->15")]
    assert {t.spec.train.lr for t in found} == {3e-3} and found[0].cell["train.lr"] == 3e-3
    assert found[0].cell["end"] == 8 and {t.spec.train.warmup for t in found} == {2}


def test_fields_of_a_listed_trial_may_be_nested() -> None:
    ema = {"train": {"ema": {"halflife": 0.25}}}
    (found,) = trials(trials=[{**ema, "route": "2->6"}])
    assert found.cell == {"train.ema.halflife": 0.25, "route": "2->6"}
    assert (found.spec.train.ema.halflife, str(found.spec.routes[0])) == (0.25, "2->6")


def test_a_value_is_computed_in_a_part_that_no_axis_touches() -> None:
    found = trials(axes={"route": ["2->8", "2->6"]}, fixed={"train": {"warmup": "=end + B"}})
    assert [t.spec.train.warmup for t in found] == [20, 18]


def test_computed_values_are_found_everywhere_and_may_build_on_each_other() -> None:
    found = expansion(
        variants={"how": {"short": {"then": {"train": {"steps": "=train.steps // 2"}}}}},
        axes={"rate": ["=N / 128", 0.25], "train.steps": ["=train.batch * 2"]},
        fixed={"routes": [{"start": 2, "end": "=min(B - 4, 9)"}], "train.batch": "=B + 4"},
        baseline={"routes": [], "train.lr": "=rate / 100"},
    )
    trial = found.trials[-1].spec
    assert (trial.train.batch, trial.train.steps, trial.routes[0].end) == (16, 16, 8)
    assert trial.init_from is not None and trial.init_from.run.train.steps == 32
    assert sorted(t.spec.train.lr for t in found.trials if t.role == "baseline") == [2.5e-3, 5e-3]
    assert found.trials[-2].spec.routes[0].rate == 0.5


def test_a_rule_may_use_fields_that_nothing_sets_and_the_tokens() -> None:
    found = expansion(
        axes={"route": {"start": [0, 2], "end": [8]}},
        where=["train.lr * N < 1", "precision == 'bf16'", "routes_from == start"],
    )
    assert [t.cell["start"] for t in found.trials if t.role == "trial"] == [0]


def test_a_scaled_range_of_which_no_count_is_given_has_33_places_for_a_search() -> None:
    space = Space(grid({"a": "1e-4..1e-2 log"}, "axes"))
    assert (len(space), space.coordinates) == (33, {"a": ()})
    middle = space.cells[space.number_at({"a": 0.5})]["a"]
    assert middle == 1e-3  # halfway in the logarithm
    for text in ("1e-4..1e-2 log", "0..7", " 0 .. 8 step 2"):
        assert is_range(text)
    for value in ("../x", "2->8", 3, "1..", "0.1..0.9"):
        assert not is_range(value)


def test_seeds_may_be_a_range() -> None:
    assert decode(SweepSpec, {"experiment": "tiny", "seeds": "0..3"}).seeds == (0, 1, 2, 3)


@pytest.mark.parametrize(
    ("sweep", "said"),
    [
        ({"axes": {"trian.lr": [1]}}, "axes.trian.lr: no such field, did you mean 'train.lr'?"),
        ({"axes": {"train": {"step": [1]}}}, "axes.train.step: no such field"),
        ({"axes": {"decay": [1]}}, "axes.decay: no such field, did you mean 'train.ema.decay'?"),
        ({"axes": {"train.seed": [1]}}, "train.seed: no such field, did you mean 'seed'?"),
        ({"axes": {"route": {"strat": [1]}}}, "did you mean 'route.start'?"),
        ({"trials": [{"depth": 3}]}, "trials.depth: no such field, did you mean 'model.depth'?"),
        ({"trials": [3]}, "trials[0]: expected a mapping"),
        ({"axes": {"seed": [1]}}, "axes.seed: write `seeds: [0, 1]`"),
        (
            {"axes": {"zip": {"train.lr": [1, 2], "train.steps": [1]}}},
            "axes.zip: axes that vary together have equally many values; train.lr has 2",
        ),
        ({"axes": {"zip": [3]}}, "axes.zip: expected axes that vary together, got 3"),
        ({"axes": {"route": {"start": "0..9", "end": "=strat+1"}}}, "did you mean 'start'?"),
        ({"axes": {"train.lr": "=train.lr / 2"}}, "a circle"),
        ({"axes": {"train.lr": "=1 +"}}, "'1 +' is not an expression"),
        ({"axes": {"train.lr": "=1e308 * 10"}}, "too large"),
        ({"axes": {"rate": [0]}, "where": "seed > 1"}, "'seed' is no name here"),
        ({"axes": {"rate": [0]}, "where": "train.step > 1"}, "did you mean 'train.steps'?"),
        ({"axes": {f"train.{n}": "1..99" for n in ("lr", "eps", "clip")}}, "axes: 970,299 cells"),
        ({"axes": {"train.steps": "1..99999999"}}, "99,999,999 cells"),
        ({"variants": {"m": {"a": {}}}, "axes": {"m": ["b"]}}, "axes.m: no variant 'b'"),
        (
            {"axes": {"zip": {"train.lr": [1], "rate": [0]}, "train": {"lr": [2]}}},
            "axes.zip and axes.train both set train.lr; write one of them",
        ),
        (
            {"axes": {"zip": [{"rate": [0]}, {"rate": [0.5]}]}},
            "axes.zip[0] and axes.zip[1] both set rate",
        ),
        (
            {"axes": {"zip": {"train": {"lr": [1]}, "train.lr": ["=rate"]}}},
            "axes.zip.train and axes.zip.train.lr both set train.lr",
        ),
        (
            {"trials": [{"train": {"lr": 1}, "train.lr": 2}]},
            "trials[0].train and trials[0].train.lr both set train.lr",
        ),
        ({"axes": {"route": ["2->8"], "routes": [["2->5"]]}}, "routes and route both set routes"),
        ({"axes": {"route": ["2->8"], "route.end": [7]}}, "route and route.end both set route.end"),
        (
            {"axes": {"routes": [[{"start": 0, "end": 1, "rate": 0.5}]], "rate": [0.25]}},
            "routes and rate both set route.rate",
        ),
        (
            {"variants": {"m": {"a": {"train": {"lr": 1}}}}, "axes": {"train.lr": ["=rate / 2"]}},
            "variants.m.a and train.lr both set train.lr",
        ),
        (
            {"variants": {"m": {"a": {"route": "0->1"}}, "n": {"b": {"routes": []}}}},
            "variants.m.a and variants.n.b both set routes",
        ),
        ({"variants": {"m": {}}}, "variants.m: has no values"),
        (
            {"fixed": {"process.p_mean": -1}, "axes": {"process": ["edm", "flow"]}},
            "fixed.process.p_mean: every cell sets process whole; write it there",
        ),
        (
            {"fixed": {"routes": ["2->8"], "rate": 0.25}, "axes": {"routes": [["0->1"]]}},
            "fixed.rate: every cell sets routes whole",
        ),
        ({"fixed": {"seed": 1}}, "fixed.seed: write `seeds: [0, 1]`"),
        ({"variants": {"m": {"a": {"seed": 3}}}}, "variants.m.a.seed: write `seeds: [0, 1]`"),
        ({"baseline": {"seed": 3}}, "baseline.seed: write `seeds: [0, 1]`"),
        ({"seeds": [-1]}, "seeds: must not be negative"),
        ({"seeds": ["a"]}, "seeds[0]: expected a whole number"),
    ],
)
def test_mistakes_are_one_line_with_their_place(sweep: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=r"^[^\n]*$") as error:
        expansion(**sweep)
    assert said in str(error.value)


def test_a_fixed_part_of_a_field_counts_where_a_cell_does_not_set_the_field_whole() -> None:
    fixed, rows = {"process.p_mean": -1}, ({"train.lr": 1e-3}, {"process": "edm"})
    found = trials(fixed=fixed, trials=rows)
    assert [t.spec.process.p_mean for t in found] == [-1, -1.2]  # type: ignore[union-attr]


def test_cells_that_set_the_same_in_another_order_are_equal() -> None:
    cells = [{"rate": 0.5, "route": "2->8"}, {"route": "2->8", "rate": 0.5}]
    assert distinct(cells) == (cells[:1], cells[1:])


@pytest.mark.parametrize(
    ("axes", "found"),
    [
        ({"a": 3}, [{"a": 3}]),
        ({"a": "0..8 step 3"}, [{"a": 0}, {"a": 3}, {"a": 6}]),
        ({"a": "3..3"}, [{"a": 3}]),
        ({"a": "-2..-1"}, [{"a": -2}, {"a": -1}]),
        ({"a": ["0..1", 5]}, [{"a": 0}, {"a": 1}, {"a": 5}]),
        ({"a": [[1, 2], [3]]}, [{"a": [1, 2]}, {"a": [3]}]),
        ({"a": [{}, {"b": 1}]}, [{"a": {}}, {"a.b": 1}]),
        ({"a": {"b": [1, 2]}, "c": "x"}, [{"a.b": 1, "c": "x"}, {"a.b": 2, "c": "x"}]),
        (
            {"zip": {"a": {"b": {"c": [1, 2]}}, "d": [3, 4]}},
            [{"a.b.c": 1, "d": 3}, {"a.b.c": 2, "d": 4}],
        ),
        ([{"a": [1]}, {"b": [2]}], [{"a": 1}, {"b": 2}]),
        ({"a": "1e-4..1e-2 log 5"}, [{"a": x} for x in (1e-4, 3.16e-4, 1e-3, 3.16e-3, 1e-2)]),
        ({"a": [3, "0.1..0.5 linear 3"]}, [{"a": 3}, {"a": 0.1}, {"a": 0.3}, {"a": 0.5}]),
        ({"a": "8..64 log 4"}, [{"a": 8}, {"a": 16}, {"a": 32}, {"a": 64}]),
        ({"a": "1..4 log 33"}, [{"a": 1}, {"a": 2}, {"a": 3}, {"a": 4}]),
    ],
)
def test_axes_in_every_spelling_become_these_cells(axes: Any, found: list[Any]) -> None:
    assert grid(axes, "axes") == found


@pytest.mark.parametrize(
    ("axes", "said"),
    [
        ([{"a": [1]}, 3], r"^axes\[1\]: expected a mapping of axes, got 3"),
        ({"a": "\u0663..\u0665"}, r"is not a range; write 0..7, 0..8 step 2, 1e-4..1e-2 "),
        ({"a": "0.1..0.9"}, r"is not a range; write .* or 0.1..0.9 linear 9"),
        ({"a": "0..1.0 log"}, r"^axes.a: the range .*: from a smaller to a larger number, log"),
        ({"a": "1..3 linear 1"}, r"'1..3 linear 1': from a smaller to a larger"),
        ({"a": "1e-4..1e-2 log"}, r"'1e-4..1e-2 log': 33 cells, more than 4; split"),
        ({"a": "5..4"}, r"^axes.a: the range '5..4' is empty"),
        ({"a": "1..2 step 0"}, r"^axes.a: the range '1..2 step 0' is empty"),
        ({"zip": {}}, r"^axes.zip: expected axes that vary together, got {}"),
        ([{"a": [1, 2, 3]}, {"b": [1, 2]}], "^axes: 5 cells, more than 4; split the sweep"),
        ({"a": {"b": [1, 2, 3], "c": [1, 2]}}, r"^axes\.a: 6 cells, more than 4; split"),
        ({"a": "0..4"}, r"^axes\.a: the range '0\.\.4': 5 cells, more than 4; split"),
    ],
)
def test_axes_that_are_none_or_too_many_are_told_with_their_place(
    axes: Any, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tread_lab.specs.axes.MOST_CELLS", 4)
    assert len(grid({"a": [1, 2], "b": [1, 2]}, "axes")) == len(grid({"a": "0..3"}, "axes")) == 4
    with pytest.raises(UserError, match=said):
        grid(axes, "axes")


def test_a_cell_that_is_written_out_has_dotted_leaves() -> None:
    tree = {"train": {"lr": "0..1", "ema": {"halflife": 2}}, "data": {}, "a": [1]}
    assert cell_of(tree, "trials[0]") == {
        "train.lr": "0..1", "train.ema.halflife": 2, "data": {}, "a": [1]
    }  # fmt: skip


TRIANGLE = [
    {"start": i, "end": j, "rate": 0.5, "selection": s}
    for i in range(6)
    for j in range(i, 6)
    for s in ("rows", "random")
]
shares = st.floats(0, 1)


@given(shares, shares, st.sampled_from(["rows", "random"]))
def test_every_point_of_the_box_is_a_cell(start: float, end: float, selection: str) -> None:
    space = Space(TRIANGLE)
    number = space.number_at({"start": start, "end": end, "selection": selection})
    assert space.cells[number]["selection"] == selection


def test_the_middle_of_a_cells_share_is_that_cell() -> None:
    space = Space(TRIANGLE)
    assert [space.number_at(space.point(n)) for n in range(len(space))] == list(range(len(space)))
    assert [space.number_of(cell) for cell in TRIANGLE] == list(range(len(space)))
    assert space.axes == ("start", "end", "selection")  # a constant axis has no coordinate


def test_the_upper_edge_of_the_box_belongs_to_the_last_cell() -> None:
    space = Space(TRIANGLE)
    assert space.cells[space.number_at({"start": 1.0, "end": 1.0, "selection": "rows"})] == {
        "start": 5,
        "end": 5,
        "rate": 0.5,
        "selection": "rows",
    }


def test_names_that_not_every_cell_may_have_are_no_choice() -> None:
    cells = [
        {"start": 0, "selection": "rows"},
        {"start": 0, "selection": "random"},
        {"start": 1, "selection": "rows"},
    ]
    space = Space(cells)
    assert space.coordinates == {"start": (), "selection": ()}
    assert space.number_at({"start": 0.9, "selection": 0.9}) == 2
    choice = Space([*cells, {"start": 1, "selection": "random"}])
    assert choice.coordinates["selection"] == ("rows", "random")


def test_near_cells_are_near() -> None:
    space = Space(TRIANGLE)
    point = space.point(space.number_of(TRIANGLE[0]) or 0)
    found = space.nearest(point, [n for n in range(len(space)) if n != 0])
    assert space.cells[found] == {"start": 0, "end": 1, "rate": 0.5, "selection": "rows"}


def test_of_equally_near_cells_the_first_is_nearest() -> None:
    space = Space([{"start": 0}, {"start": 1}, {"start": 2}, {"start": 3}])
    assert space.nearest({"start": 0.5}, [2, 1]) == 1


def test_places_follow_the_order_of_values_and_a_choice_of_two_that_not_all_have_is_a_place() -> (
    None
):
    cells = [{"x": 3, "y": True}, {"x": 1, "y": True}, {"x": 2, "y": False}, {"x": 2, "y": True}]
    space = Space(cells)
    assert [space.point(n) for n in range(4)] == [
        {"x": 5 / 6, "y": 0.5}, {"x": 1 / 6, "y": 0.5}, {"x": 0.5, "y": 0.25}, {"x": 0.5, "y": 0.75}
    ]  # fmt: skip
    assert space.number_of({"x": 2, "y": True}) == 3 and space.number_of({"x": 9}) is None


def test_yes_and_no_are_names_and_numbers_are_places() -> None:
    flags = Space([{"a": True, "b": 2}, {"a": False, "b": 2}, {"a": True, "b": 1},
                   {"a": False, "b": 1}])  # fmt: skip
    assert flags.coordinates == {"a": ("True", "False"), "b": ()}
    assert flags.number_at({"a": "False", "b": 0.0}) == 3


def test_the_distance_is_that_of_a_straight_line() -> None:
    axes = [{"x": x, "y": y} for x in range(10) for y in range(10)]
    space = Space(axes)
    point = {"x": 0.05, "y": 0.05}  # of cell (0, 0): (3, 3) is nearer than (0, 5)
    assert space.nearest(point, [5, 33]) == 33


def test_the_rate_is_of_the_routes_wherever_it_is_written() -> None:
    for fixed in ({"rate": 0.75, "routes": ["0->1"]}, {"routes": ["0->1"], "rate": 0.75}):
        tree = with_fields({"routes": []}, fixed, "fixed")
        assert [route["rate"] for route in tree["routes"]] == [0.75]
    first = with_fields({}, {"route": "0->1", "routes": ["2->3", "4->5"]}, "fixed")["routes"]
    assert first == [{"start": 0, "end": 1}, {"start": 4, "end": 5}]
    variants = {"m": {"a": {"rate": 0.25, "model.depth": 4}}, "n": {"b": {"model": "DiT-S/2"}}}
    tree = with_cell({}, {"m": "a", "n": "b", "routes": ["0->1"]}, variants)
    assert (tree["model"]["depth"], tree["routes"][0]["rate"]) == (4, 0.25)
    tree = with_fields({}, {"train.lr": 3, "train": {"lr": 1, "steps": 2}}, "fixed")
    assert tree == {"train": {"lr": 3, "steps": 2}}
    cell = {"rate": 0.25, "routes": ["0->1"]}
    assert with_cell({}, cell, {})["routes"][0]["rate"] == 0.25


@pytest.mark.parametrize(
    ("written", "values"),
    [
        ("2000..2009 linear 10", list(range(2000, 2010))),
        ("1000..1010 linear 3", [1000, 1005, 1010]),
        ("0.1234..0.1236 linear 3", [0.1234, 0.1235, 0.1236]),
        ("0.999..0.9999 linear 4", [0.999, 0.9993, 0.9996, 0.9999]),
        ("1..4 linear 9", [1, 2, 3, 4]),
        ("1e-4..1e-2 log 3", [1e-4, 1e-3, 1e-2]),
    ],
)
def test_values_of_a_scaled_range_are_apart_and_inside_it(written: str, values: list[Any]) -> None:
    assert [cell["a"] for cell in grid({"a": written}, "axes")] == values


def test_an_axis_that_only_some_cells_have_is_an_axis_of_the_space() -> None:
    cells = [{"a": 1}, {"a": 2}, *({"a": 3, "b": b} for b in (0.1, 0.2, 0.3))]
    space = Space(cells)
    assert space.axes == ("a", "b")
    assert [space.number_of(cell) for cell in cells] == list(range(5))
    assert [space.number_at(space.point(k)) for k in range(5)] == list(range(5))
