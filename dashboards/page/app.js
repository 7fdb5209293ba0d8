// The page's state (sweep, metric, chosen cells): it polls the server and draws what has changed.
import {
  colourBar,
  hatchDefs,
  heatmap,
  holdsZero,
  opens,
  scatter,
  stateBox,
  untriedBox,
  zeroDot,
} from "./charts.js";
import {
  arrows,
  at,
  badge,
  choice,
  h,
  halfWidth,
  has,
  number,
  put,
  quantity,
  STATES,
  s,
  table,
  unitOf,
} from "./dom.js";
import { showPanel } from "./panel.js";

const MOST = 4;
const PAUSE = 2000;
const SLOW = 8000;
const NOT_SET = "as in the experiment"; // an axis that a cell does not set

// What is known and chosen of one sweep, before anything is.
const unopened = () => ({
  metric: "",
  version: 0,
  view: null,
  chosen: [],
  seeds: {},
  filters: {},
  fresh: new Set(),
});
const state = { sweep: null, requests: 0, ...unopened() };
let picked = false; // whether somebody chose the metric, which then stands in the address

// Return the server's JSON. An error in the answer is thrown with its own text; a request that gets
// no answer at all means that the server is gone.
const ask = async (path) => {
  const answer = await fetch(path).catch(() => {
    throw new Error("the server does not answer");
  });
  const tree = await answer
    .json()
    .catch(() => ({ error: `the server's answer broke off (${answer.status})` }));
  if (!answer.ok || tree.error) throw new Error(tree.error ?? answer.statusText);
  return tree;
};

async function start() {
  document.body.append(hatchDefs());
  readHash();
  at("sweep").addEventListener("change", (e) => open(e.target.value));
  at("metric").addEventListener("change", (e) => {
    state.metric = e.target.value;
    state.version = 0;
    picked = true;
    writeHash();
    refresh();
  });
  at("search").addEventListener("input", () => state.view && drawRanking());
  document.addEventListener("pointerdown", () => {
    pressed = true;
  });
  for (const end of ["pointerup", "pointercancel", "blur"])
    window.addEventListener(end, () =>
      setTimeout(() => {
        pressed = false;
      }, 50),
    );
  document.addEventListener(
    "mousedown",
    (e) => e.shiftKey && e.target.closest?.("[data-cell]") && e.preventDefault(),
  ); // else the click selects text
  window.addEventListener("hashchange", () => {
    const address = () => `${state.sweep} ${state.metric} ${state.chosen}`;
    const earlier = address();
    readHash();
    if (address() !== earlier) {
      state.version = 0;
      refresh();
      drawPanel();
    }
  });
  tick();
}

async function tick() {
  let pause = PAUSE;
  try {
    await listSweeps();
    await refresh();
    const busy = state.view && (state.view.running.length || state.view.version === 0);
    pause = busy ? PAUSE : state.view?.runs > 2000 ? SLOW : PAUSE;
    if (state.view?.version === 0) pause = 400;
    if (state.view?.problem) live("off", `the records cannot be read: ${state.view.problem}`);
    else if (lost) live("off", lost);
    else live("on", `records of ${clock(state.view?.age ?? 0)}`);
  } catch (error) {
    live("off", error.message);
  }
  setTimeout(tick, pause);
}

// Return the time of day that was so many seconds ago.
const clock = (age) => new Date(Date.now() - 1000 * age).toLocaleTimeString();

function live(kind, text) {
  at("live").className = kind;
  at("live").textContent = text;
}

async function listSweeps() {
  const sweeps = await ask("api/sweeps");
  const names = sweeps.map((sweep) => sweep.name);
  const select = at("sweep");
  const shown = [...select.options].map((option) => option.value);
  if (String(shown) !== String(names))
    put(
      select,
      sweeps.map((sweep) => h("option", { value: sweep.name }, `${sweep.name} (${sweep.trials})`)),
    );
  if (!names.includes(state.sweep)) state.sweep = names[0] ?? null;
  select.value = state.sweep;
}

function open(name) {
  Object.assign(state, { sweep: name, ...unopened() });
  picked = false;
  writeHash();
  refresh();
  drawPanel();
}

