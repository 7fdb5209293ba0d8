// What is known of the open sweep and what is chosen of it; the address holds the whole choice.
export const MOST = 4; // cells beside each other
const PLAIN = ["sweep", "metric", "theme"];

// What is chosen before anything is.
const unchosen = () => ({
  metric: "",
  filters: {}, // above the map, by axis
  guessed: new Set(), // axes whose filter nobody has chosen
  chosen: [], // cells
  seeds: {}, // by cell
});
const unopened = () => ({ version: 0, view: null, fresh: new Set() });
export const state = { sweep: "", theme: "", requests: 0, ...unchosen(), ...unopened() };
// What the parts of the page ask for; `app.js` fills it in.
export const act = {};

export function forget(sweep) {
  Object.assign(state, { sweep, ...unchosen(), ...unopened() });
}

// Return the cells that the panel shows: the best one until others are chosen.
export const shown = () =>
  state.chosen.length || !state.view ? state.chosen : [state.view.best].filter((k) => k !== null);

export function readAddress() {
  const hash = new URLSearchParams(location.hash.slice(1));
  Object.assign(state, unchosen());
  for (const name of PLAIN) state[name] = hash.get(name) ?? "";
  for (const pair of hash.getAll("at")) {
    const [axis, ...value] = pair.split("=");
    state.filters[axis] = value.join("=");
  }
  for (const part of (hash.get("cells") ?? "").split(",").slice(0, MOST)) {
    const [, cell, seed] = part.match(/^(\d+)(?:\.(\d+))?$/) ?? [];
    if (cell) state.chosen.push(Number(cell));
    if (seed) state.seeds[cell] = Number(seed);
  }
}

export function writeAddress() {
  const hash = new URLSearchParams();
  for (const name of PLAIN) if (state[name]) hash.set(name, state[name]);
  for (const [axis, value] of Object.entries(state.filters))
    if (!state.guessed.has(axis)) hash.append("at", `${axis}=${value}`);
  const seed = (k) => (k in state.seeds ? `${k}.${state.seeds[k]}` : k);
  if (state.chosen.length) hash.set("cells", state.chosen.map(seed).join(","));
  history.replaceState(null, "", `#${hash}`);
}
