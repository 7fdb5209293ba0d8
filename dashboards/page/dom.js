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

export const badge = (state) =>
  h("span", { class: `state${BAD.includes(state) ? " bad" : ""}` }, STATES[state]?.[1] ?? state);

export const swatch = (colour) => {
  const dot = h("span", { class: "swatch" });
  dot.style.background = colour;
  return dot;
};

export const at = (id) => document.getElementById(id);
export const put = (element, ...children) => element.replaceChildren(...present(children));
// Return a name with real arrows.
export const arrows = (name) => name.replaceAll("->", "\u2192");
// Return whether a value is there: the server sends null where there is no number.
export const has = (value) => value !== null && value !== undefined;

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
const BAD = ["failed", "diverged", "stopped", "interrupted"];

// Give an element new children; what had the focus keeps it, and a list its place.
export function redraw(element, ...children) {
  keepFocus(element, () => put(element, ...children));
}

// Draw an element anew; what had the focus in it keeps it, and a list its place.
export function keepFocus(element, draw) {
  const all = () => [
    ...element.querySelectorAll("[tabindex], a[href], button, summary, input, select"),
  ];
  const focused = document.activeElement;
  const place = all().indexOf(focused);
  const cell = focused?.dataset?.cell;
  const scroll = element.querySelector(".scroll");
  const [top, left] = [scroll?.scrollTop, scroll?.scrollLeft];
  draw();
  if (scroll)
    Object.assign(element.querySelector(".scroll") ?? {}, { scrollTop: top, scrollLeft: left });
  if (place < 0) return;
  const again = cell && all().find((other) => other.dataset.cell === cell);
  const there = all()[place];
  const same = there?.tagName === focused.tagName && there?.ariaLabel === focused.ariaLabel;
  (again || (same && there) || null)?.focus({ preventScroll: true });
}