async function refresh() {
  if (!state.sweep) {
    put(
      at("question"),
      "No sweep has been planned in this lab yet; the first one is shown here when it is.",
    );
    return;
  }
  const request = ++state.requests;
  const query = new URLSearchParams({ metric: state.metric, version: state.version });
  const tree = await ask(`api/sweeps/${state.sweep}?${query}`);
  // A cell that is replaced between press and release would lose the click.
  while (pressed) await new Promise((resume) => setTimeout(resume, 30));
  if (request !== state.requests) return;
  if (tree.cells) {
    const earlier = state.view?.name === tree.name ? state.view.cells : null;
    const measured = (cells, k) => has(cells.value?.[k]);
    state.fresh = new Set(
      earlier && earlier.metric === tree.cells.metric
        ? tree.cells.name
            .map((_, k) => k)
            .filter((k) => measured(tree.cells, k) && !measured(earlier, k))
        : [],
    );
    const first = !state.view || state.view.version === 0;
    state.view = tree;
    state.version = tree.version;
    state.metric = tree.cells.metric ?? "";
    draw();
    if (
      first ||
      lost ||
      state.chosen.some((k) => state.fresh.has(k) || !["completed"].includes(tree.cells.state[k]))
    )
      drawPanel();
  } else {
    Object.assign(state.view, tree);
    drawProgress();
    drawRunning();
    if (lost || state.chosen.some((k) => state.view.cells.state[k] === "running")) drawPanel();
  }
}

function draw() {
  const view = state.view;
  document.title = `${view.name} \u2013 tread-lab`;
  put(at("question"), view.question);
  const options = view.metrics.map((metric) => h("option", { value: metric }, metric));
  if (String([...at("metric").options].map((o) => o.value)) !== String(view.metrics))
    put(at("metric"), options);
  at("metric").value = view.cells.metric ?? "";
  drawProgress();
  drawRunning();
  drawFilters();
  drawGrid();
  drawPareto();
  drawRanking();
  drawFailures();
}

function drawProgress() {
  const { counts, runs, time_left: left } = state.view;
  const order = Object.keys(STATES).filter((name) => counts[name]);
  const bar = at("progress");
  const kept = new Map([...bar.children].map((part) => [part.dataset.state, part]));
  put(
    bar,
    order.map((name) => {
      const part =
        kept.get(name) ?? h("span", { "data-state": name, class: name, title: STATES[name][1] });
      part.style.flexGrow = counts[name];
      return part;
    }),
  );
  const done = ["completed", "failed", "diverged", "stopped"].reduce(
    (sum, name) => sum + (counts[name] ?? 0),
    0,
  );
  bar.setAttribute("aria-label", `${done} of ${runs} runs have ended`);
  put(
    at("counts"),
    h("strong", { id: "done" }, `${done} of ${runs} runs`),
    order.map((name) =>
      h("span", {}, h("i", { class: name }), `${counts[name]} ${STATES[name][1]}`),
    ),
    left ? h("span", { id: "left" }, `about ${left} left`) : [],
  );
}

function drawRunning() {
  const { running, cells } = state.view;
  redraw(
    at("running"),
    running.map((run) => {
      const loss = run.loss === null ? "" : `, loss ${number(run.loss)}`;
      const name = arrows(cells.name[run.number] ?? "");
      const opened = { "data-run": run.run, ...openSeed(run.number, run.seed) };
      const bar = h("progress", { max: run.steps, value: run.step });
      const now = run.measuring ? "being measured" : `step ${run.step}/${run.steps}${loss}`;
      return h("li", {}, h("div", opened, `${name}, seed ${run.seed}`, bar, now));
    }),
  );
}

// Return the attributes of an element that opens a cell with one of its seeds.
const openSeed = (cell, seed) =>
  opens(cell, (k, add) => {
    state.seeds[k] = seed;
    choose(k, add);
  });

// New children; what had the focus keeps it, and a list its place.
function redraw(element, ...children) {
  const all = () => [...element.querySelectorAll("[tabindex]")];
  const focused = document.activeElement?.closest?.("[tabindex]");
  const place = all().indexOf(focused);
  const cell = focused?.dataset?.cell;
  const scroll = element.firstElementChild?.scrollTop;
  put(element, ...children);
  if (scroll) element.firstElementChild.scrollTop = scroll;
  if (place >= 0)
    (all().find((other) => other.dataset.cell === cell) ?? all()[place])?.focus({
      preventScroll: true,
    });
}

// Two dimensions make the grid, every other one is a choice above it.
function shape() {
  const dimensions = state.view.cells.dimensions;
  const [rows, columns] = dimensions.length > 1 ? dimensions : [null, dimensions[0] ?? null];
  return { rows, columns, others: dimensions.slice(2) };
}

