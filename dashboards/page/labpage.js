// The lab's page: every sweep with its question, its answer, where it stands.
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
    sweep.answer ? h("p", { class: "finding" }, sweep.answer.sentence) : null,
    h(
      "p",
      { class: "hint" },
      [...counts, sweep.age && `planned ${sweep.age} ago`, sweep.disk]
        .filter(Boolean)
        .join(" \u00b7 "),
    ),
    sweep.problem ? h("p", { class: "reason" }, sweep.problem) : null,
  );
}
