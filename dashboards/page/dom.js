// Elements from tag, attributes and children; texts are never markup.
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
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

export const at = (id) => document.getElementById(id);
export const put = (element, ...children) => element.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));

// Numbers and names as people read them.
export const MINUS = "\u2212";
export function number(value, { signed = false, digits = 3 } = {}) {
  if (value === null || value === undefined) return "";
  const size = Math.abs(value);
  const text = size !== 0 && (size < 1e-3 || size >= 1e5) ? Number(value.toPrecision(digits)).toExponential().replace("e+", "e") : String(Number(value.toPrecision(digits)));
  return ((signed && value > 0 ? "+" : "") + text).replaceAll("-", MINUS);
}
export const arrows = (name) => name.replaceAll("->", "\u2192");

export const STATES = {
  completed: ["", "completed"], failed: ["F", "failed"], diverged: ["D", "diverged"], stopped: ["S", "stopped early"],
  running: ["\u25b8", "running"], measuring: ["\u25b8", "being measured"], interrupted: ["!", "interrupted"], pending: ["\u2026", "not started"],
  unread: ["", "not read yet"], unmeasured: ["?", "not measured"],
};
export const BAD = ["failed", "diverged", "stopped", "interrupted"];
