// The head of a sweep: its question, its answer and how sure it is, progress, what runs now.
import { arrows, at, h, put, redraw, STATES } from "./dom.js";
import { opens } from "./keys.js";
import { number } from "./numbers.js";
import { act, state } from "./state.js";

export function drawHead() {
  const { name, question, answer, compared, terms } = state.view;
  document.title = `${name} \u2013 tread-lab`;
  put(at("question"), question);
  put(at("compared"), compared ? `compared ${compared}` : "");
  put(at("finding"), answer ? answer.sentence : "");
  put(at("certainty"), answer ? answer.certainty : "");
  put(
    at("terms"),
    Object.entries(terms).map(([word, meaning]) => [h("dt", {}, word), h("dd", {}, meaning)]),
  );
  const command = h("code", {}, `tread-lab report ${name}`);
  put(at("report"), "In one file, with figures, costs and how to repeat it: ", command);
}

export function drawProgress() {
  const { counts, times, hours } = state.view;
  const order = Object.keys(STATES).filter((name) => counts[name]);
  const runs = order.reduce((sum, name) => sum + counts[name], 0);
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
  const ended = counts.unread
    ? `${runs} runs are being read`
    : `${done} of ${runs} runs have ended`;
  bar.setAttribute("aria-label", ended);
  put(
    at("counts"),
    h("strong", { id: "done" }, ended),
    order.map((name) =>
      h("span", {}, h("i", { class: name }), `${counts[name]} ${STATES[name][1]}`),
    ),
    hours ? h("span", { id: "hours" }, `hours: ${hours}`) : [],
    times ? h("span", { id: "times" }, times) : [],
  );
}

export function drawRunning() {
  const { running, cells } = state.view;
  redraw(
    at("running"),
    running.map((run) => {
      const loss = run.loss === null ? "" : `, loss ${number(run.loss)}`;
      const name = `${arrows(cells.name[run.number] ?? "")}, seed ${run.seed}`;
      const opened = { "data-run": run.run, ...opens(run.number, act.chooseSeed(run.seed)) };
      const now = run.measuring ? "being measured" : `step ${run.step}/${run.steps}${loss}`;
      const bar = h("progress", { max: run.steps, value: run.step, "aria-label": now });
      return h("li", {}, h("div", opened, name, bar, now));
    }),
  );
}
