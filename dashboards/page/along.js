// A metric along the one axis of a sweep: means with their intervals, every seed, and dense.
import { axes, label, span } from "./axes.js";
import { arrows, has, s } from "./dom.js";
import { opens, rove } from "./keys.js";
import { told } from "./numbers.js";

const BOX = { height: 260, box: { left: 62, right: 22, top: 20, bottom: 34 } };

export function along({ cells, columns, places, chosen }, choose, width) {
  const SIZE = { ...BOX, width };
  const measured = places.filter((p) => has(cells.value?.[p.cell]));
  if (measured.length < 2) return null;
  const { meaning, seeds } = cells;
  const { values } = columns;
  const numeric = values.every((v) => typeof v === "number");
  const log = numeric && values[0] > 0 && values.at(-1) / values[0] >= 20;
  const position = (place) => (numeric ? values[place.column] : place.column);
  const ends = measured.flatMap(({ cell }) => [
    cells.low[cell] ?? cells.value[cell],
    cells.high[cell] ?? cells.value[cell],
    ...(seeds?.[cell] ?? []).filter(has),
  ]);
  const differs = meaning.shows !== "value";
  const at = measured.map(position);
  const x = log ? [Math.min(...at) / 1.2, Math.max(...at) * 1.2] : span(at, 0.06);
  const y = span(differs ? [...ends, 0] : ends, 0.06);
  const words = { xLabel: columns.label, yLabel: meaning.title, yUnit: meaning.unit };
  const few = log ? null : [...new Set(at)];
  const ticked = { xTicks: numeric ? few : [] };
  const { px, py, frame } = axes({ ...SIZE, x, y, log, ...words, ...ticked });
  const { left, right, bottom } = SIZE.box;
  const names = numeric
    ? null
    : measured.map((p) =>
        label(px(position(p)), SIZE.height - bottom + 13, arrows(String(values[p.column])), {
          size: 10,
        }),
      );
  const zero = s("line", {
    x1: left,
    x2: SIZE.width - right,
    y1: py(0),
    y2: py(0),
    class: "zero-line",
  });
  const sorted = [...measured].sort((a, b) => position(a) - position(b));
  const path = sorted.map((p) => `${px(position(p))} ${py(cells.value[p.cell])}`).join("L");
  const points = sorted.map((p) => point(p.cell, px(position(p))));

  function point(cell, cx) {
    const [low, high] = [cells.low[cell], cells.high[cell]];
    const picked = chosen.includes(cell) ? " chosen" : "";
    const spread = (seeds?.[cell] ?? []).filter(has);
    return s(
      "g",
      {
        class: `point${picked}`,
        "aria-label": `${arrows(cells.name[cell])}: ${told(cells, cell)}`,
        ...opens(cell, choose),
      },
      s("circle", { cx, cy: py(cells.value[cell]), r: 12, class: "reach" }),
      spread.length > 1
        ? spread.map((v) => s("circle", { cx: cx + 7, cy: py(v), r: 2, class: "seed" }))
        : null,
      has(low) ? s("line", { x1: cx, x2: cx, y1: py(low), y2: py(high), class: "interval" }) : null,
      s("circle", { cx, cy: py(cells.value[cell]), r: 4.5, class: "mean" }),
      label(cx, py(cells.value[cell]) - 11, cells.text[cell].split(" \u00b1 ")[0], {
        size: 10.5,
        class: "name halo",
      }),
    );
  }
  const size = { viewBox: `0 0 ${SIZE.width} ${SIZE.height}`, width: SIZE.width };
  const described = { role: "group", "aria-label": `${meaning.title}, along ${columns.label}` };
  return rove(
    s(
      "svg",
      { ...size, ...described, class: "along" },
      frame,
      differs ? zero : null,
      s("path", { d: `M${path}`, class: "mean-line" }),
      points,
      names,
    ),
  );
}
