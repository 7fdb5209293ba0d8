// The lab's page: every sweep with its question, its answer, where it stands, its age and size.
import { at, h, put, STATES } from "./dom.js";

export function drawLab(sweeps) {
  document.title = "tread-lab";
  const order = Object.keys(STATES);
  const counts = (states) =>
    order.filter((name) => states[name]).map((name) => `${states[name]} ${STATES[name][1]}`);
  put(
    at("lab"),
    h("h1", {}, sweeps.length ? `${sweeps.length} sweeps` : "No sweep yet"),
    sweeps.map((sweep) =>
      h(
        "article",
        { class: "card" },
        h("h2", {}, h("a", { href: `#sweep=${sweep.name}` }, sweep.name)),
        h("p", { class: "asks" }, sweep.question),
        sweep.answer ? h("p", { class: "finding" }, sweep.answer.sentence) : null,
        h(
          "p",
          { class: "hint" },
          [...counts(sweep.counts), sweep.age && `planned ${sweep.age} ago`, sweep.disk]
            .filter(Boolean)
            .join(" \u00b7 "),
        ),
        sweep.problem ? h("p", { class: "reason" }, sweep.problem) : null,
      ),
    ),
  );
}