// A choice for every other dimension, of values that go with the choices before it.
function drawFilters() {
  const { cells } = state.view;
  const { others } = shape();
  let going = cells.at.filter((_, cell) => cells.role[cell] === "trial");
  put(
    at("filters"),
    others.map((dimension, k) => {
      const value = (place) => String(dimension.values[place[k + 2]] ?? NOT_SET);
      const values = [...dimension.values.map(String), NOT_SET].filter((one) =>
        going.some((place) => value(place) === one),
      );
      if (!values.includes(state.filters[dimension.key])) state.filters[dimension.key] = values[0];
      going = going.filter((place) => value(place) === state.filters[dimension.key]);
      const filter = (value) => {
        state.filters[dimension.key] = value;
        drawFilters();
        drawGrid();
        at("filters")
          .querySelector(`[data-filter="${CSS.escape(dimension.key)}"]`)
          .focus();
      };
      const named = { "data-filter": dimension.key };
      const select = choice(values, state.filters[dimension.key], filter, named);
      return h("label", {}, `${dimension.label} `, select);
    }),
  );
}

function drawGrid() {
  const { cells, holes } = state.view;
  const { rows, columns, others } = shape();
  const shown = (place) =>
    !others.some((d, k) => String(d.values[place[k + 2]] ?? NOT_SET) !== state.filters[d.key]);
  const spot = (place, next) => ({
    row: rows ? place[0] : 0,
    column: rows ? place[1] : columns ? place[0] : next,
  });
  const inside = ({ row, column }) => row >= 0 && column >= 0;
  const places = [];
  cells.at.forEach((place, cell) => {
    if (cells.role[cell] === "trial" && shown(place))
      places.push({ cell, ...spot(place, places.length) });
  });
  const untried = columns
    ? (cells.search?.untried ?? [])
        .map((place, k) => ({ place, name: cells.search.names[k] }))
        .filter((u) => shown(u.place))
        .map((u) => ({ name: u.name, ...spot(u.place) }))
    : [];
  const view = {
    cells,
    rows: rows ?? { values: [""], label: "" },
    columns: columns ?? { values: places.map(() => ""), label: "" },
    places: places.filter(inside),
    untried: untried.filter(inside),
    chosen: state.chosen,
    fresh: state.fresh,
  };
  const { svg, scale } = heatmap(view, choose);
  const { meaning } = cells;
  const unit = meaning && scale ? unitOf(meaning.unit, scale.power) : "";
  redraw(at("grid"), svg);
  put(
    at("grid-title"),
    cells.metric ? `${meaning.title}${unit ? `, in ${unit}` : ""}` : "Cells of the plan",
  );
  const statesShown = [
    ...new Set(
      places.map((p) =>
        cells.state[p.cell] === "completed" && !has(cells.value?.[p.cell]) && scale
          ? "unmeasured"
          : cells.state[p.cell],
      ),
    ),
  ].filter((name) => name !== "completed");
  put(
    at("legend"),
    scale ? [colourBar(scale), h("span", {}, meaning.legend)] : null,
    places.some((p) => holdsZero(cells, p.cell))
      ? h("span", {}, s("svg", { width: 8, height: 14 }, zeroDot(4, 8)), " 95% interval holds zero")
      : null,
    statesShown.map((name) =>
      h(
        "span",
        {},
        s("svg", { width: 16, height: 14 }, stateBox(name, 1, 1, 14, 12)),
        STATES[name][0],
        " ",
        STATES[name][1],
      ),
    ),
    untried.length
      ? h("span", {}, s("svg", { width: 16, height: 14 }, untriedBox(1, 1, 14, 12)), " not tried")
      : null,
  );
  const tried = cells.role.filter((role) => role === "trial").length;
  put(
    at("space"),
    cells.search
      ? `The search has tried ${tried} of ${cells.search.cells ?? "?"} cells; ` +
          "small numbers give the order."
      : "",
  );
  put(
    at("holes"),
    holes.map((hole) => `${hole.count} cells not planned, because of ${hole.reason}`).join("; "),
  );
}

function drawPareto() {
  const { cells } = state.view;
  const points = cells.pareto;
  at("pareto-card").hidden = !points || points.cost.length < 2;
  if (!at("pareto-card").hidden)
    redraw(
      at("pareto"),
      scatter(points, {
        name: cells.name,
        role: cells.role,
        metric: points.metric,
        chosen: state.chosen,
        choose,
      }),
    );
}

