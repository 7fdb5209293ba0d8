// The page: it polls the server, keeps the address true, and draws what has changed.
import { hatchDefs } from "./colours.js";
import { at, h, has, keepFocus, put } from "./dom.js";
import { drawFailures } from "./failures.js";
import { drawLab } from "./labpage.js";
import { drawFilters, drawFront, drawMap } from "./map.js";
import { showPanel } from "./panel.js";
import { drawRanking } from "./ranking.js";
import { ask } from "./server.js";
import { act, forget, MOST, readAddress, shown, state, writeAddress } from "./state.js";
import { drawHead, drawProgress, drawRunning } from "./top.js";

const PAUSE = 2000;
const SLOW = 8000;
const NARROW = window.matchMedia("(max-width: 1000px)"); // the panel lies below
const THEMES = ["", "light", "dark"];
let pressed = false; // a cell that is replaced between press and release would lose the click
let lost = ""; // why the panel could not be drawn
let drawn = 0;

function start() {
  document.body.append(hatchDefs());
  readAddress();
  setTheme();
  at("sweep").addEventListener("change", (e) => open(e.target.value));
  at("metric").addEventListener("change", (e) => choose(e.target.value));
  at("theme").addEventListener("click", () => {
    state.theme = THEMES[(THEMES.indexOf(state.theme) + 1) % THEMES.length];
    setTheme();
    writeAddress();
  });
  at("skip").addEventListener("click", (event) => {
    event.preventDefault(); // the address is the choice, which this does not change
    (state.sweep ? at("main") : at("lab")).focus();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && state.chosen.length) show([]);
  });
  watchPresses();
  window.addEventListener("resize", () => state.view && drawChosen());
  window.addEventListener("hashchange", () => {
    const choice = () => JSON.stringify([state.sweep, state.metric, state.chosen, state.seeds]);
    const earlier = choice();
    const { sweep } = state;
    readAddress();
    setTheme();
    if (sweep !== state.sweep) Object.assign(state, { version: 0, view: null });
    if (earlier === choice()) return;
    state.version = 0;
    refresh().then(drawPanel, (error) => live("off", error.message));
  });
  tick();
}

function watchPresses() {
  document.addEventListener("pointerdown", () => {
    pressed = true;
  });
  const release = () => {
    pressed = false;
  };
  for (const end of ["pointerup", "pointercancel", "blur"])
    window.addEventListener(end, () => setTimeout(release, 50));
  document.addEventListener(
    "mousedown",
    (e) => e.shiftKey && e.target.closest?.("[data-cell], tr.go") && e.preventDefault(),
  ); // else the click selects text
}

function setTheme() {
  document.documentElement.dataset.theme = state.theme;
  at("theme").textContent = `theme: ${state.theme || "auto"}`;
}

async function tick() {
  let pause = PAUSE;
  try {
    await listSweeps();
    await refresh();
    const { view } = state;
    if (!state.sweep) pause = SLOW;
    else if (view?.version === 0) pause = 800;
    else if (view && !view.running.length && view.cells.name.length > 2000) pause = SLOW;
    if (view?.problem) live("off", `the records cannot be read: ${view.problem}`);
    else if (lost) live("off", lost);
    else live("on", `records of ${clock(view?.age ?? 0)}`);
  } catch (error) {
    live("off", error.message);
  }
  setTimeout(tick, pause);
}

// Return the time of day that was so many seconds ago.
const clock = (age) =>
  new Date(Date.now() - 1000 * age).toLocaleTimeString([], { timeZoneName: "short" });

function live(kind, text) {
  at("live").className = kind;
  at("live").textContent = text;
}

async function listSweeps() {
  const sweeps = await ask("api/sweeps");
  const names = sweeps.map((sweep) => sweep.name);
  const options = [...at("sweep").options].map((option) => option.value);
  const named = ({ name, trials }) => h("option", { value: name }, `${name} (${trials})`);
  if (JSON.stringify(options) !== JSON.stringify(["", ...names]))
    put(at("sweep"), h("option", { value: "" }, "all sweeps"), sweeps.map(named));
  if (state.sweep && !names.includes(state.sweep)) forget("");
  if (!state.sweep && names.length === 1) [state.sweep] = names;
  at("sweep").value = state.sweep;
  at("none").hidden = names.length > 0;
}

function open(name) {
  forget(name);
  writeAddress();
  refresh().then(drawPanel, (error) => live("off", error.message));
}

