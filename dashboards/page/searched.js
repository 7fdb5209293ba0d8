// A search: how far it is, the best so far over its trials, what each axis decides, and all trials.
import { axes, label, span } from "./axes.js";
import { arrows, at, h, has, redraw, s } from "./dom.js";
import { opens, rove } from "./keys.js";
import { number } from "./numbers.js";
import { act, shown, state } from "./state.js";

export function drawSearch() {
  const { search, cells } = state.view;
  at("search-card").hidden = !search;
  if (!search) return;
  const tried = search.cells.length;
  const open = search.cells.filter((k) =>
    ["running", "measuring", "pending"].includes(cells.state[k]),
  );
  const now = open.map((k) => arrows(cells.short[k])).join(", ");
  const space = cells.search?.cells;
  redraw(
    at("searched"),
    h(
      "p",
      {},
      `${tried} of ${search.trials} trials`,
      space ? ` of ${space} cells` : "",
      `, chosen by ${search.sampler} for ${search.objective}`,
      now ? `; at work: ${now}` : "",
    ),
    h("progress", { max: search.trials, value: tried, "aria-label": "trials of the search" }),
    h("div", { class: "charts" }, overTrials(search, cells), decided(search)),
    parallel(search, cells),
  );
}

// Every trial in order, and the best of those before it as a line of steps.
function overTrials({ cells: order, values, texts, best, title }, cells) {
  if (values.filter(has).length < 2) return null;
  const size = { width: 420, height: 220, box: { left: 56, right: 14, top: 20, bottom: 32 } };
  const x = [0.5, order.length + 0.5];
  const y = span(values.filter(has), 0.08);
  const words = { xLabel: "trial of the search", yLabel: title };
  const { px, py, frame } = axes({ ...size, x, y, ...words });
  let least = null;
  const steps = best.map((value, k) => {
    least = value ?? least;
    if (!has(least)) return "";
    return k && has(best[k - 1]) ? `H${px(k + 1)}V${py(least)}` : `M${px(k + 1)} ${py(least)}`;
  });
  const points = order.map((cell, k) => {
    const chosen = shown().includes(cell) ? " chosen" : "";
    const [cx, cy] = [
      px(k + 1),
      has(values[k]) ? py(values[k]) : size.height - size.box.bottom - 5,
    ];
    const result = has(values[k]) ? texts[k] : cells.state[cell];
    const name = arrows(cells.short[cell]);
    const mark = has(values[k])
      ? s("circle", { cx, cy, r: 4, class: values[k] === best[k] ? "mean" : "trial" })
      : label(cx, cy, "\u00d7", { size: 11 });
    return s(
      "g",
      {
        class: `point${chosen}`,
        "aria-label": `${name}, trial ${k + 1}: ${result}`,
        ...opens(cell, act.choose),
      },
      s("circle", { cx, cy, r: 12, class: "reach" }),
      mark,
      label(Math.min(Math.max(cx, 90), 340), cy - 8, name, { size: 10, class: "name halo" }),
    );
  });
  const look = { viewBox: `0 0 ${size.width} ${size.height}`, width: "100%", role: "group" };
  const line = s("path", { d: steps.join(""), class: "mean-line" });
  return h(
    "figure",
    {},
    h("figcaption", {}, "Every trial in order; the line is the best so far"),
    rove(s("svg", { ...look, "aria-label": "trials of the search" }, frame, line, points)),
  );
}

// Bars of what each axis decides.
function decided({ importance, assumes }) {
  const named = Object.entries(importance ?? {});
  if (!named.length) return null;
  const bars = named.map(([axis, share], k) => [
    label(104, 18 + 26 * k, axis, { anchor: "end", size: 11 }),
    s("rect", {
      x: 110,
      y: 8 + 26 * k,
      width: Math.max(1, 230 * share),
      height: 14,
      rx: 2,
      class: "bar",
    }),
    label(116 + 230 * share, 19 + 26 * k, `${Math.round(100 * share)}%`, {
      anchor: "start",
      size: 10.5,
    }),
  ]);
  const text = named.map(([axis, share]) => `${axis} ${Math.round(100 * share)}%`).join(", ");
  const size = { viewBox: `0 0 400 ${26 * named.length + 6}`, width: "100%" };
  return h(
    "figure",
    {},
    h("figcaption", {}, "What each axis decides"),
    s("svg", { ...size, role: "img", "aria-label": text }, bars),
    h("p", { class: "hint" }, assumes),
  );
}

// Parallel coordinates: a line for each measured trial through its value on every axis.
function parallel({ cells: order, values, texts, best, objective }, cells) {
  const trials = order.map((cell, k) => ({ cell, value: values[k], text: texts[k] }));
  const measured = trials.filter((t) => has(t.value));
  const { dimensions } = cells;
  if (measured.length < 2 || dimensions.length < 2) return null;
  const [width, height, top, bottom] = [700, 240, 26, 30];
  const x = (k) => 60 + (k * (width - 150)) / dimensions.length;
  const low = Math.min(...measured.map((t) => t.value));
  const room = Math.max(...measured.map((t) => t.value)) - low || 1;
  const y = (share) => height - bottom - share * (height - top - bottom);
  const place = (d, k) => (d.values.length > 1 ? k / (d.values.length - 1) : 0.5);
  const columns = dimensions.map((d, k) => [
    s("line", { x1: x(k), x2: x(k), y1: y(0), y2: y(1), class: "axis" }),
    label(x(k), 14, d.label, { size: 11, class: "soft" }),
    d.values.map((v, n) =>
      label(x(k) - 6, y(place(d, n)) + 3.5, arrows(String(v)), {
        anchor: "end",
        size: 10,
        class: "halo",
      }),
    ),
  ]);
  const last = dimensions.length;
  const result = (share) => number(low + share * room);
  columns.push([
    s("line", { x1: x(last), x2: x(last), y1: y(0), y2: y(1), class: "axis" }),
    label(x(last), 14, objective, { size: 11, class: "soft" }),
    [0, 0.5, 1].map((t) =>
      label(x(last) + 6, y(t) + 3.5, result(t), { anchor: "start", size: 10 }),
    ),
  ]);
  const reached = best.filter(has).at(-1);
  const away = ({ value }) => Math.abs(value - reached);
  const worst = [...measured].sort((a, b) => away(b) - away(a));
  const lines = worst.map(({ cell, value, text }, k) => {
    const spots = dimensions.map((d, n) => [x(n), y(place(d, cells.at[cell][n]))]);
    spots.push([x(last), y((value - low) / room)]);
    const near = k / Math.max(1, worst.length - 1);
    const chosen = shown().includes(cell) ? " chosen" : "";
    const name = `${arrows(cells.short[cell])}: ${text}`;
    const path = s("path", { d: `M${spots.map((p) => p.join(" ")).join("L")}`, class: "thread" });
    path.style.opacity = 0.25 + 0.75 * near ** 2;
    return s(
      "g",
      { class: `point${chosen}`, onclick: (e) => act.choose(cell, e.shiftKey) },
      path,
      s("title", {}, name),
    );
  });
  return h(
    "figure",
    { class: "parallel", tabindex: 0, role: "region", "aria-label": "trials on all axes" },
    h(
      "figcaption",
      {},
      "Every measured trial through its value on each axis; the darker, the better",
    ),
    s(
      "svg",
      { viewBox: `0 0 ${width} ${height}`, width, role: "img", "aria-label": "trials on all axes" },
      lines,
      columns,
    ),
  );
}
