// The panel that shows one or several cells beside their dense baseline.
import { COLOURS } from "./colours.js";
import { arrows, badge, choice, h, put, swatch, table } from "./dom.js";
import { differences, more, samples, similarity } from "./evidence.js";
import { ending } from "./failures.js";
import { state } from "./state.js";
import { curves } from "./training.js";

export function showPanel(panel, details, names, { remove, seed }) {
  if (!details.length) {
    put(
      panel,
      h(
        "p",
        { class: "empty" },
        state.view.version
          ? "No cell has a result yet. Choose one to see its curves beside its dense baseline."
          : "The records are being read.",
      ),
    );
    return;
  }
  const columns = [];
  const baseline = details.find((d) => d.baseline);
  if (baseline) columns.push({ name: "dense", run: baseline.baseline, colour: COLOURS[0] });
  for (const [k, d] of details.entries()) {
    const colour = d.role === "baseline" ? COLOURS[0] : COLOURS[1 + (k % 4)];
    columns.push({ name: names[k], run: d.run, base: d.baseline, oneLoss: d.one_loss, colour });
  }
  put(
    panel,
    details.map((d, k) =>
      head(d, names[k], details.length > 1 ? COLOURS[1 + (k % 4)] : null, remove, seed),
    ),
    numbers(details, names),
    curves(columns),
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
      remove
        ? h("button", { onclick: () => remove(detail.number) }, "close", " ", hidden(name))
        : h(
            "span",
            { class: "hint" },
            "the best trial of the ranking; choose another cell to see it here",
          ),
      detail.seeds.length > 1 ? overSeeds(detail.number) : null,
    ),
    detail.reason ? h("p", { class: "reason" }, detail.reason) : null,
    ending(detail),
  );
}

// Return what the ranking says of a cell with several seeds: the panel shows one of them.
function overSeeds(cell) {
  const { cells, rows, heads } = state.view.table;
  const gap = rows?.[cells.indexOf(cell)]?.[heads.indexOf("gap")];
  if (!gap) return null;
  return h("p", { class: "mean-of-seeds" }, "gap over all seeds: ", h("strong", {}, gap));
}

const hidden = (text) => h("span", { class: "unseen" }, arrows(text));

const busy = (measured) => (measured.disturbed ? " (disturbed)" : "");

function numbers(details, names) {
  const metrics = [...new Set(details.flatMap((d) => d.metrics.map((m) => m.metric)))];
  if (!metrics.length) return null;
  const find = (d, metric) => d.metrics.find((m) => m.metric === metric);
  const one = details.length === 1;
  const overs = [...new Set(details[0].metrics.map((m) => m.over).filter(Boolean))];
  const unlike = overs.length > 1; // else one line below the table says it
  const heads = one ? ["", "dense", "this", "difference"] : ["", "dense", ...names.map(arrows)];
  if (one && unlike) heads.push("\u00b1: 95% over");
  const said = (text) => h("td", { class: "n" }, text);
  const rows = metrics.map((metric) => {
    const all = details.map((d) => find(d, metric));
    const m = all.find(Boolean);
    const gap = m.compared === "gap";
    const value = (one) => (one ? one.texts.value + busy(one) : "");
    const dense = new Set(all.filter(Boolean).map((one) => one.texts.dense)); // of each baseline
    const start = [
      h("td", { title: state.view.terms[metric] }, metric),
      said(gap ? "" : [...dense].join(" / ")),
    ];
    if (!one) return h("tr", {}, start, all.map(value).map(said));
    const good =
      !m.delta || m.nature !== "quality" ? "" : m.sign * m.delta < 0 ? "better" : "worse";
    const change = h("td", { class: "n", "data-good": good }, m.texts.delta);
    if (good) change.style.color = good === "better" ? "var(--blue)" : "var(--worse)";
    return h("tr", {}, start, said(gap ? "" : value(m)), change, unlike ? said(m.over) : null);
  });
  const disturbed = details.some((d) => d.metrics.some((m) => m.disturbed));
  return h(
    "div",
    { class: "numbers", tabindex: 0, role: "region", "aria-label": "numbers" },
    table(
      heads.map((text, k) => [text, k && "n"]),
      rows,
    ),
    overs.length === 1 ? h("p", { class: "hint" }, `\u00b1: 95% interval over ${overs[0]}`) : null,
    disturbed ? h("p", { class: "hint" }, `disturbed: ${state.view.terms.disturbed}`) : null,
  );
}
