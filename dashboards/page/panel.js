// The panel that shows one or several cells beside their dense baseline.
import { COLOURS, lines, matrix } from "./charts.js";
import { arrows, badge, choice, h, halfWidth, has, number, put, quantity, table } from "./dom.js";

export function showPanel(panel, details, names, { remove, seed }) {
  if (!details.length) {
    put(
      panel,
      h(
        "p",
        { class: "empty" },
        "Click a cell to see its curves, samples, similarity and spec beside its dense baseline.",
      ),
    );
    return;
  }
  const columns = [];
  const baseline = details.find((d) => d.baseline);
  if (baseline) columns.push({ name: "dense", run: baseline.baseline, colour: COLOURS[0] });
  for (const [k, d] of details.entries()) {
    const colour = d.role === "baseline" ? COLOURS[0] : COLOURS[1 + (k % 4)];
    columns.push({ name: names[k], run: d.run, colour });
  }
  put(
    panel,
    details.map((d, k) =>
      head(d, names[k], details.length > 1 ? COLOURS[1 + (k % 4)] : null, remove, seed),
    ),
    numbers(details, names),
    curves(columns, details),
    stages(columns),
    samples(columns),
    similarity(columns),
    differences(details, names),
    details.map((d, k) => more(d, names[k])),
  );
}

function head(detail, name, colour, remove, seed) {
  const done = detail.states.filter((state) => state === "completed").length;
  const seedText = (v) => {
    const ended = detail.states[detail.seeds.indexOf(v)];
    return `seed ${v}${ended === "completed" ? "" : ` (${ended})`}`;
  };
  const seeds =
    detail.seeds.length > 1
      ? choice(detail.seeds, detail.seed, (v) => seed(detail.number, v), {
          text: seedText,
          "aria-label": "seed",
        })
      : h("span", { class: "hint" }, `seed ${detail.seed}`);
  return h(
    "div",
    {},
    h(
      "div",
      { class: "heads" },
      colour ? swatch(colour) : null,
      h("h2", {}, arrows(name)),
      badge(detail.state),
      seeds,
      detail.seeds.length > 1
        ? h("span", { class: "hint" }, `${done} of ${detail.seeds.length} seeds completed`)
        : null,
      h("button", { onclick: () => remove(detail.number), "aria-label": `close ${name}` }, "close"),
    ),
    detail.reason ? h("p", { class: "reason" }, detail.reason) : null,
    detail.run.traceback
      ? h("details", {}, h("summary", {}, "traceback"), h("pre", {}, detail.run.traceback))
      : null,
  );
}

const swatch = (colour) => {
  const dot = h("span", { class: "swatch" });
  dot.style.background = colour;
  return dot;
};

// Other work on the machine decided this number.
const busy = (measured) => (measured.disturbed ? " (disturbed)" : "");

function numbers(details, names) {
  const metrics = [...new Set(details.flatMap((d) => d.metrics.map((m) => m.metric)))];
  if (!metrics.length) return null;
  const find = (d, metric) => d.metrics.find((m) => m.metric === metric);
  const one = details.length === 1;
  const seeds = details[0].seeds.length;
  const heads = one
    ? ["", "dense", "this", "difference", `95% over images${seeds > 1 ? " of this seed" : ""}`]
    : ["", "dense", ...names.map(arrows)];
  const rows = metrics.map((metric) => {
    const all = details.map((d) => find(d, metric));
    const first = all.find(Boolean);
    const gap = first.compared === "gap";
    const own = { signed: gap };
    const dense = h(
      "td",
      { class: "n" },
      gap ? "" : quantity(first.dense, first.unit, { digits: 4 }),
    );
    if (one) {
      const m = first;
      const precision = { signed: true, half: halfWidth(m.low, m.high) };
      const good =
        !m.delta || m.nature !== "quality" ? "" : m.sign * m.delta < 0 ? "better" : "worse";
      const change = h(
        "td",
        { class: "n", "data-good": good },
        quantity(m.delta, m.unit, precision),
      );
      if (good) change.style.color = good === "better" ? "var(--blue)" : "var(--worse)";
      return h(
        "tr",
        {},
        h("td", {}, metric),
        dense,
        h("td", { class: "n" }, gap ? "" : quantity(m.value, m.unit, { digits: 4 }) + busy(m)),
        change,
        h(
          "td",
          { class: "n" },
          m.low === null ? "" : `${number(m.low, precision)} to ${number(m.high, precision)}`,
        ),
      );
    }
    return h(
      "tr",
      {},
      h("td", {}, metric),
      dense,
      all.map((m) =>
        h(
          "td",
          { class: "n" },
          m ? quantity(m.value, m.unit, { digits: 4, ...own }) + busy(m) : "",
        ),
      ),
    );
  });
  return h(
    "div",
    { class: "numbers" },
    table(
      heads.map((text, k) => [text, k && "n"]),
      rows,
    ),
  );
}

// Return the exponential mean of a series; a value counts half after 3 entries, as in the figures.
function smoothed(series) {
  let mean = series[0];
  return series.map((v) => {
    mean = 0.79 * mean + 0.21 * v;
    return mean;
  });
}

