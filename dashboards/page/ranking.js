// The ranking as a table: the server orders and filters it, the page chooses columns.
import { arrows, at, badge, h, put, redraw, STATES, table } from "./dom.js";
import { rove } from "./keys.js";
import { act, shown, state } from "./state.js";

const WAIT = 250; // milliseconds after the last key before a filter is asked for
const PICK = ["metric", "question", "where", "sort", "columns"];
const seen = () => {
  const { keys, shown: own } = state.table;
  const named = (key) => `,${state.columns},`.includes(`,${key},`); // a name may hold commas
  return keys.map((key, k) => k === 0 || (state.columns ? named(key) : own[k]));
};

export const picked = () => Object.fromEntries(PICK.map((name) => [name, state[name]]));

export function startRanking() {
  let waiting;
  at("where").addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => act.select({ where: at("where").value.trim() }), WAIT);
  });
}

// The differences between several sweeps, cell by cell.
export function drawBetween() {
  const { name, between } = state.view;
  at("between-card").hidden = !name.includes(",");
  if (at("between-card").hidden) return;
  const head = (text, k) => [text, between.numeric[k] ? "n" : ""];
  const line = (row) =>
    h(
      "tr",
      {},
      row.map((text, k) => h("td", { class: between.numeric[k] ? "n" : null }, text)),
    );
  redraw(
    at("between"),
    between
      ? h(
          "div",
          { class: "scroll", tabindex: 0, role: "region", "aria-label": "differences" },
          table(between.heads.map(head), between.rows.map(line)),
        )
      : h("p", { class: "hint" }, "No cell of another sweep can be paired with one of the first."),
  );
  const command = `tread-lab report ${name.replaceAll(",", " ")}`;
  put(at("between-report"), "One report of them: ", h("code", {}, command));
}

export function drawRanking() {
  const { table } = state;
  const { meaning } = state.view.cells;
  put(at("ranking-title"), meaning?.ranking ?? "Ranking");
  if (document.activeElement !== at("where")) at("where").value = state.where;
  at("where-problem").textContent = (state.where && table.problem) || "";
  at("where").setAttribute("aria-invalid", Boolean(state.where && table.problem));
  at("export").hidden = Boolean(table.problem);
  if (table.problem) {
    redraw(at("ranking"), state.where ? null : h("p", { class: "hint" }, table.problem));
    return;
  }
  const query = new URLSearchParams(Object.entries(picked()).filter(([, value]) => value));
  for (const kind of ["csv", "tex"])
    at(kind).href = `api/sweeps/${state.sweep}/table.${kind}?${query}`;
  const columns = seen();
  const keep = (row) => row.filter((_, k) => columns[k]);
  // A table that was asked for a moment later may have a cell that a search has added since.
  const known = (_, k) => table.cells[k] < state.view.cells.name.length;
  const cells = table.cells.filter(known);
  const rows = table.rows.filter(known).map((row, k) => line(row, cells[k]));
  const heads = h("tr", {}, keep(table.heads.map(head)));
  const head3 = h("thead", {}, heads);
  const drawn = h("table", {}, head3, h("tbody", {}, rows));
  const more = table.cells.length - table.rows.length;
  redraw(
    at("ranking"),
    h("p", { class: "hint" }, table.caption),
    chooser(columns),
    h(
      "div",
      { class: "scroll", tabindex: 0, role: "region", "aria-label": "ranking" },
      rove(drawn),
    ),
    more > 0 ? h("p", { class: "hint" }, `${more} more rows; filter to see them`) : null,
  );

  function line(row, cell) {
    const chosen = shown().includes(cell);
    const parts = row.map((text, k) => {
      const name = table.keys[k];
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

// Return the class of a column's cells: numbers to the right, reasons with room.
const kind = (k, text) => {
  if (state.table.keys[k] === "state") return text.includes(": ") ? "said" : null;
  return state.table.numeric[k] && k ? "n" : null;
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
  return [badge(name, STATES[name]?.[1]), why ? h("span", { class: "why" }, ` ${why}`) : null];
}

// Return a column's head, which sorts by it: upwards, downwards, and as ranked again.
function head(text, k) {
  const key = state.table.keys[k];
  const order = { [key]: "ascending", [`-${key}`]: "descending" }[state.sort];
  const next = { ascending: `-${key}`, descending: "" }[order] ?? key;
  const mark = { ascending: " \u25b4", descending: " \u25be" }[order] ?? "";
  const label = k === 0 ? "rank, cell" : text;
  return h(
    "th",
    {
      class: kind(k, ""),
      scope: "col",
      "aria-sort": order ?? "none",
      title: state.view.terms[key === "gap" ? "gap/heldout" : key],
    },
    h("button", { onclick: () => act.select({ sort: next }) }, label + mark),
  );
}

function chooser(columns) {
  const { keys, heads } = state.table;
  const change = (k, on) => {
    const named = keys.filter((_, n) => (n === k ? on : columns[n]));
    act.select({ columns: named.join(",") });
  };
  const boxes = keys.slice(1).map((_, n) => {
    const box = h("input", { type: "checkbox", onchange: (e) => change(n + 1, e.target.checked) });
    box.checked = columns[n + 1];
    return h("label", {}, box, heads[n + 1]);
  });
  const open = at("ranking").querySelector("details")?.open;
  return h("details", { class: "columns", open }, h("summary", {}, "columns"), h("div", {}, boxes));
}
