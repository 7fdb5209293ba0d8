// The page of a sweep: charts, selection in the address, sorting, filter, CSV, refresh.
"use strict";

const POLL = 3000; // milliseconds between two looks at a sweep under way
const page = document.body.dataset;
const main = document.querySelector("main");
const panels = new Map(); // number of a cell -> HTML of its details
let sorted = null; // [table, column, direction], kept through a refresh
let version = "";

const all = (selector, of = document) => [...of.querySelectorAll(selector)];
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Charts --------------------------------------------------------------------

function themed(layout) {
  const ink = colour("--ink");
  const line = colour("--line");
  const look = { ...layout, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)" };
  look.font = { color: ink, size: 12, family: "system-ui, sans-serif" };
  look.modebar = { bgcolor: "rgba(0,0,0,0)", color: colour("--soft"), activecolor: ink };
  look.hoverlabel = { bgcolor: colour("--wash"), font: { color: ink }, align: "left" };
  for (const name of Object.keys(look).filter((key) => /^[xy]axis\d*$/.test(key))) {
    look[name] = { gridcolor: line, zerolinecolor: ink, linecolor: line, ...look[name] };
  }
  look.shapes = (look.shapes || []).map((shape) => ({
    ...shape,
    line: { color: colour("--frame"), ...shape.line },
  }));
  return look;
}

function draw(plot) {
  const { data, layout } = JSON.parse(plot.querySelector("script").textContent);
  for (const trace of data) {
    const dark = trace.line && trace.line.dash === "dash" && !trace.line.color;
    if (dark) trace.line.color = colour("--ink");
    const cell = trace.texttemplate && (plot.clientWidth - 170) / trace.x.length; // pixels
    if (cell) trace.textfont = { size: Math.min(11, cell / 3.2) };
  }
  const canvas = plot.querySelector("div") || plot.appendChild(document.createElement("div"));
  const modeBarButtons = [["toImage", "zoom2d", "pan2d", "resetScale2d"]];
  const options = { responsive: true, displaylogo: false, modeBarButtons };
  Plotly.react(canvas, data, themed(layout), options).then(() => {
    canvas.removeAllListeners("plotly_click");
    canvas.on("plotly_click", (event) => {
      const cell = event.points.map((p) => p.customdata).find((n) => Number.isInteger(n));
      if (cell !== undefined) select(cell, event.event.shiftKey);
    });
  });
}

function drawAll(of = document) {
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries.filter((e) => e.isIntersecting)) {
      seen.unobserve(entry.target);
      draw(entry.target);
    }
  }, { rootMargin: "600px" });
  for (const plot of all(".plot", of)) seen.observe(plot);
}

function show(question) {
  for (const button of all("[data-show]")) {
    button.setAttribute("aria-pressed", String(button.dataset.show === question));
  }
  for (const card of all("#map .chart")) {
    card.hidden = card.dataset.question !== "" && card.dataset.question !== question;
  }
}

// Selection -----------------------------------------------------------------

const chosen = () => new URLSearchParams(location.hash.slice(1)).getAll("cell").map(Number);

function select(cell, beside) {
  const others = beside ? chosen().filter((n) => n !== cell).slice(-1) : [];
  const cells = [...others, cell].map((n) => `cell=${n}`);
  history.replaceState(null, "", `#${cells.join("&")}`);
  showSelected();
}

async function details(cell) {
  if (page.live) {
    const answer = await fetch(`${page.live}/cells/${cell}`);
    return answer.ok ? answer.text() : `<p class="warn">cell ${cell} cannot be read</p>`;
  }
  const held = document.querySelector(`template[data-panel="${cell}"]`);
  const why = "Only dense and the best cells have their details in this file;";
  return held ? held.innerHTML : `<p class="note">${why} <code>tread-lab dashboard</code> has all.</p>`;
}

async function showSelected() {
  const cells = chosen().length ? chosen() : page.best === "" ? [] : [Number(page.best)];
  for (const row of all("[data-cell]")) {
    row.classList.toggle("selected", cells.includes(Number(row.dataset.cell)));
  }
  const place = document.querySelector("#panels");
  const html = (await Promise.all(cells.map(details))).join("");
  if (!place || panels.get("shown") === html) return;
  panels.set("shown", html);
  place.innerHTML = html;
  drawAll(place);
}

// Tables --------------------------------------------------------------------

