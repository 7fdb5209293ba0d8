// Curves of chosen cells over training: the loss, and its difference to dense.
import { arrows, h, has, swatch } from "./dom.js";
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
