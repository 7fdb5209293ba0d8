// How to repeat a sweep: the command that ran it, with what, and the whole sweep file.
import { at, h, put, redraw } from "./dom.js";
import { ask } from "./server.js";
import { state } from "./state.js";

let drawn = ""; // the sweep that is shown, and whether a driver worked at it

// Draw it once it is scrolled to: the server reads what every run was made with.
export async function drawRepeat() {
  const { sweep, view } = state;
  const now = `${sweep} ${view?.driven}`;
  if (drawn === now || !view?.version) return;
  if (at("repeat").getBoundingClientRect().top > window.innerHeight) return;
  drawn = now;
  try {
    const told = await ask(`api/sweeps/${sweep}/repeat`);
    if (drawn === now) show(told, sweep);
  } catch (error) {
    put(at("repeat"), h("p", { class: "reason" }, error.message));
  }
}

function show({ asked, where, commands, file, data, setups, differences }, sweep) {
  const save =
    "Anywhere else, install the same tread-lab (`make setup` in a clone of that commit) and save the sweep" +
    " file below, in which the base run is written out, as ";
  redraw(
    at("repeat"),
    differences.map((text) =>
      h("p", { class: "reason" }, `These runs are no fair comparison: ${text}.`),
    ),
    asked ? [h("p", { class: "hint" }, `It was run ${where} by`), copied(asked)] : null,
    setups.map(([{ code, python, device, packages }, runs]) => {
      const made = `${runs} ${runs === 1 ? "run" : "runs"}: commit ${code} of tread-lab, Python ${python}`;
      const versions = packages.map(([name, version]) => `${name} ${version}`).join(", ");
      return h("p", { class: "hint made" }, `${made}, ${device}; ${versions}`);
    }),
    file ? h("p", { class: "hint" }, save, h("code", {}, `${sweep}.yaml`), `. ${data}`) : null,
    commands.map(copied),
    file ? copied(file) : null,
  );
}

// Return a text with a button that copies it; without a clipboard a click selects it all.
function copied(text) {
  const copy = async ({ target }) => {
    await navigator.clipboard.writeText(text);
    target.textContent = "copied";
  };
  const button = navigator.clipboard
    ? h("button", { type: "button", onclick: copy }, "copy")
    : null;
  return h("div", { class: "copied" }, h("pre", {}, text), button);
}
