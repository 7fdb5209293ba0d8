// The map's card: the choices above it, its legend, what was not planned; and quality against cost.

import { along } from "./along.js";
import { holdsZero, stateBox, untriedBox, zeroDot } from "./colours.js";
import { at, choice, h, has, put, redraw, STATES, s } from "./dom.js";
import { colourBar, heatmap } from "./heatmap.js";
import { unitOf } from "./numbers.js";
import { scatter } from "./scatter.js";
import { act, shown, state, writeAddress } from "./state.js";

// Return how wide a chart is drawn: narrow pages have narrow charts, whose texts can be read.
const breadth = () => {
  const room = at("left").clientWidth - 30;
  return room < 520 ? Math.max(room, 260) : 700;
};

// Two dimensions make the grid, every other one is a choice above it.
function shape() {
  const dimensions = state.view.cells.dimensions;
  const [rows, columns] = dimensions.length > 1 ? dimensions : [null, dimensions[0] ?? null];
  return { rows, columns, others: dimensions.slice(2) };
}

// A choice for every other dimension, of values that go with the choices before it.
export function drawFilters() {
  const { cells } = state.view;
  const { others } = shape();
  let going = cells.at.filter((_, cell) => cells.role[cell] === "trial");
  put(
    at("filters"),
    others.map((dimension, k) => {
      const value = (place) => String(dimension.values[place[k + 2]]);
      const values = dimension.values
        .map(String)
        .filter((one) => going.some((place) => value(place) === one));
      if (!values.includes(state.filters[dimension.key])) {
        const best = cells.at[state.view.best];
        const near = best && values.find((one) => one === value(best));
        state.filters[dimension.key] = near ?? values[0];
        state.guessed.add(dimension.key);
      }
      going = going.filter((place) => value(place) === state.filters[dimension.key]);
      const filter = (value) => {
        state.filters[dimension.key] = value;
        state.guessed.delete(dimension.key);
        writeAddress();
        drawFilters();
        drawMap();
        at("filters")
          .querySelector(`[data-filter="${CSS.escape(dimension.key)}"]`)
          .focus();
      };
      const named = { "data-filter": dimension.key };
      const select = choice(values, state.filters[dimension.key], filter, named);
      return h("label", {}, `${dimension.label} `, select);
    }),
  );
}

export function drawMap() {
  const { cells, holes } = state.view;
  const { rows, columns, others } = shape();
  const inMap = (place) =>
    !others.some((d, k) => String(d.values[place[k + 2]]) !== state.filters[d.key]);
  const spot = (place, next) => ({
    row: rows ? place[0] : 0,
    column: rows ? place[1] : columns ? place[0] : next,
  });
  const inside = ({ row, column }) => row >= 0 && column >= 0;
  const places = [];
  cells.at.forEach((place, cell) => {
    if (cells.role[cell] === "trial" && inMap(place))
      places.push({ cell, ...spot(place, places.length) });
  });
  const untried = columns
    ? (cells.search?.untried ?? [])
        .map((place, k) => ({ place, name: cells.search.names[k] }))
        .filter((u) => inMap(u.place))
        .map((u) => ({ name: u.name, ...spot(u.place) }))
    : [];
  const view = {
    cells,
    rows: rows ?? { values: [""], label: "" },
    columns: columns ?? { values: places.map(() => ""), label: "" },
    places: places.filter(inside),
    untried: untried.filter(inside),
    chosen: shown(),
    fresh: state.fresh,
  };
  const { svg, scale } = heatmap(view, act.choose, breadth());
  const { meaning } = cells;
  const unit = meaning && scale ? unitOf(meaning.unit, scale.power) : "";
  const curve = rows || !columns || others.length ? null : along(view, act.choose, breadth());
  redraw(at("grid"), curve, svg);
  put(
    at("grid-title"),
    cells.metric ? `${meaning.title}${unit ? `, in ${unit}` : ""}` : "Cells of the plan",
  );
  const statesShown = [
    ...new Set(
      places.map((p) =>
        cells.state[p.cell] === "completed" && !has(cells.value?.[p.cell]) && scale
          ? "unmeasured"
          : cells.state[p.cell],
      ),
    ),
  ].filter((name) => name !== "completed");
  put(
    at("legend"),
    scale ? [colourBar(scale), h("span", {}, unit && `in ${unit}; `, meaning.legend)] : null,
    places.some((p) => holdsZero(cells, p.cell))
      ? h("span", {}, s("svg", { width: 8, height: 14 }, zeroDot(4, 8)), " 95% interval holds zero")
      : null,
    statesShown.map((name) =>
      h(
        "span",
        {},
        s("svg", { width: 16, height: 14 }, stateBox(name, 1, 1, 14, 12)),
        STATES[name][0],
        " ",
        STATES[name][1],
      ),
    ),
    untried.length
      ? h("span", {}, s("svg", { width: 16, height: 14 }, untriedBox(1, 1, 14, 12)), " not tried")
      : null,
  );
  const tried = cells.role.filter((role) => role === "trial").length;
  put(
    at("space"),
    cells.search
      ? `${tried} of ${cells.search.trials} trials of the search, in ${cells.search.cells ?? "?"} ` +
          "cells; small numbers give the order."
      : "",
  );
  put(
    at("holes"),
    holes.map((hole) => `${hole.count} cells not planned: ${hole.reason}`).join("; "),
  );
}

export function drawFront() {
  const { cells } = state.view;
  const points = cells.pareto;
  at("pareto-card").hidden = !points || points.cost.length < 2;
  if (at("pareto-card").hidden) return;
  const look = { metric: points.metric, chosen: shown(), choose: act.choose };
  look.most = breadth();
  redraw(at("pareto"), scatter(points, { ...look, cells }));
}