async function refresh() {
  const request = ++state.requests;
  const { sweep, metric, version } = state;
  at("main").hidden = !sweep;
  at("lab").hidden = Boolean(sweep);
  at("metric").closest("label").hidden = !sweep;
  if (!sweep) put(at("filters"));
  if (!sweep) {
    const sweeps = await ask("api/lab");
    if (request === state.requests) drawLab(sweeps);
    return;
  }
  const tree = await ask(`api/sweeps/${sweep}`, { metric, version });
  while (pressed) await new Promise((resume) => setTimeout(resume, 30));
  if (request !== state.requests) return;
  if (tree.cells) takeAll(tree);
  else takeProgress(tree);
}

function takeAll(tree) {
  const earlier = state.view?.name === tree.name ? state.view : null;
  const measured = (view, k) => has(view.cells.value?.[k]);
  const compared = earlier && earlier.cells.metric === tree.cells.metric;
  const cells = [...tree.cells.name.keys()];
  state.fresh = new Set(
    compared ? cells.filter((k) => measured(tree, k) && !measured(earlier, k)) : [],
  );
  const unlike = (k) => state.fresh.has(k) || tree.cells.state[k] !== "completed";
  const anew = !earlier?.version || earlier.best !== tree.best || lost;
  if (!earlier?.version) for (const axis of state.guessed) delete state.filters[axis];
  Object.assign(state, { view: tree, version: tree.version });
  draw();
  if (anew || shown().some(unlike)) drawPanel();
}

function takeProgress(tree) {
  Object.assign(state.view, tree);
  drawProgress();
  drawRunning();
  if (lost || shown().some((k) => state.view.cells.state[k] === "running")) drawPanel();
}

function draw() {
  const { metrics, cells } = state.view;
  const options = [...at("metric").options].map((option) => option.value);
  if (String(options) !== String(metrics))
    put(
      at("metric"),
      metrics.map((metric) => h("option", { value: metric }, metric)),
    );
  at("metric").value = cells.metric ?? "";
  drawHead();
  drawProgress();
  drawRunning();
  drawFilters();
  drawChosen();
  drawFailures();
}

function drawChosen() {
  drawMap();
  drawFront();
  drawRanking();
}

// Choose a metric: the server says what cells show of it.
async function choose(metric) {
  Object.assign(state, { metric, version: 0 });
  writeAddress();
  try {
    await refresh();
    drawPanel();
  } catch (error) {
    live("off", error.message);
  }
}

// Open a cell, or add it to those that are compared.
act.choose = (cell, add) => {
  const { chosen } = state;
  at("panel").scrollTop = 0;
  if (NARROW.matches && !add) at("panel").scrollIntoView();
  if (!add) return show([cell]);
  const others = chosen.filter((k) => k !== cell);
  show(others.length < chosen.length ? others : [...chosen, cell].slice(-MOST));
};

act.chooseSeed = (seed) => (cell, add) => {
  state.seeds[cell] = seed;
  act.choose(cell, add);
};

function show(chosen) {
  state.chosen = chosen;
  writeAddress();
  drawChosen();
  drawPanel();
}

async function drawPanel() {
  if (!state.view || !state.sweep) return;
  const request = ++drawn;
  const cells = shown();
  const names = cells.map((k) => state.view.cells.name[k] ?? `cell ${k}`);
  const seen = (k) => ({ seed: state.seeds[k] ?? "" });
  try {
    const path = `api/sweeps/${state.sweep}/cells`;
    const details = await Promise.all(cells.map((k) => ask(`${path}/${k}`, seen(k))));
    lost = "";
    if (request === drawn) putPanel(details, names);
  } catch (error) {
    lost = error.message;
    live("off", error.message);
  }
}

function putPanel(details, names) {
  const panel = at("panel");
  const named = (d) => d.firstChild.textContent; // its summary
  const unfolded = new Map([...panel.querySelectorAll("details")].map((d) => [named(d), d.open]));
  const { scrollTop } = panel;
  const remove = state.chosen.length ? (k) => show(state.chosen.filter((c) => c !== k)) : null;
  const choose = (k, chosen) => {
    state.seeds[k] = chosen;
    writeAddress();
    drawPanel();
  };
  keepFocus(panel, () => showPanel(panel, details, names, { remove, seed: choose }));
  for (const d of panel.querySelectorAll("details")) d.open = unfolded.get(named(d)) ?? d.open;
  panel.scrollTop = scrollTop;
}

start();
