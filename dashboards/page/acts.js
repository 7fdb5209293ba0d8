// What one may do to a sweep or a run: its buttons, the dialog that asks first, notes and tags.
import { at, h, put, redraw } from "./dom.js";
import { acts, send } from "./server.js";
import { act } from "./state.js";

// action -> what the button and the dialog say; `text` is the label of what is written with it.
const KINDS = {
  stop: {
    button: "stop",
    title: (name) => `Stop ${name}?`,
    what: "It saves checkpoints and ends; it can go on later.",
    text: "why (kept with the records)",
    does: "stop it",
  },
  failed: {
    button: "run failed again",
    title: (name) => `Run the failed runs of ${name} again?`,
    what: "A driver starts on this machine as it was started last, and goes on with what is open, too.",
    does: "run them again",
  },
  open: {
    button: "go on",
    title: (name) => `Go on with ${name}?`,
    what: "A driver starts on this machine as it was started last.",
    does: "go on",
  },
  note: {
    button: "note",
    title: (name) => `A note on ${name}`,
    text: "note (kept with the records, shown in MLflow and the report)",
    long: true,
    does: "keep it",
  },
  tag: { button: "tag", title: (name) => `Tag ${name}`, text: "words", does: "tag it" },
};
const READS_ONLY =
  "This page only reads. Opened at the address that `tread-lab dashboard` printed it can stop and start runs, from other machines only with --act.";
const READ = 20_000; // milliseconds that an answer stands
const AGAIN = ["failed", "open"];

// The acts that make sense of a sweep.
export function drawSweepActs({ name, driven, counts, remarks, failure }) {
  if (name.includes(",")) return put(at("acts")); // several sweeps are looked at only
  const some = (...states) => states.some((state) => counts[state]);
  const kinds = driven
    ? ["stop"]
    : [some("failed") && "failed", some("pending", "interrupted") && !some("failed") && "open"];
  const told = failure ? h("p", { class: "reason", role: "alert" }, failure) : null;
  const buttons = acts
    ? bar(name, `sweep ${name}`, [...kinds, "note", "tag"])
    : h("p", { class: "hint" }, READS_ONLY);
  redraw(at("acts"), buttons, told, said(name, remarks));
}

// Return the acts of a run, with what was said of it.
export function runActs({ run }, label) {
  return h(
    "div",
    { class: "acts" },
    acts ? bar(run.name, label, ["note", "tag"]) : null,
    said(run.name, run.remarks),
  );
}

function bar(name, label, kinds) {
  const button = (kind) =>
    h(
      "button",
      { type: "button", "data-act": kind, onclick: () => open(kind, name, label) },
      KINDS[kind].button,
      h("span", { class: "unseen" }, ` ${label}`),
    );
  return h("div", { class: "buttons" }, kinds.filter(Boolean).map(button));
}

// Return notes and tags; a tag has a button that takes it away.
function said(name, { notes, tags }) {
  const when = ({ by, time }) => `${by}, ${new Date(1000 * time).toLocaleString()}`;
  const tag = (text) =>
    h(
      "li",
      {},
      text,
      acts &&
        h("button", { type: "button", onclick: () => untag(name, text) }, "\u00d7", hidden(text)),
    );
  return [
    tags.length ? h("ul", { class: "tags", "aria-label": "tags" }, tags.map(tag)) : null,
    notes.map((note) => h("p", { class: "note" }, note.text, h("small", {}, ` ${when(note)}`))),
  ];
}

const hidden = (tag) => h("span", { class: "unseen" }, ` take the tag ${tag} away`);

function open(kind, name, label) {
  const { title, what, text, does, long } = KINDS[kind];
  const problem = h("p", { class: "reason", role: "alert" });
  const written = text ? h(long ? "textarea" : "input", { rows: long && 4, id: "written" }) : null;
  const perform = async (event) => {
    event.preventDefault();
    event.submitter.disabled = true;
    const again = AGAIN.includes(kind);
    try {
      tell(await send(again ? "again" : kind, name, again ? kind : (written?.value ?? "")));
      at("dialog").close();
      act.reload();
    } catch (error) {
      problem.textContent = error.message;
      event.submitter.disabled = false;
    }
  };
  put(
    at("dialog"),
    h(
      "form",
      { onsubmit: perform },
      h("h2", { id: "dialog-title" }, title(label)),
      what ? h("p", {}, what) : null,
      text ? h("label", { for: "written" }, text, written) : null,
      problem,
      h(
        "div",
        { class: "buttons" },
        h("button", { type: "submit", class: "does" }, does),
        h("button", { type: "button", onclick: () => at("dialog").close() }, "cancel"),
      ),
    ),
  );
  at("dialog").showModal();
}

async function untag(name, text) {
  try {
    tell(await send("untag", name, text));
    act.reload();
  } catch (error) {
    tell(error.message);
  }
}

let told = 0;
function tell(line) {
  clearTimeout(told);
  at("said").textContent = line;
  told = setTimeout(() => put(at("said")), READ);
}
