// Charts in plain SVG: heatmap, scatter with its Pareto front, lines and similarity matrices.
import { arrows, halfWidth, has, MINUS, number, quantity, STATES, s } from "./dom.js";

const BLUE = [0, 114, 178];
const WHITE = [247, 247, 247];
const ORANGE = [213, 94, 0];
const PURPLE = [118, 42, 131];
const GREEN = [27, 120, 55];
// Of dense and of the chosen cells; blue and orange mean better and worse.
export const COLOURS = ["var(--ink)", "#009E73", "#CC79A7", "var(--indigo)", "#999933"];
const HATCH = {
  failed: "M0 6L6 0",
  diverged: "M0 6L6 0M0 0L6 6",
  stopped: "M0 3H6",
  running: "M3 3h.1",
  measuring: "M3 3h.1",
  pending: "",
  interrupted: "M0 0L6 6",
  unmeasured: "",
  uncompared: "M0 6L6 0",
  unread: "",
  untried: "",
};

// Return a text at a place, in the middle of it unless `anchor` says otherwise.
const label = (x, y, content, { anchor = "middle", size = 11, ...look } = {}) =>
  s("text", { x, y, "text-anchor": anchor, "font-size": size, ...look }, content);

const mix = (a, b, t) => a.map((v, k) => Math.round(v + t * (b[k] - v)));
const css = (rgb) => `rgb(${rgb.join(",")})`;
const FRAME = { stroke: "var(--frame)", "stroke-width": 0.8 }; // of a cell without a number
const VIRIDIS = [
  [68, 1, 84],
  [59, 82, 139],
  [33, 145, 140],
  [94, 201, 98],
  [253, 231, 37],
];
function sequential(t) {
  const x = Math.min(0.9999, Math.max(0, t)) * 4;
  const k = Math.floor(x);
  return mix(VIRIDIS[k], VIRIDIS[k + 1], x - k);
}
// Black or white, whichever has more contrast on a colour (WCAG 2, 1.4.3).
function inkOn(rgb) {
  const [r, g, b] = rgb.map((v) =>
    v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4,
  );
  const light = 0.2126 * r + 0.7152 * g + 0.0722 * b;
  return 1.05 / (light + 0.05) > (light + 0.05) / 0.05 ? "#fff" : "#000";
}

// Return the colour scale of a metric: better to worse or less to more for differences, and one
// sequential scale for values that are not differences.
function scaleOf(meaning, values) {
  const top = Math.max(...values.map(Math.abs), 0);
  const least = meaning.shows === "value" ? 0.01 : 0.5;
  const power = top === 0 || (top >= least && top < 1000) ? 0 : 3 * Math.floor(Math.log10(top) / 3);
  if (meaning.shows === "value") {
    const low = Math.min(...values);
    const high = Math.max(...values);
    const room = (high - low) / 10 ** power || 1;
    return {
      power,
      ends: [low, high],
      digits: Math.max(0, Math.min(4, 1 - Math.floor(Math.log10(room)))),
      signed: false,
      colour: (v) => sequential(high > low ? (v - low) / (high - low) : 0.5),
    };
  }
  const [less, more] = { 1: [BLUE, ORANGE], "-1": [ORANGE, BLUE], 0: [PURPLE, GREEN] }[
    meaning.sign
  ];
  const reach = top || 1;
  const share = reach / 10 ** power;
  return {
    power,
    ends: [-reach, 0, reach],
    digits: share < 1 ? 2 : share < 100 ? 1 : 0,
    signed: true,
    colour: (v) => mix(WHITE, v < 0 ? less : more, Math.min(1, Math.abs(v) / reach)),
  };
}

// Return the attributes of an element that opens a cell: a click, Enter and Space do the same.
export function opens(cell, choose) {
  const open = (event) => choose(cell, event.shiftKey || event.ctrlKey || event.metaKey);
  const onkeydown = (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    open(event);
  };
  return { "data-cell": cell, tabindex: 0, role: "button", onclick: open, onkeydown };
}

// Return whether a cell's 95% interval holds zero: its difference cannot be told from none.
export const holdsZero = (cells, k) =>
  cells.meaning?.shows !== "value" &&
  has(cells.low?.[k]) &&
  cells.low[k] <= 0 &&
  cells.high[k] >= 0;
export const zeroDot = (x, y, fill = "var(--ink)") =>
  s("circle", { cx: x, cy: y, r: 1.8, fill, class: "zero", "pointer-events": "none" });

