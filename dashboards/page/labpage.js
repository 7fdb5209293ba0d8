// The lab's page: every sweep with its question and where it stands.
import { at, h, redraw, STATES } from "./dom.js";

export function drawLab(sweeps) {
  document.title = "tread-lab";
  redraw(
    at("lab"),
    h("h1", {}, sweeps.length === 1 ? "1 sweep" : `${sweeps.length} sweeps`),
    sweeps.map(card),
  );
}

function card(sweep) {
  const counts = Object.keys(STATES)
    .filter((name) => sweep.counts[name])
    .map((name) => `${sweep.counts[name]} ${STATES[name][1]}`);
  return h(
    "article",
    { class: "card" },
    h("h2", {}, h("a", { href: `#sweep=${sweep.name}` }, sweep.name)),
    h("p", { class: "asks" }, sweep.question),
    h("p", { class: "hint" }, counts.join(" \u00b7 ")),
  );
}