function curves(columns, details) {
  const drawn = columns.map((c) => ({
    x: c.run.curve.step,
    value: c.run.curve.loss,
    colour: c.colour,
    dashed: c.name === "dense",
  }));
  const loss = lines(drawn, { metric: "training loss" });
  if (!loss) return null;
  const dense = columns[0].run.curve;
  const base = new Map(dense.step.map((step, k) => [step, dense.loss[k]]));
  const gaps = columns.slice(1).map((c) => {
    const steps = c.run.curve.step
      .map((step, k) => [step, c.run.curve.loss[k]])
      .filter(([step, v]) => has(v) && has(base.get(step)));
    const value = smoothed(steps.map(([step, v]) => v - base.get(step)));
    return { x: steps.map(([step]) => step), value, colour: c.colour };
  });
  const gap = details.some((d) => d.baseline)
    ? lines(gaps, { metric: "difference to dense, smoothed", zero: true })
    : null;
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
function stages(columns) {
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
  const dense = measured.find((c) => c.name === "dense")?.run.stages;
  const base = new Map(dense?.spent.step.map((step, k) => [step, dense.metrics[metric]?.[k]]));
  const shown = measured.filter((c) => c.run.stages.metrics[metric]);
  const curve = (c, value) => {
    const points = c.run.stages.spent.step
      .map((step, k) => [c.run.stages.spent[spent]?.[k], value(step, k)])
      .filter((point) => point.every(has));
    return { x: points.map(([x]) => x), value: points.map(([, v]) => v), colour: c.colour };
  };
  const own = (c) => (_, k) => c.run.stages.metrics[metric][k];
  const less = (c) => (step, k) => {
    const value = c.run.stages.metrics[metric][k];
    return has(value) && has(base.get(step)) ? value - base.get(step) : null;
  };
  const gap = metric.startsWith("gap/");
  const values = shown.map((c) => ({ ...curve(c, own(c)), dashed: c.name === "dense" }));
  const gaps = shown.filter((c) => c.name !== "dense").map((c) => curve(c, less(c)));
  const drawn = { over: SPENT[spent], marks: true };
  return [
    lines(values, { metric, zero: gap, ...drawn }),
    gap ? h("div", {}) : lines(gaps, { metric: "difference to dense", zero: true, ...drawn }),
  ];
}

function samples(columns) {
  const having = (kind) =>
    columns.filter((c) => c.run.pictures.some((p) => p.drawn === kind)).length;
  const kinds = [...new Set(columns.flatMap((c) => c.run.pictures.map((p) => p.drawn)))].sort(
    (a, b) => having(b) - having(a),
  ); // what all have comes first
  if (!kinds.length) return null;
  const kind = kinds[0];
  const draw = (chosen) =>
    columns.map((c) => {
      const picture = c.run.pictures.find((p) => p.drawn === chosen);
      return h(
        "figure",
        {},
        h("figcaption", {}, arrows(c.name)),
        picture
          ? h("img", { src: picture.url, alt: `samples of ${c.name}, ${chosen}`, loading: "lazy" })
          : h("p", { class: "hint" }, "no samples"),
      );
    });
  const side = h("div", { class: "side samples" }, draw(kind));
  const drawn =
    kinds.length > 1
      ? choice(kinds, kind, (chosen) => put(side, draw(chosen)), {
          "aria-label": "how samples were drawn",
        })
      : kind;
  return h("div", {}, h("h3", {}, "Samples from equal seeds: ", drawn), side);
}

function similarity(columns) {
  const measured = columns.filter((c) => c.run.similarity);
  if (!measured.length) return null;
  const low = Math.floor(10 * Math.min(...measured.flatMap((c) => c.run.similarity.flat()))) / 10;
  const route = measured.find((c) => c.run.routes.length)?.run.routes ?? [];
  return h(
    "div",
    {},
    h("h3", {}, `Similarity of block outputs, ${number(low)} to 1`),
    h(
      "div",
      { class: "side similarity" },
      measured.map((c) =>
        h(
          "figure",
          {},
          h("figcaption", {}, arrows(c.name)),
          matrix(
            c.run.similarity,
            c.run.routes.length ? c.run.routes : route,
            [low, 1],
            !c.run.routes.length,
          ),
        ),
      ),
    ),
  );
}

function differences(details, names) {
  const fields = [...new Set(details.flatMap((d) => d.differences.map(([field]) => field)))];
  if (!fields.length) return null;
  const value = (d, field) => d.differences.find(([f]) => f === field);
  const rows = fields.map((field) =>
    h(
      "tr",
      {},
      h("td", {}, h("code", {}, field)),
      h("td", { class: "wide" }, arrows(details.map((d) => value(d, field)).find(Boolean)[1])),
      details.map((d) => h("td", { class: "wide" }, arrows(value(d, field)?.[2] ?? "as dense"))),
    ),
  );
  return h(
    "div",
    {},
    h("h3", {}, "What differs from the baseline"),
    table(["field", "dense", ...names.map(arrows)], rows, { class: "differences" }),
  );
}

function more(detail, name) {
  return h(
    "details",
    {},
    h("summary", {}, `spec of ${arrows(name)}`),
    h("p", { class: "hint" }, h("code", {}, detail.run.folder)),
    h("pre", { class: "spec" }, detail.run.spec),
  );
}
