// HTML and SVG elements from tag, attributes and children; a text is never parsed as markup.
const SVG = "http://www.w3.org/2000/svg";

export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function s(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (has(value) && value !== false) element.setAttribute(name, value);
  }
  element.append(...present(children));
  return element;
}

const present = (children) =>
  children.flat(Infinity).filter((child) => has(child) && child !== false);

// Return a table; a head is a text, or a text and its class.
export function table(heads, rows, attributes = {}) {
  const cells = heads
    .map((head) => [head].flat())
    .map(([text, kind]) => h(text ? "th" : "td", { class: kind || null }, text));
  return h("table", attributes, h("thead", {}, h("tr", {}, cells)), h("tbody", {}, rows));
}

// Return a list to choose from; `text` names a value, `onchange` gets the chosen one.
export function choice(values, selected, onchange, { text = arrows, ...attributes } = {}) {
  const options = values.map((value) => h("option", { value }, text(value)));
  const select = h("select", { ...attributes, onchange: (e) => onchange(e.target.value) }, options);
  select.value = selected;
  return select;
}

export const badge = (state, text = STATES[state]?.[1] ?? state) =>
  h("span", { class: `state${BAD.includes(state) ? " bad" : ""}` }, text);

export const at = (id) => document.getElementById(id);
export const put = (element, ...children) => element.replaceChildren(...present(children));
// Return whether a value is there: the server sends null where there is no number.
export const has = (value) => value !== null && value !== undefined;

// Numbers and names as people read them.
export const MINUS = "\u2212";
export function number(value, { signed = false, digits = 3, half = 0 } = {}) {
  if (!has(value)) return "";
  if (half > 0) return precise(value, half, signed);
  const size = Math.abs(value);
  const text =
    size !== 0 && (size < 1e-3 || size >= 1e5)
      ? Number(value.toPrecision(digits)).toExponential().replace("e+", "e")
      : String(Number(value.toPrecision(digits)));
  return ((signed && value > 0 ? "+" : "") + text).replaceAll("-", MINUS);
}
// Return a value to the second digit of the half-width of its interval, as `precise` in units.py.
function precise(value, half, signed) {
  const decimals = 1 - Math.floor(Math.log10(Number(half.toExponential(1))));
  const text =
    decimals <= 6
      ? (Math.round(value * 10 ** decimals) / 10 ** decimals).toFixed(Math.max(0, decimals))
      : value.toExponential(
          Math.max(0, decimals + Math.floor(Math.log10(Math.abs(value) || half))),
        );
  return ((signed && Number(text) >= 0 ? "+" : "") + text)
    .replace("e+0", "")
    .replaceAll("-", MINUS);
}
// Return half the width of an interval; 0 where there is none.
export const halfWidth = (low, high) => (has(low) && has(high) ? (high - low) / 2 : 0);
const PREFIXES = {
  "-9": "n",
  "-6": "\u00b5",
  "-3": "m",
  0: "",
  3: "k",
  6: "M",
  9: "G",
  12: "T",
  15: "P",
  18: "E",
  21: "Z",
};
const SHORT = { byte: "B" };
// Return the unit of numbers divided by 10^power: `GFLOP`, `ms`, or a power of ten.
export function unitOf(unit, power) {
  if (!unit) return power ? `units of ${number(10 ** power)}` : "";
  return power in PREFIXES && (power >= 0 || unit === "s")
    ? PREFIXES[power] + (SHORT[unit] ?? unit)
    : `${number(10 ** power)} ${unit}`;
}
// Return a value with its unit: `7.65 GFLOP`, `12.4 s`.
export function quantity(value, unit, options = {}) {
  if (!unit || !has(value)) return number(value, options);
  const size = Math.abs(value);
  const power =
    size >= 1000 && unit !== "s"
      ? Math.min(21, 3 * Math.floor(Math.log10(size) / 3))
      : size < 0.1 && size > 0 && unit === "s"
        ? -3
        : 0;
  const half = (options.half ?? 0) / 10 ** power;
  return `${number(value / 10 ** power, { ...options, half })} ${unitOf(unit, power)}`;
}
export const arrows = (name) => name.replaceAll("->", "\u2192");

export const STATES = {
  completed: ["", "completed"],
  failed: ["F", "failed"],
  diverged: ["D", "diverged"],
  stopped: ["S", "stopped early"],
  running: ["\u25b8", "running"],
  measuring: ["\u25b8", "being measured"],
  interrupted: ["!", "interrupted"],
  pending: ["\u2026", "not started"],
  unread: ["", "not read yet"],
  unmeasured: ["?", "not measured"],
  uncompared: ["B", "no baseline to compare with"],
  untried: ["", "not tried"],
};
export const BAD = ["failed", "diverged", "stopped", "interrupted"];
