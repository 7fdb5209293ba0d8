// The lab's page: every sweep with its question, its answer, where it stands; several to compare.
import { at, h, put, redraw, STATES } from "./dom.js";

const chosen = new Set(); // sweeps to compare

export function drawLab(sweeps) {
  document.title = "tread-lab";
  for (const name of chosen) if (!sweeps.some((sweep) => sweep.name === name)) chosen.delete(name);
  const compare = h("p", { id: "compare" });
  const draw = () => {
    const names = sweeps.map((sweep) => sweep.name).filter((name) => chosen.has(name));
    const several = { href: `#sweep=${names.join(",")}`, class: "button" };
    put(
      compare,
      names.length > 1
        ? h("a", several, `compare ${names.join(", ")}`)
        : h("span", { class: "hint" }, "Choose two or more sweeps to see them as one."),
    );
  };
  const choose = (name, on) => {
    chosen[on ? "add" : "delete"](name);
    draw();
  };
  draw();
  redraw(
    at("lab"),
    h("h1", {}, sweeps.length === 1 ? "1 sweep" : `${sweeps.length} sweeps`),
    sweeps.length > 1 ? compare : null,
    sweeps.map((sweep) => card(sweep, sweeps.length > 1 ? choose : null)),
  );
}

function card(sweep, choose) {
  const counts = Object.keys(STATES)
    .filter((name) => sweep.counts[name])
    .map((name) => `${sweep.counts[name]} ${STATES[name][1]}`);
  const box = h("input", {
    type: "checkbox",
    "aria-label": `compare ${sweep.name}`,
    onchange: (event) => choose(sweep.name, event.target.checked),
  });
  box.checked = chosen.has(sweep.name);
  return h(
    "article",
    { class: "card" },
    h("h2", {}, choose ? box : null, h("a", { href: `#sweep=${sweep.name}` }, sweep.name)),
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