function drawRanking() {
  const { cells } = state.view;
  const words = at("search").value.toLowerCase();
  const { meaning } = cells;
  const differs = meaning && meaning.shows !== "value";
  const order = (cells.order ?? [...cells.name.keys()]).filter(
    (k) =>
      arrows(cells.name[k]).toLowerCase().includes(arrows(words)) || cells.state[k].includes(words),
  );
  const half = (k) => halfWidth(cells.low?.[k], cells.high?.[k]);
  const text = (v, k) =>
    quantity(v, meaning.unit, { signed: differs, digits: differs ? 3 : 4, half: half(k) });
  const rows = order
    .slice(0, 200)
    .map((k) =>
      h(
        "tr",
        { class: "go", ...opens(k, choose) },
        h("td", {}, arrows(cells.name[k])),
        h(
          "td",
          { class: "n" },
          has(cells.value?.[k]) ? text(cells.value[k], k) : "",
          cells.disturbed?.[k] ? " (disturbed)" : "",
        ),
        h(
          "td",
          { class: "n" },
          has(cells.low?.[k]) ? `${text(cells.low[k], k)} to ${text(cells.high[k], k)}` : "",
        ),
        h(
          "td",
          {},
          has(cells.value?.[k])
            ? ({ seeds: `${cells.n[k]} seeds`, images: "images" }[cells.unit[k]] ?? "")
            : "",
        ),
        h("td", {}, badge(cells.state[k])),
      ),
    );
  const more =
    order.length > 200
      ? h("p", { class: "hint" }, `${order.length - 200} more; filter to see them`)
      : null;
  const heads = [
    ["cell", ""],
    [meaning ? (differs ? "difference" : "value") : "", "n"],
    [meaning ? "95% interval" : "", "n"],
    [meaning ? "over" : "", ""],
    ["state", ""],
  ];
  put(at("ranking-title"), meaning?.ranking ?? "Cells");
  redraw(at("ranking"), h("div", { class: "scroll" }, table(heads, rows)), more);
}

function drawFailures() {
  const { failures, cells } = state.view;
  at("failures-card").hidden = failures.length === 0;
  redraw(
    at("failures"),
    table(
      ["cell", "seed", "state", "reason"],
      failures.map((f) =>
        h(
          "tr",
          { class: "go", "data-run": f.run, ...openSeed(f.number, f.seed) },
          h("td", {}, arrows(cells.name[f.number])),
          h("td", {}, f.seed),
          h(
            "td",
            {},
            h(
              "span",
              { class: "state bad" },
              f.state === "completed" ? "no comparison" : (STATES[f.state]?.[1] ?? f.state),
            ),
          ),
          h("td", { class: "wide" }, f.reason),
        ),
      ),
    ),
  );
}

function choose(cell, add) {
  const chosen = state.chosen.includes(cell)
    ? add
      ? state.chosen.filter((k) => k !== cell)
      : [cell]
    : add
      ? [...state.chosen, cell].slice(-MOST)
      : [cell];
  at("panel").scrollTop = 0;
  show(chosen);
}

function show(chosen) {
  state.chosen = chosen;
  writeHash();
  drawGrid();
  drawPareto();
  drawPanel();
}

let drawn = 0;
let lost = "";
let pressed = false;
async function drawPanel() {
  const request = ++drawn;
  const names = state.chosen.map((k) => state.view?.cells.name[k] ?? `cell ${k}`);
  const asked = state.chosen.map((k) =>
    ask(`api/sweeps/${state.sweep}/cells/${k}${k in state.seeds ? `?seed=${state.seeds[k]}` : ""}`),
  );
  let details = [];
  try {
    details = await Promise.all(asked);
  } catch (error) {
    lost = error.message;
    live("off", error.message);
    return;
  }
  lost = "";
  if (request !== drawn) return;
  const panel = at("panel");
  const unfolded = [...panel.querySelectorAll("details")].map((d) => d.open);
  const scroll = panel.scrollTop;
  showPanel(panel, details, names, {
    remove: (k) => show(state.chosen.filter((other) => other !== k)),
    seed: (k, seed) => {
      state.seeds[k] = seed;
      drawPanel();
    },
  });
  panel.querySelectorAll("details").forEach((d, k) => {
    d.open = unfolded[k] ?? false;
  });
  panel.scrollTop = scroll;
}

function readHash() {
  const hash = new URLSearchParams(location.hash.slice(1));
  state.sweep = hash.get("sweep") ?? state.sweep;
  picked = hash.has("metric");
  state.metric = hash.get("metric") ?? state.metric;
  state.chosen = (hash.get("cells") ?? "")
    .split(",")
    .filter((k) => /^\d+$/.test(k))
    .map(Number)
    .slice(0, MOST);
}

function writeHash() {
  const hash = new URLSearchParams({ sweep: state.sweep });
  if (picked) hash.set("metric", state.metric);
  if (state.chosen.length) hash.set("cells", state.chosen.join(","));
  history.replaceState(null, "", `#${hash}`);
}

start();
