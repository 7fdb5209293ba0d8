// Numbers, units and names as people read them.
import { has } from "./dom.js";

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
// Return what the server says of a cell: its number, its interval, and over what that is.
export const told = ({ text, over }, cell) =>
  text[cell] + (over[cell] ? ` (95% over ${over[cell]})` : "");
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
// Return the power of ten that the largest of some values is shown in.
function powerOf(values, unit) {
  const size = Math.max(0, ...values.filter(has).map(Math.abs));
  if (!unit) return 0;
  if (size >= 1000 && unit !== "s") return Math.min(21, 3 * Math.floor(Math.log10(size) / 3));
  return size < 0.1 && size > 0 && unit === "s" ? -3 : 0;
}
// Return a value with its unit: `7.65 GFLOP`, `12.4 s`; in a given power of ten as its neighbours.
export function quantity(value, unit, options = {}) {
  if (!unit || !has(value)) return number(value, options);
  const power = options.power ?? powerOf([value], unit);
  const half = (options.half ?? 0) / 10 ** power;
  return `${number(value / 10 ** power, { ...options, half })} ${unitOf(unit, power)}`;
}
