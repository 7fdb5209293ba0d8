// Quality against cost, with the Pareto front.
import { axes, label, span } from "./axes.js";
import { arrows, s } from "./dom.js";
import { opens, rove } from "./keys.js";

// Quality against cost: grey points, the front in green, dense runs as black diamonds.
export function scatter(points, { cells, metric, chosen, choose, most }) {
  const { name, short, role } = cells;
  const width = Math.min(620, most);
  const height = 300;
  const box = { left: 58, right: 14, top: 18, bottom: 32 };
  const values = points.value.flatMap((v, k) => [v, points.low[k] ?? v, points.high[k] ?? v]);
  const log = !points.relative && Math.min(...points.cost) > 0;
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
    xLabel: points.heading,
    xUnit: points.relative ? "" : "FLOP",
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
  const taken = [];
  const written = new Set();
  const spot = (k, beside) => {
    const length = 6 * short[points.cell[k]].length;
    const room = px(points.cost[k]) - length > box.left;
    const left = px(points.cost[k]) + (room ? -6 - length : 6);
    const top = py(points.value[k]) + beside;
    return { left, right: left + length, top, room };
  };
  const dense = [...points.cost.keys()].filter((k) => role[points.cell[k]] === "baseline");
  for (const k of [...dense.slice(0, 1), ...[...order].reverse()]) {
    const here = spot(k, 13);
    const hits = ({ left, right, top }) =>
      here.left < right && left < here.right && Math.abs(here.top - top) < 12;
    if (taken.some(hits)) continue;
    taken.push(here);
    written.add(k);
  }
  // Every point has its name: where there is room beside it, else while it is pointed at.
  const named = (k) => {
    const { left, right, top, room } = spot(k, 13);
    const look = { anchor: room ? "end" : "start", "pointer-events": "none" };
    const kind = written.has(k) ? "name halo always" : "name halo";
    const text = arrows(short[points.cell[k]]);
    return label(room ? right : left, top, text, { size: 10.5, class: kind, ...look });
  };
  const marks = points.cost.map((cost, k) => {
    const cell = points.cell[k];
    const dense = role[cell] === "baseline";
    const cx = px(cost);
    const cy = py(points.value[k]);
    const fill = dense ? "var(--ink)" : points.front[k] ? "var(--mark)" : "var(--faint)";
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
    const result = `${points.texts[k]} at ${points.prices[k]}`;
    return s(
      "g",
      {
        class: `point${picked ? " chosen" : ""}`,
        "aria-label": `${arrows(short[cell])}, ${arrows(name[cell])}: ${result}`,
        ...opens(cell, choose),
      },
      s("circle", { cx, cy, r: 12, class: "reach" }),
      bar,
      shape,
      named(k),
    );
  });
  return rove(
    s(
      "svg",
      {
        viewBox: `0 0 ${width} ${height}`,
        width,
        role: "group",
        "aria-label": "quality against cost",
      },
      frame,
      s("path", { d: steps, fill: "none", stroke: "var(--mark)" }),
      marks,
    ),
  );
}
