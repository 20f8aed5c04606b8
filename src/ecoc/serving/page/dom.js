// Small helpers to build elements. Text always enters as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

/** An element with attributes, and children that are elements or text. */
export function el(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** The same for a drawing. */
export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

export function show(element, isShown) {
  element.toggleAttribute("hidden", !isShown);
}

/** Title and id of an item as an element. */
export function itemLabel(item) {
  const label = el("span", { class: "label" }, el("bdi", { class: "title" }, item.title || item.item));
  if (item.title) label.append(el("bdi", { class: "id" }, item.item));
  return label;
}

/** A name that is short enough to be read aloud or drawn. */
export function shortName(item, longest = 80) {
  const name = item.title || item.item;
  return name.length > longest ? `${name.slice(0, longest - 1)}…` : name;
}

export function number(value, digits = 3) {
  if (!Number.isFinite(value)) return "–";
  const text = Math.abs(value) >= 1e5 ? value.toExponential(2) : value.toFixed(digits);
  return text.replace("-", "−");
}

export const counted = (count) => count.toLocaleString("en");

export const isStill = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
