// What ended without a result: the list of such trials, and how one of them ended.
import { arrows, at, h, redraw, STATES, table } from "./dom.js";
import { act, state } from "./state.js";

export function drawFailures() {
  const { failures, cells } = state.view;
  at("failures-card").hidden = failures.length === 0;
  const rows = failures.map((f) => {
    const open = (event) => act.chooseSeed(f.seed)(f.number, event.shiftKey);
    const ended = f.state === "completed" ? "no comparison" : (STATES[f.state]?.[1] ?? f.state);
    return h(
      "tr",
      { class: "go", "data-run": f.run, onclick: open },
      h("td", {}, h("button", { "data-cell": f.number }, arrows(cells.name[f.number]))),
      h("td", {}, f.seed),
      h("td", {}, h("span", { class: "state bad" }, ended)),
      h("td", { class: "wide" }, f.reason),
    );
  });
  redraw(at("failures"), table(["cell", "seed", "state", "reason"], rows));
}

// Return how a run ended and what to do; null if all is well.
export function ending(detail) {
  const { ended } = detail;
  if (!ended) return null;
  return h(
    "section",
    { class: "ending" },
    h("h3", {}, `How it ended: ${ended.kind}${ended.sentence ? `, ${ended.sentence}` : ""}`),
    h("p", { class: "advice" }, h("strong", {}, "What to do: "), coded(ended.advice)),
    ended.traceback
      ? h("details", {}, h("summary", {}, "traceback"), h("pre", { tabindex: 0 }, ended.traceback))
      : null,
  );
}

// Return a text with its `commands` as code.
const coded = (text) => text.split("`").map((part, k) => (k % 2 ? h("code", {}, part) : part));
