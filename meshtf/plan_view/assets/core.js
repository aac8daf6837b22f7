"use strict";
// What all parts of the page share: building elements, texts of numbers, the state.
// Names of tensors are anybody's text: they get into the page as text alone, never as markup.

const plan = JSON.parse(document.getElementById("plan").textContent);
const state = { layout: 0, tensor: 0, core: 0, moment: null, measure: "seconds", by: "name" };
const drawers = [];

/** An element: attributes by name, functions as listeners, the rest as children. */
function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function draw(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (name.startsWith("--")) element.style.setProperty(name, value);
    else if (name === "style") Object.assign(element.style, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** A part of the page, drawn anew by `contents` whenever what is shown changes. */
function part(id, contents) {
  const section = document.getElementById(id);
  const box = make("div");
  section.append(box);
  drawers.push(() => box.replaceChildren(...[contents(shown())].flat().filter(Boolean)));
}

function redraw() {
  for (const drawer of drawers) drawer();
}

/** The layout that is looked at. */
function shown() {
  return plan.layouts[state.layout];
}

function bytesText(n) {
  return scaled(n, 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]);
}

function flopsText(n) {
  return scaled(n, 1000, ["FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP"]);
}

function scaled(n, base, units) {
  let power = 0;
  while (Number(Math.abs(n).toFixed(1)) >= base && power < units.length - 1) {
    n /= base;
    power += 1;
  }
  return `${power === 0 ? Math.round(n) : n.toFixed(n < 10 ? 2 : 1)} ${units[power]}`;
}

const LEAST_SECONDS = 1e-9;

function secondsText(s) {
  if (s === null || s === undefined) return "–";
  const rounded = Number(s.toPrecision(3));
  if (rounded >= 1000) return `${countText(rounded)} s`;
  if (rounded >= 1) return `${rounded.toPrecision(3)} s`;
  if (rounded >= 1e-3) return `${(rounded * 1e3).toPrecision(3)} ms`;
  return rounded < LEAST_SECONDS ? "0 s" : `${(rounded * 1e6).toPrecision(3)} µs`;
}

function countText(n) {
  return Math.round(n).toLocaleString("en");
}

function shareText(part, whole) {
  if (!whole) return "0 %";
  const share = (100 * part) / whole;
  if (share > 0 && share < 0.05) return "under 0.1 %";
  return `${share.toFixed(1)} %`;
}

/** How a number is measured, by which widths and orders go. */
const MEASURES = {
  seconds: { title: "time of the step", text: secondsText, of: (row) => row.seconds ?? 0 },
  flops: { title: "FLOPs", text: flopsText, of: (row) => row.flops },
  bytes: { title: "bytes through memory", text: bytesText, of: (row) => row.bytes },
  sent: { title: "bytes sent", text: bytesText, of: (row) => row.sent },
};

function measures(layout) {
  return Object.entries(MEASURES).filter(([name]) => name !== "seconds" || layout.totals.seconds !== null);
}

function measure(layout) {
  return state.measure === "seconds" && layout.totals.seconds === null ? MEASURES.flops : MEASURES[state.measure];
}

/** A labelled choice between texts by name. */
function choose(label, options, value, change) {
  const select = make("select", { change: (event) => change(event.target.value) });
  for (const [name, text] of options) select.append(make("option", { value: name, selected: name === value }, text));
  return make("label", {}, label, select);
}

function legend(rows) {
  return make(
    "ul",
    { class: "legend" },
    rows.map(([kind, text, value]) =>
      make("li", { class: `fill-${kind}` }, make("span", { class: "swatch" }), text, value ? make("b", {}, value) : null),
    ),
  );
}

function numberCell(text) {
  return make("td", { class: "number" }, text);
}

function heading(text, attributes = {}) {
  return make("th", { scope: "col", ...attributes }, text);
}

/** Moves the one focus of a group of elements, of which one at a time can be reached by Tab. */
function rove(elements, to) {
  for (const element of elements) element.tabIndex = -1;
  to.tabIndex = 0;
  to.focus();
}
