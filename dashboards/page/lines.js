// Curves over training, and similarity matrices.
import { axes, label, span } from "./axes.js";
import { css, sequential } from "./colours.js";
import { has, s } from "./dom.js";

// Curves over training steps; each {x, value, colour, dashed}.
export function lines(curves, { metric, zero = false }) {
  const width = 330;
  const height = 190;
  const box = { left: 52, right: 16, top: 18, bottom: 30 };
  const shown = curves.filter((c) => c.value.some(has));
  if (!shown.length) return null;
  const values = shown.flatMap((c) => c.value).filter(has);
  const y = span(zero ? [...values, 0] : values, 0.05);
  const x = [0, Math.max(...shown.flatMap((c) => c.x))];
  const { px, py, frame } = axes({
    x,
    y,
    width,
    height,
    box,
    xLabel: "training step",
    yLabel: metric,
  });
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
  return s("svg", { viewBox: `0 0 ${width} ${height}`, width: "100%" }, frame, base, paths);
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
