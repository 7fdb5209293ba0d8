// Curves of chosen cells over training: the loss, and what was measured at several steps.
import { arrows, choice, h, has, put, swatch } from "./dom.js";
import { lines } from "./lines.js";

// Return the exponential mean of a series; a value counts half after 3 entries, as in the figures.
function smoothed(series) {
  let sum = 0;
  let weight = 0;
  return series.map((v) => {
    sum = 0.79 * sum + v;
    weight = 0.79 * weight + 1;
    return sum / weight;
  });
}

export function curves(columns) {
  const drawn = columns.map((c) => ({
    x: c.run.curve.step,
    value: c.run.curve.loss,
    colour: c.colour,
    dashed: c.name === "dense",
  }));
  const loss = lines(drawn, { metric: "training loss" });
  if (!loss) return null;
  const compared = columns.filter((c) => c.oneLoss); // each with its own baseline, of its seed
  const gaps = compared.map((c) => {
    const dense = c.base.curve;
    const base = new Map(dense.step.map((step, k) => [step, dense.loss[k]]));
    const steps = c.run.curve.step
      .map((step, k) => [step, c.run.curve.loss[k]])
      .filter(([step, v]) => has(v) && has(base.get(step)));
    const value = smoothed(steps.map(([step, v]) => v - base.get(step)));
    return { x: steps.map(([step]) => step), value, colour: c.colour };
  });
  const gap = lines(gaps, { metric: "difference to dense, smoothed", zero: true });
  return h(
    "div",
    {},
    h("h3", {}, "Training loss ", legend(columns)),
    h("div", { class: "charts" }, loss, gap),
  );
}

const legend = (columns) =>
  columns.map((c) => h("span", {}, " ", swatch(c.colour), arrows(c.name), " "));

const SPENT = {
  step: "training steps",
  "cost/train_images": "training images",
  "cost/device_hours": "device-hours",
};
// What is chosen of curves over training; it stays when the panel is drawn anew.
const over = { metric: "", spent: "step" };

// Draw a metric that was measured at several steps, of all runs that have it.
export function stages(columns) {
  const measured = columns.filter((c) => c.run.stages);
  const named = [...measured].reverse().flatMap((c) => Object.keys(c.run.stages.metrics));
  const metrics = [...new Set(named)]; // those of a routed run first: gaps among them
  if (!metrics.length) return null;
  const spent = Object.keys(SPENT).filter((key) =>
    measured.some((c) => c.run.stages.spent[key]?.some(has)),
  );
  const drawn = h("div", { class: "charts stages" });
  const draw = () => {
    if (!metrics.includes(over.metric)) over.metric = metrics[0];
    if (!spent.includes(over.spent)) over.spent = "step";
    put(drawn, stageCharts(measured));
  };
  const choose = (key, values, text, label) => {
    const change = (value) => {
      over[key] = value;
      draw();
    };
    return choice(values, over[key], change, { text, "aria-label": label });
  };
  draw();
  return h(
    "div",
    {},
    h(
      "h3",
      {},
      choose("metric", metrics, (metric) => metric, "metric over training"),
      " over ",
      choose("spent", spent, (key) => SPENT[key], "what training took"),
      legend(measured),
    ),
    drawn,
  );
}

// The metric, and its difference to dense at the same steps; a gap is one already.
function stageCharts(measured) {
  const { metric, spent } = over;
  const shown = measured.filter((c) => c.run.stages.metrics[metric]);
  const curve = (c, value) => {
    const points = c.run.stages.spent.step
      .map((step, k) => [c.run.stages.spent[spent]?.[k], value(step, k)])
      .filter((point) => point.every(has));
    return { x: points.map(([x]) => x), value: points.map(([, v]) => v), colour: c.colour };
  };
  const own = (c) => (_, k) => c.run.stages.metrics[metric][k];
  const less = (c) => {
    const { spent, metrics } = c.base.stages;
    const base = new Map(spent.step.map((step, k) => [step, metrics[metric]?.[k]]));
    return (step, k) => {
      const value = own(c)(step, k);
      return has(value) && has(base.get(step)) ? value - base.get(step) : null;
    };
  };
  const gap = metric.startsWith("gap/");
  const values = shown.map((c) => ({ ...curve(c, own(c)), dashed: c.name === "dense" }));
  const gaps = shown.filter((c) => c.base?.stages).map((c) => curve(c, less(c)));
  const drawn = { over: SPENT[spent], marks: true };
  return [
    lines(values, { metric, zero: gap, ...drawn }),
    gap ? h("div", {}) : lines(gaps, { metric: "difference to dense", zero: true, ...drawn }),
  ];
}
