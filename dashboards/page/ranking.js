// The ranking as a table, which a click on a head sorts.
import { arrows, at, badge, h, put, redraw } from "./dom.js";
import { rove } from "./keys.js";
import { act, shown, state } from "./state.js";

const sorted = { by: "", way: 1 }; // the head that sorts, upwards or downwards
const words = new Intl.Collator(undefined, { numeric: true });

export function drawRanking() {
  const { cells, table } = state.view;
  put(at("ranking-title"), cells.meaning?.ranking ?? "Ranking");
  if (table.problem) {
    redraw(at("ranking"), h("p", { class: "hint" }, table.problem));
    return;
  }
  const keep = (row) => row.filter((_, k) => k === 0 || table.shown[k]);
  const rows = inOrder(table).map((n) => line(table.rows[n], table.cells[n]));
  const heads = h("tr", {}, keep(table.heads.map(head)));
  const head3 = h("thead", {}, heads);
  const drawn = h("table", {}, head3, h("tbody", {}, rows));
  const more = table.cells.length - table.rows.length;
  redraw(
    at("ranking"),
    h("p", { class: "hint" }, table.caption),
    h(
      "div",
      { class: "scroll", tabindex: 0, role: "region", "aria-label": "ranking" },
      rove(drawn),
    ),
    more > 0 ? h("p", { class: "hint" }, `${more} more rows`) : null,
  );

  function line(row, cell) {
    const chosen = shown().includes(cell);
    const parts = row.map((text, k) => {
      const name = table.heads[k];
      const content = k === 0 ? button(cell, text) : name === "state" ? status(text) : text;
      return h(k ? "td" : "th", { class: kind(k, text), scope: k ? null : "row" }, content);
    });
    const open = (event) => event.target.closest("button") ?? act.choose(cell, event.shiftKey);
    return h(
      "tr",
      { class: chosen ? "go chosen" : "go", onclick: open },
      parts[0],
      keep(parts).slice(1),
    );
  }
}

// Return the places of a table's rows in the order that was chosen; those without a value last.
function inOrder({ heads, rows, numbers }) {
  const places = [...rows.keys()];
  const k = heads.indexOf(sorted.by);
  if (k < 0) return places;
  const texts = numbers[k].every((value) => value === null);
  const value = (n) => (texts ? rows[n][k] : numbers[k][n]) ?? "";
  const less = (a, b) => (texts ? words.compare(a, b) : a - b);
  return places.sort(
    (a, b) =>
      (value(a) === "") - (value(b) === "") || sorted.way * less(value(a), value(b)) || a - b,
  );
}

// Return the class of a column's cells: numbers to the right, reasons with room.
const kind = (k, text) => {
  const { heads, numeric } = state.view.table;
  if (heads[k] === "state") return text.includes(": ") ? "said" : null;
  return numeric[k] && k ? "n" : null;
};

// Return the button that opens a row's cell: its rank, or its name where it has none.
function button(cell, rank) {
  const { short, name } = state.view.cells;
  const open = (event) => act.choose(cell, event.shiftKey || event.ctrlKey || event.metaKey);
  const pressed = String(shown().includes(cell));
  return h(
    "button",
    { "data-cell": cell, "aria-pressed": pressed, onclick: open },
    rank && `${rank} `,
    h("span", { title: arrows(name[cell]) }, arrows(short[cell])),
  );
}

function status(text) {
  const [name, ...reason] = text.split(": ");
  const why = reason.join(": ");
  return [badge(name), why ? h("span", { class: "why" }, ` ${why}`) : null];
}

// Return a column's head, which sorts by it: upwards, downwards, and as ranked again.
function head(text, k) {
  const order = sorted.by === text && (sorted.way > 0 ? "ascending" : "descending");
  const next = { ascending: [text, -1], descending: ["", 1] }[order] ?? [text, 1];
  const mark = { ascending: " \u25b4", descending: " \u25be" }[order] ?? "";
  const sort = () => {
    [sorted.by, sorted.way] = next;
    drawRanking();
  };
  return h(
    "th",
    {
      class: kind(k, ""),
      scope: "col",
      "aria-sort": order || "none",
      title: state.view.terms[text === "gap" ? "gap/heldout" : text],
    },
    h("button", { onclick: sort }, (k === 0 ? "rank, cell" : text) + mark),
  );
}