function hatches() {
  const patterns = Object.entries(HATCH)
    .filter(([, d]) => d)
    .map(([state, d]) =>
      s(
        "pattern",
        { id: `hatch-${state}`, width: 6, height: 6, patternUnits: "userSpaceOnUse" },
        s("path", {
          d,
          stroke: state === "failed" || state === "diverged" ? "#D55E00" : "#8c8c8c",
          "stroke-width": state === "running" || state === "measuring" ? 1.6 : 0.9,
          "stroke-linecap": "round",
        }),
      ),
    );
  return s("defs", {}, patterns);
}

export function stateBox(state, x, y, width, height) {
  const place = { x, y, width, height, rx: 2 };
  const box = s("rect", { ...place, fill: "var(--paper)", ...FRAME });
  if (!HATCH[state]) return [box];
  const hatch = { fill: `url(#hatch-${state})`, "pointer-events": "none" };
  return [box, s("rect", { ...place, ...hatch })];
}

export const untriedBox = (x, y, width, height) =>
  s("rect", { x, y, width, height, rx: 2, fill: "none", ...FRAME, "stroke-dasharray": "2 3" });

export const hatchDefs = () => s("svg", { width: 0, height: 0, "aria-hidden": "true" }, hatches());

// Draw one cell per place. For differences white is zero and both signs reach equally far.
export function heatmap(view, choose) {
  const { cells, rows, columns, places, untried, chosen, fresh } = view;
  const measured = places.map((p) => cells.value?.[p.cell]).filter(has);
  const scale = measured.length ? scaleOf(cells.meaning, measured) : null;
  const order = cells.search?.order;
  const left = 46 + 4 * longest(rows.values);
  const top = 8;
  const room = 700 - left;
  const width = Math.min(64, room / columns.values.length);
  const height = Math.max(15, Math.min(30, 430 / rows.values.length));
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
    const half = halfWidth(cells.low?.[cell], cells.high?.[cell]);
    const amount = (v) => quantity(v, cells.meaning.unit, { signed: scale.signed, half });
    const interval = has(cells.low?.[cell])
      ? ` (95%: ${amount(cells.low[cell])} to ${amount(cells.high[cell])})`
      : "";
    const result = known ? amount(value) + interval + busy : STATES[state][1];
    const reason = cells.reason[cell] ? `, ${cells.reason[cell]}` : "";
    const shown = texts || !known ? letters : "";
    const description = [arrows(cells.name[cell]), shown, result + reason + trial]
      .filter(Boolean)
      .join(", ");
    const ink = known ? inkOn(colour) : "var(--ink)";
    const text =
      texts || !known
        ? label(x + width / 2 - 1 + (trial && texts ? 4 : 0), y + height / 2 + 2.6, letters, {
            size: known ? 10 : 11,
            class: known ? null : "halo",
            "pointer-events": "none",
          })
        : null;
    const number =
      trial && texts
        ? label(x + 3, y + 8.5, order[cell], {
            anchor: null,
            size: 7.5,
            class: known ? "order" : "order halo",
            "pointer-events": "none",
          })
        : null;
    for (const t of [text, number]) if (t) t.style.fill = ink;
    return s(
      "g",
      {
        class: `cell${chosen.includes(cell) ? " chosen" : ""}${fresh.has(cell) ? " fresh" : ""}`,
        "data-state": state,
        "data-value": known ? value : null,
        "aria-label": description,
        ...opens(cell, choose),
      },
      field,
      s("title", {}, description),
      text,
      number,
      holdsZero(cells, cell) ? zeroDot(x + width - 7, y + 5, ink) : null,
    );
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
  const size = [Math.max(left + across, centre + wide / 2) + 4, Math.max(tall + 36, high + 4)];
  const svg = s(
    "svg",
    {
      viewBox: `0 0 ${size.join(" ")}`,
      width: size[0],
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
  return { svg, scale };
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

function axes({ x, y, width, height, box, log = false, xLabel, yLabel, xUnit = "" }) {
  const [x0, x1] = x;
  const [y0, y1] = y;
  const { left, top, right, bottom } = box;
  const f = log ? Math.log10 : (v) => v;
  const px = (v) => left + ((f(v) - f(x0)) / (f(x1) - f(x0) || 1)) * (width - left - right);
  const py = (v) => height - bottom - ((v - y0) / (y1 - y0 || 1)) * (height - top - bottom);
  const xs = log ? logTicks(x0, x1) : ticks(x0, x1, 5);
  const ys = ticks(y0, y1, 5);
  const line = (a, b, c, d) => s("line", { x1: a, y1: b, x2: c, y2: d, stroke: "var(--line)" });
  const frame = [
    ys.map((v) => [
      line(left, py(v), width - right, py(v)),
      label(left - 5, py(v) + 3.5, tick(v, ys), { anchor: "end", size: 10 }),
    ]),
    xs.map((v) => label(px(v), height - bottom + 13, quantity(v, xUnit), { size: 10 })),
    label((left + width - right) / 2, height - 2, xLabel, { size: 10.5, class: "soft" }),
    label(left - 4, 9, yLabel, { anchor: "start", size: 10.5, class: "soft" }),
  ];
  return { px, py, frame };
}

// Return the text of a tick, with as many decimals as tell it from its neighbour.
const tick = (v, all) => {
  const step = all[1] - all[0];
  return step < 1 ? number(v, { half: 10 * step }) : number(v, { digits: 5 });
};

function ticks(low, high, count) {
  const raw = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find((m) => m * power >= raw) * power;
  const values = [];
  for (let v = Math.ceil(low / step) * step; v <= high + 1e-9 * step; v += step)
    values.push(Number(v.toPrecision(12)));
  return values;
}
function logTicks(low, high) {
  const values = [];
  for (let p = Math.floor(Math.log10(low)); 10 ** p <= high * 1.0001; p++)
    for (const m of [1, 2, 5])
      if (m * 10 ** p >= low * 0.999 && m * 10 ** p <= high * 1.0001) values.push(m * 10 ** p);
  return values.length > 2 ? values : ticks(low, high, 4);
}

const span = (values, pad) => {
  const low = Math.min(...values);
  const high = Math.max(...values);
  const room = (high - low || Math.abs(high) || 1) * pad;
  return [low - room, high + room];
};

// Quality against cost: grey points, the front in green, dense runs as black diamonds.
export function scatter(points, { name, role, metric, chosen, choose }) {
  const width = 620;
  const height = 300;
  const box = { left: 58, right: 14, top: 18, bottom: 32 };
  const values = points.value.flatMap((v, k) => [v, points.low[k] ?? v, points.high[k] ?? v]);
  const log = !points.relative;
  const x = log
    ? [Math.min(...points.cost) / 1.15, Math.max(...points.cost) * 1.15]
    : span(points.cost, 0.08);
  const { px, py, frame } = axes({
    x,
    y: span(values, 0.08),
    width,
    height,
    box,
    log,
    xLabel: points.relative ? "training FLOPs relative to dense (1 = dense)" : "training FLOPs",
    xUnit: log ? "FLOP" : "",
    yLabel: metric,
  });
  const order = points.cost
    .map((_, k) => k)
    .filter((k) => points.front[k])
    .sort((a, b) => points.cost[a] - points.cost[b]);
  const steps = order
    .map((k, n) =>
      n
        ? `H${px(points.cost[k])}V${py(points.value[k])}`
        : `M${px(points.cost[k])} ${py(points.value[k])}`,
    )
    .join("");
  const marks = points.cost.map((cost, k) => {
    const cell = points.cell[k];
    const dense = role[cell] === "baseline";
    const cx = px(cost);
    const cy = py(points.value[k]);
    const fill = dense ? "var(--ink)" : points.front[k] ? "#009E73" : "#9aa2aa";
    const picked = chosen.includes(cell);
    const bar =
      points.low[k] === null
        ? null
        : s("line", {
            x1: cx,
            x2: cx,
            y1: py(points.low[k]),
            y2: py(points.high[k]),
            stroke: fill,
            "stroke-width": 1,
          });
    const shape = dense
      ? s("path", { d: `M${cx} ${cy - 5}l5 5l-5 5l-5 -5z`, fill })
      : s("circle", {
          cx,
          cy,
          r: picked ? 5.5 : 3.6,
          fill,
          stroke: picked ? "var(--ink)" : "none",
        });
    const price = points.relative ? `${number(cost)} of dense` : quantity(cost, "FLOP");
    const half = halfWidth(points.low[k], points.high[k]);
    const description = `${arrows(name[cell])}: ${number(points.value[k], { half })} at ${price}`;
    return s(
      "g",
      { class: "point", "aria-label": description, ...opens(cell, choose) },
      bar,
      shape,
      s("title", {}, description),
    );
  });
  const placed = [];
  const labels = [...points.cost.keys()]
    .filter((k) => role[points.cell[k]] === "baseline")
    .slice(0, 1)
    .concat([...order].reverse())
    .map((k) => {
      const text = arrows(name[points.cell[k]]);
      const room = px(points.cost[k]) - 6 * text.length > box.left;
      const tx = px(points.cost[k]) + (room ? -6 : 6);
      const ty = py(points.value[k]) + 13;
      if (placed.some(([a, b]) => Math.abs(a - tx) < 58 && Math.abs(b - ty) < 13)) return null;
      placed.push([tx, ty]);
      const look = { anchor: room ? "end" : "start", class: "halo", "pointer-events": "none" };
      return label(tx, ty, text, { size: 10.5, ...look });
    });
  return s(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, width },
    frame,
    s("path", { d: steps, fill: "none", stroke: "#009E73" }),
    marks,
    labels,
  );
}

// Curves over what training took; each {x, value, colour, dashed}, with marks where points are few.
export function lines(curves, { metric, zero = false, over = "training step", marks = false }) {
  const width = 330;
  const height = 190;
  const box = { left: 52, right: 16, top: 18, bottom: 30 };
  const shown = curves.filter((c) => c.x.length > 0);
  if (!shown.length) return null;
  const values = shown.flatMap((c) => c.value).filter(has);
  const y = span(zero ? [...values, 0] : values, 0.05);
  const x = [0, Math.max(...shown.flatMap((c) => c.x))];
  const { px, py, frame } = axes({ x, y, width, height, box, xLabel: over, yLabel: metric });
  const paths = shown.map((c) => {
    let pen = "M";
    const d = c.x
      .map((x, k) => {
        if (c.value[k] === null) {
          pen = "M";
          return "";
        }
        const p = `${pen}${px(x).toFixed(1)} ${py(c.value[k]).toFixed(1)}`;
        pen = "L";
        return p;
      })
      .join("");
    return s("path", {
      d,
      fill: "none",
      stroke: c.colour,
      "stroke-width": 1.5,
      "stroke-dasharray": c.dashed ? "5 3" : null,
      "stroke-linejoin": "round",
    });
  });
  const dots = marks
    ? shown.flatMap((c) =>
        c.x.map((x, k) =>
          has(c.value[k])
            ? s(
                "circle",
                { cx: px(x), cy: py(c.value[k]), r: 2.6, fill: c.colour },
                s("title", {}, `${number(c.value[k])} at ${number(x)}`),
              )
            : null,
        ),
      )
    : null;
  const base = zero
    ? s("line", {
        x1: box.left,
        x2: width - box.right,
        y1: py(0),
        y2: py(0),
        stroke: "var(--ink)",
        "stroke-width": 0.8,
      })
    : null;
  return s("svg", { viewBox: `0 0 ${width} ${height}`, width: "100%" }, frame, base, paths, dots);
}

// A similarity matrix with the frames of its routes.
export function matrix(values, routes, [low, high], dashed = false) {
  const B = values.length;
  const side = 200 / B;
  const cells = values.flatMap((row, a) =>
    row.map((v, b) =>
      s(
        "rect",
        {
          x: 16 + b * side,
          y: a * side,
          width: side + 0.3,
          height: side + 0.3,
          fill: css(sequential((v - low) / (high - low || 1))),
        },
        s("title", {}, `${a}, ${b}: ${v}`),
      ),
    ),
  );
  const frames = routes.flatMap(([start, end]) =>
    ["#fff", "#000"].map((stroke, k) =>
      s("rect", {
        x: 16 + start * side,
        y: start * side,
        width: (end - start + 1) * side,
        height: (end - start + 1) * side,
        fill: "none",
        stroke,
        "stroke-width": k ? 1.4 : 3,
        "stroke-dasharray": dashed && k ? "4 3" : null,
      }),
    ),
  );
  const step = B > 16 ? 4 : 2;
  const names = values.map((_, k) =>
    k % step
      ? null
      : [
          label(12, (k + 0.5) * side + 3.5, k, { anchor: "end", size: 9.5 }),
          label(16 + (k + 0.5) * side, 212, k, { size: 9.5 }),
        ],
  );
  return s("svg", { viewBox: "0 0 220 216", width: "100%" }, cells, frames, names.flat());
}
