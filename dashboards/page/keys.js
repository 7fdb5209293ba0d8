// The keyboard: one stop for each chart or table, arrow keys within it; what opens a cell.
const ACROSS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

// Return the attributes of an element that opens a cell: a click, Enter and Space do the same.
export function opens(cell, choose) {
  const open = (event) => choose(cell, event.shiftKey || event.ctrlKey || event.metaKey);
  const onkeydown = (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    open(event);
  };
  return { "data-cell": cell, tabindex: 0, role: "button", onclick: open, onkeydown };
}

// Make all that opens a cell in an element one stop; arrow keys go to the nearest in their direction.
export function rove(element) {
  const items = [...element.querySelectorAll("[data-cell]")];
  const stop = items.find((item) => item.classList.contains("chosen")) ?? items[0];
  const enter = (item) => {
    for (const other of items) other.setAttribute("tabindex", other === item ? 0 : -1);
  };
  enter(stop);
  element.addEventListener("focusin", (e) => enter(e.target.closest("[data-cell]") ?? stop));
  element.addEventListener("keydown", (event) => {
    const way = ACROSS[event.key];
    const item = event.target.closest?.("[data-cell]");
    if (!way || !item) return;
    event.preventDefault();
    nearest(item, items, way)?.focus();
  });
  return element;
}

const centre = (item) => {
  const { x, y, width, height } = (
    item.querySelector("rect, circle, path") ?? item
  ).getBoundingClientRect();
  return [x + width / 2, y + height / 2];
};

// Return the item that lies nearest in a direction; what is beside the way counts three times.
function nearest(item, items, [right, down]) {
  const [x, y] = centre(item);
  let best = null;
  let least = Number.POSITIVE_INFINITY;
  for (const other of items) {
    const [a, b] = centre(other);
    const along = (a - x) * right + (b - y) * down;
    const far = along + 3 * Math.abs((a - x) * down + (b - y) * right);
    if (other !== item && along > 1 && far < least) [best, least] = [other, far];
  }
  return best;
}
