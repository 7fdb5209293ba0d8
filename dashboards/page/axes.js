// Parts that charts share: texts, and axes with their ticks.
import { s } from "./dom.js";
import { number, quantity } from "./numbers.js";

// Return a text at a place, in the middle of it unless `anchor` says otherwise.
export const label = (x, y, content, { anchor = "middle", size = 11, ...look } = {}) =>
  s("text", { x, y, "text-anchor": anchor, "font-size": size, ...look }, content);

export function axes({
  x,
  y,
  width,
  height,
  box,
  log = false,
  xLabel,
  yLabel,
  xUnit = "",
  yUnit = "",
  xTicks = null,
}) {
  const [x0, x1] = x;
  const [y0, y1] = y;
  const { left, top, right, bottom } = box;
  const f = log ? Math.log10 : (v) => v;
  const px = (v) => left + ((f(v) - f(x0)) / (f(x1) - f(x0) || 1)) * (width - left - right);
  const py = (v) => height - bottom - ((v - y0) / (y1 - y0 || 1)) * (height - top - bottom);
  const xs = xTicks ?? (log ? logTicks(x0, x1) : ticks(x0, x1, 5));
  const ys = ticks(y0, y1, 5);
  const line = (a, b, c, d) => s("line", { x1: a, y1: b, x2: c, y2: d, stroke: "var(--line)" });
  const frame = [
    ys.map((v) => [
      line(left, py(v), width - right, py(v)),
      label(left - 5, py(v) + 3.5, yUnit ? quantity(v, yUnit) : tick(v, ys), {
        anchor: "end",
        size: 10,
      }),
    ]),
    xs.map((v) =>
      label(
        px(v),
        height - bottom + 13,
        xUnit ? quantity(v, xUnit) : xTicks ? number(v, { digits: 12 }) : tick(v, xs),
        { size: 10 },
      ),
    ),
    label((left + width - right) / 2, height - 2, xLabel, { size: 10.5, class: "soft" }),
    label(left - 4, 9, yLabel, { anchor: "start", size: 10.5, class: "soft" }),
  ];
  return { px, py, frame };
}

// Return the text of a tick, with as many decimals as tell it from its neighbour.
const tick = (v, all) => {
  const step = all.length > 1 ? all[1] - all[0] : 1;
  if (Math.abs(v) >= 1e4) return number(v);
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

export const span = (values, pad) => {
  const low = Math.min(...values);
  const high = Math.max(...values);
  const room = (high - low || Math.abs(high) || 1) * pad;
  return [low - room, high + room];
};
