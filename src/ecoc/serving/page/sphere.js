// The unit sphere in two dimensions: items, the list, the history, and the action with its path.

import { byId, counted, number, shortName, svg } from "./dom.js";

const TRAIL = 30; // earlier actions that are kept
const REACH = 0.07; // distance at which the pointer meets an item

export class SphereView {
  /** `onChoice` is called with an item that was clicked. */
  constructor(onChoice) {
    this.root = byId("sphere");
    this.items = [];
    this.marked = [];
    this.near = null;
    const over = (event) => this.highlight(this.nearest(event));
    this.root.addEventListener("pointermove", over);
    this.root.addEventListener("pointerleave", () => this.highlight(null));
    this.root.addEventListener("pointerdown", (event) => {
      const place = this.nearest(event);
      this.isArmed = place !== null && this.near !== null && place.item === this.near.item; // a first tap only names
      this.highlight(place);
    });
    this.root.addEventListener("click", () => {
      if (this.isArmed && this.near) onChoice(this.near);
    });
  }

  /** Draw the items, which never change for one model. */
  drawItems(answer) {
    this.trail = [];
    this.items = answer.items;
    this.past = svg("g");
    this.listed = svg("g");
    this.path = svg("polyline", { class: "trail", points: "" });
    this.cloned = this.arrow("cloned", 0.032);
    this.action = this.arrow("action", 0.045);
    this.ring = svg("circle", { class: "ring", r: 0.045, visibility: "hidden" });
    this.label = svg("text", { class: "name", visibility: "hidden" });
    this.root.replaceChildren(
      svg("circle", { class: "rim", r: 1 }),
      svg("line", { class: "axis", x1: -1, x2: 1, y1: 0, y2: 0 }),
      svg("line", { class: "axis", y1: -1, y2: 1, x1: 0, x2: 0 }),
      svg("g", { id: "sphere-items" }, ...answer.items.map((place) => dot("item", place, 0.013))),
      this.listed,
      this.past,
      this.path,
      ...this.cloned,
      ...this.action,
      this.ring,
      this.label,
    );
    const shown = answer.items.length;
    const which = shown < answer.total ? `the ${counted(shown)} most popular of ${counted(answer.total)} items` : `all ${counted(shown)} items`;
    byId("sphere-note").textContent =
      `Shown: ${which}, on their two leading principal directions, which hold ${Math.round(100 * answer.share)} % ` +
      "of the variance. The circle has radius 1. Point at an item to see its name; click to add it to the history.";
  }

  arrow(name, radius) {
    return [
      svg("line", { class: `ray ${name}`, x1: 0, y1: 0, x2: 0, y2: 0, visibility: "hidden" }),
      svg("circle", { class: `tip ${name}`, id: name, r: radius, visibility: "hidden" }),
    ];
  }

  /** Move the action and mark the items of the history and of the list; what happened, in words. */
  move(answer, past) {
    const inHistory = new Set(past);
    this.marked = answer.items;
    this.listed.replaceChildren(...answer.items.filter((p) => !inHistory.has(p.item)).map((p) => dot("listed", p, 0.026)));
    this.past.replaceChildren(...answer.items.filter((p) => inHistory.has(p.item)).map((p) => dot("past", p, 0.03)));
    const { action, cloned } = answer;
    point(this.action, action);
    point(this.cloned, cloned);
    if (action === null) {
      this.trail = [];
      this.path.setAttribute("points", "");
      return "No item of the history is known, so there is no action yet. Popular items are recommended.";
    }
    const here = [action.x, -action.y];
    const before = this.trail.at(-1);
    const moved = before ? Math.hypot(here[0] - before[0], here[1] - before[1]) : 0;
    if (!before || moved > 1e-4) this.trail = [...this.trail, here].slice(-TRAIL);
    this.path.setAttribute("points", this.trail.map((place) => place.join(",")).join(" "));
    const at = `The action is at (${number(action.x, 2)}, ${number(action.y, 2)})`;
    return before && moved > 1e-4 ? `${at}; it moved by ${number(moved, 2)}.` : `${at}.`;
  }

  /** Show which point an item is; null shows none. */
  highlight(wanted) {
    if (!this.label) return;
    const place = wanted && [...this.marked, ...this.items].find((candidate) => candidate.item === wanted.item);
    this.near = place || null;
    for (const part of [this.ring, this.label]) part.setAttribute("visibility", place ? "visible" : "hidden");
    if (!place) return;
    this.ring.setAttribute("cx", place.x);
    this.ring.setAttribute("cy", -place.y);
    this.label.textContent = shortName(place, 36);
    this.label.setAttribute("text-anchor", place.x < -0.35 ? "start" : place.x > 0.35 ? "end" : "middle");
    this.label.setAttribute("x", Math.max(-1.04, Math.min(1.04, place.x)));
    this.label.setAttribute("y", -place.y + (place.y > 0.85 ? 0.13 : -0.08));
  }

  nearest(event) {
    const frame = this.root.getBoundingClientRect();
    const x = ((event.clientX - frame.left) / frame.width - 0.5) * 2.16;
    const y = (0.5 - (event.clientY - frame.top) / frame.height) * 2.16;
    let best = null;
    let least = REACH;
    for (const place of [...this.marked, ...this.items]) {
      const distance = Math.hypot(place.x - x, place.y - y);
      if (distance < least) [best, least] = [place, distance];
    }
    return best;
  }
}

function point([ray, tip], place) {
  for (const part of [ray, tip]) part.setAttribute("visibility", place ? "visible" : "hidden");
  if (!place) return;
  tip.dataset.x = place.x;
  tip.dataset.y = place.y;
  tip.style.transform = `translate(${place.x}px, ${-place.y}px)`;
  ray.setAttribute("x2", place.x);
  ray.setAttribute("y2", -place.y);
}

function dot(kind, place, radius) {
  return svg("circle", { class: kind, cx: place.x, cy: -place.y, r: radius, "data-item": place.item });
}
