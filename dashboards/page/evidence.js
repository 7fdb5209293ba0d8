// What chosen cells left behind: samples, similarity of blocks, and what their specs differ in.
import { arrows, choice, h, put, table } from "./dom.js";
import { matrix } from "./lines.js";
import { number } from "./numbers.js";

export function samples(columns) {
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

export function similarity(columns) {
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

export function differences(details, names) {
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

export function more(detail, name) {
  return h(
    "details",
    {},
    h("summary", {}, `spec of ${arrows(name)}`),
    h("p", { class: "hint" }, h("code", {}, detail.run.folder)),
    h("pre", { class: "spec" }, detail.run.spec),
  );
}
