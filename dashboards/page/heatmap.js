// The map of a sweep: one cell per place, in the colours of its metric.
import { label } from "./axes.js";
import { css, holdsZero, inkOn, scaleOf, stateBox, untriedBox, zeroDot } from "./colours.js";
import { arrows, has, STATES, s } from "./dom.js";
import { opens, rove } from "./keys.js";
import { MINUS, number, told } from "./numbers.js";

const LEAST = 31; // units of width in which a number of a cell can be read

// Draw one cell per place, the whole in so many units of width where numbers can be read then. For differences white is zero and both signs reach equally far.
export function heatmap(view, choose, most) {
  const { cells, rows, columns, places, untried, chosen, fresh } = view;
  const measured = places.map((p) => cells.value?.[p.cell]).filter(has);
  const scale = measured.length ? scaleOf(cells.meaning, measured) : null;
  const order = cells.search?.order;
  const left = 46 + 4 * longest(rows.values);
  const top = 8;
  const room = Math.max(most - left - 6, LEAST * columns.values.length);
  const width = Math.min(130, room / columns.values.length);
  const least = rows.values.length > 18 ? 15 : 24; // a finger's, as WCAG 2.5.8 asks
  const height = Math.max(least, Math.min(56, 0.62 * width, 430 / rows.values.length));
  const size = Math.max(10, Math.min(15, width / 5, height / 2.2)); // of the numbers
  const tall = top + rows.values.length * height;
  const texts = width >= 30;
  const box = ({ row, column }) => ({ x: left + column * width + 1, y: top + row * height + 1 });
  const empty = untried.map((place) => {
    const { x, y } = box(place);
    return s(
      "g",
      { class: "untried" },
      untriedBox(x + 1, y + 1, width - 4, height - 4),
      s("title", {}, `${arrows(place.name)}: not tried`),
    );
  });
  const drawn = places.map(({ cell, row, column }) => {
    const { x, y } = box({ row, column });
    const value = cells.value?.[cell];
    const known = has(value);
    const state = known
      ? "completed"
      : cells.state[cell] === "completed"
        ? "unmeasured"
        : cells.state[cell];
    const part = known ? Math.abs(value / 10 ** scale.power).toFixed(scale.digits) : "";
    const colour = known ? scale.colour(value) : null;
    const busy = cells.disturbed?.[cell] ? ", disturbed by other work on the machine" : "";
    const sign = value < 0 ? MINUS : scale?.signed ? "+" : "";
    const letters = known ? sign + part + (busy && "*") : STATES[state][0];
    const field = known
      ? [s("rect", { x, y, width: width - 2, height: height - 2, rx: 2, fill: css(colour) })]
      : stateBox(state, x, y, width - 2, height - 2);
    const trial = order?.[cell] ? `, trial ${order[cell]} of the search` : "";
    const result = known ? told(cells, cell) + busy : STATES[state][1];
    const reason = cells.reason[cell] ? `, ${cells.reason[cell]}` : "";
    const shown = texts || !known ? letters : "";
    const description = [arrows(cells.name[cell]), shown, result + reason + trial]
      .filter(Boolean)
      .join(", ");
    const ink = known ? inkOn(colour) : "var(--ink)";
    const text =
      texts || !known
        ? label(
            x + width / 2 - 1 + (trial && texts ? 4 : 0),
            y + height / 2 + size / 3.3 - 0.5,
            letters,
            {
              size: known ? size : Math.max(size, 11),
              class: known ? null : "halo",
              "pointer-events": "none",
            },
          )
        : null;
    const number =
      trial && texts
        ? label(x + 3, y + Math.max(8.5, 0.75 * size), order[cell], {
            anchor: null,
            size: Math.max(7.5, 0.65 * size),
            class: known ? "order" : "order halo",
            "pointer-events": "none",
          })
        : null;
    for (const t of [text, number]) if (t) t.style.fill = ink;
    const drawn = s(
      "g",
      {
        class: ["cell", chosen.includes(cell) && "chosen", fresh.has(cell) && "fresh"]
          .filter(Boolean)
          .join(" "),
        "data-state": state,
        "data-value": known ? value : null,
        "aria-label": description,
        ...opens(cell, choose),
      },
      field,
      s("title", {}, description),
      text,
      holdsZero(cells, cell) ? zeroDot(x + width - 7, y + 5, ink) : null,
    );
    return [drawn, number]; // the number of a trial is no part of what the cell says
  });
  const step = Math.ceil(
    columns.values.length / Math.max(1, room / (8 + 7 * longest(columns.values))),
  );
  const ticks = columns.values.map((v, k) =>
    k % step ? null : label(left + (k + 0.5) * width, tall + 14, arrows(String(v))),
  );
  const names = rows.values.map((v, k) =>
    height >= 12 || k % 2 === 0
      ? label(left - 7, top + (k + 0.5) * height + 4, arrows(String(v)), { anchor: "end" })
      : null,
  );
  const across = columns.values.length * width;
  // The name of an axis that is longer than its map begins at the edge, and the picture holds it.
  const wide = 6.2 * columns.label.length;
  const high = 6.2 * rows.label.length;
  const centre = Math.max(left + across / 2, wide / 2);
  const middle = Math.max(top + (rows.values.length * height) / 2, high / 2);
  const whole = [Math.max(left + across, centre + wide / 2) + 4, Math.max(tall + 36, high + 4)];
  const svg = s(
    "svg",
    {
      viewBox: `0 0 ${whole.join(" ")}`,
      width: whole[0],
      role: "group",
      "aria-label": "cells of the sweep",
    },
    empty,
    drawn,
    ticks,
    names,
    label(centre, tall + 31, columns.label, { class: "soft" }),
    label(11, middle, rows.label, { class: "soft", transform: `rotate(-90 11 ${middle})` }),
  );
  return { svg: rove(svg), scale };
}

const longest = (values) => Math.max(...values.map((v) => String(v).length), 1);

// A colour bar for the heatmap, in the unit of its title.
export function colourBar({ ends, power, colour, signed }) {
  const low = ends[0];
  const high = ends.at(-1);
  const stops = Array.from({ length: 41 }, (_, k) =>
    s("rect", {
      x: 20 + k * 3,
      y: 0,
      width: 3.2,
      height: 9,
      fill: css(colour(low + (k / 40) * (high - low))),
    }),
  );
  const labels = ends.map((v, k) =>
    label(20 + (123 * k) / (ends.length - 1 || 1), 20, number(v / 10 ** power, { signed }), {
      anchor: k === 0 ? "start" : v === high ? "end" : "middle",
      size: 10,
    }),
  );
  return s("svg", { width: 164, height: 23, viewBox: "0 0 164 23" }, stops, labels);
}
