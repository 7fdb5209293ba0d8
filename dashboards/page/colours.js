// Colours of charts: scales of values and differences, and the boxes of cells without a number.
import { has, s } from "./dom.js";

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

const mix = (a, b, t) => a.map((v, k) => Math.round(v + t * (b[k] - v)));
export const css = (rgb) => `rgb(${rgb.join(",")})`;
const FRAME = { stroke: "var(--frame)", "stroke-width": 0.8 }; // of a cell without a number
const VIRIDIS = [
  [68, 1, 84],
  [59, 82, 139],
  [33, 145, 140],
  [94, 201, 98],
  [253, 231, 37],
];
export function sequential(t) {
  const x = Math.min(0.9999, Math.max(0, t)) * 4;
  const k = Math.floor(x);
  return mix(VIRIDIS[k], VIRIDIS[k + 1], x - k);
}
// Black or white, whichever has more contrast on a colour (WCAG 2, 1.4.3).
export function inkOn(rgb) {
  const [r, g, b] = rgb.map((v) =>
    v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4,
  );
  const light = 0.2126 * r + 0.7152 * g + 0.0722 * b;
  return 1.05 / (light + 0.05) > (light + 0.05) / 0.05 ? "#fff" : "#000";
}

// Return the colour scale of a metric: better to worse or less to more for differences, and one
// sequential scale for values that are not differences.
export function scaleOf(meaning, values) {
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