function number(cell) { // `8.5 TFLOP` is 8.5e12; NaN of words
  const text = cell.textContent.replaceAll("−", "-").replaceAll(",", "");
  const [, digits, prefix] = /^([+-]?[\d.e-]*) ?([kMGTPE]?)/.exec(text);
  return cell.matches(".n") ? parseFloat(digits) * 1000 ** "_kMGTPE".indexOf(prefix || "_") : NaN;
}

function sort(table, column, direction) {
  const body = table.tBodies[0];
  const compare = (a, b) => {
    const [x, y] = [a, b].map((row) => number(row.cells[column]));
    const words = a.cells[column].textContent.localeCompare(b.cells[column].textContent);
    if (Number.isNaN(x) !== Number.isNaN(y)) return Number.isNaN(x) ? 1 : -1;
    return (Number.isNaN(x) ? words : x - y) * direction;
  };
  body.append(...[...body.rows].sort(compare));
  for (const head of all("th", table)) head.removeAttribute("aria-sort");
  const order = direction > 0 ? "ascending" : "descending";
  table.tHead.rows[0].cells[column].setAttribute("aria-sort", order);
  sorted = [table.id, column, direction];
}

function filter(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  for (const row of all("#table-ranking tbody tr")) {
    const held = row.textContent.toLowerCase();
    row.hidden = !words.every((word) => held.includes(word));
  }
}

function save(table) {
  const quote = (cell) => `"${cell.textContent.trim().replaceAll('"', '""')}"`;
  const rows = all("tr", table).filter((row) => !row.hidden);
  const text = rows.map((row) => [...row.cells].map(quote).join(",")).join("\r\n");
  const link = document.createElement("a");
  link.href = `data:text/csv;charset=utf-8,${encodeURIComponent(text)}`;
  link.download = `${document.title}.csv`;
  link.click();
}

// Events --------------------------------------------------------------------

document.addEventListener("click", (event) => {
  const { target } = event;
  if (target.closest("summary, a, pre")) return;
  const head = target.closest("th");
  const row = target.closest("[data-cell]");
  if (target.dataset.show) show(target.dataset.show);
  else if (target.dataset.csv) save(document.getElementById(target.dataset.csv));
  else if (head && head.closest("table[id]")) {
    const up = head.getAttribute("aria-sort") === "ascending";
    sort(head.closest("table"), head.cellIndex, up ? -1 : 1);
  } else if (row) {
    if (event.shiftKey) getSelection().removeAllRanges();
    select(Number(row.dataset.cell), event.shiftKey);
  }
});

document.addEventListener("input", (event) => {
  if (event.target.type === "search") filter(event.target.value);
});

document.addEventListener("keydown", (event) => {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const inTable = document.activeElement.closest("#ranking .scroll");
  if (!step || !inTable) return;
  event.preventDefault();
  const rows = all("tr[data-cell]", inTable).filter((row) => !row.hidden);
  const at = rows.findIndex((row) => row.classList.contains("selected"));
  const next = rows[Math.max(0, Math.min(rows.length - 1, at + step))];
  if (!next) return;
  next.focus();
  select(Number(next.dataset.cell), event.shiftKey);
});

addEventListener("hashchange", showSelected);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const plot of all(".plot").filter((p) => p.querySelector("div"))) draw(plot);
});

// Refresh -------------------------------------------------------------------

async function refresh() {
  const answer = await fetch(`${page.live}/progress`);
  if (!answer.ok) return;
  const [was, now] = [version, answer.headers.get("ETag")];
  version = now;
  if (was === "" || was === now) {
    document.querySelector("#progress").outerHTML = await answer.text();
    return;
  }
  const html = await fetch(`${page.live}/main`).then((whole) => whole.text());
  const open = all("details").map((each) => each.open);
  const field = document.querySelector("input[type=search]");
  const [typed, focused] = [field ? field.value : "", document.activeElement === field];
  const pressed = document.querySelector("[aria-pressed=true]");
  panels.clear();
  main.innerHTML = html;
  all("details").forEach((each, k) => { each.open = open[k] || false; });
  const renewed = document.querySelector("input[type=search]");
  if (renewed) {
    renewed.value = typed;
    filter(typed);
    if (focused) renewed.focus();
  }
  if (sorted && document.getElementById(sorted[0])) {
    sort(document.getElementById(sorted[0]), sorted[1], sorted[2]);
  }
  start(pressed ? pressed.dataset.show : "");
}

function start(question) {
  const first = document.querySelector("[data-show]");
  show(question || (first ? first.dataset.show : ""));
  drawAll(main);
  showSelected();
}

start("");
if (page.live) {
  refresh();
  setInterval(() => document.hidden || refresh().catch(() => {}), POLL);
}
