// The unit sphere in two dimensions: items, the list, the history, and the action with its path.

import { byId, number, svg } from "./dom.js";

const TRAIL = 30; // earlier actions that are kept

export class SphereView {
  constructor() {
    this.root = byId("sphere");
    this.trail = [];
  }

  /** Draw the items, which never change for one model. */
  drawItems(answer) {
    this.trail = [];
    const dots = answer.items.map((place) => dot("item", place, 0.013));
    this.past = svg("g");
    this.listed = svg("g");
    this.path = svg("polyline", { class: "trail", points: "" });
    this.ray = svg("line", { class: "ray", x1: 0, y1: 0, x2: 0, y2: 0, visibility: "hidden" });
    this.action = svg("circle", { class: "action", id: "action", r: 0.045, visibility: "hidden" });
    this.root.replaceChildren(
      svg("circle", { class: "rim", r: 1 }),
      svg("line", { class: "axis", x1: -1, x2: 1, y1: 0, y2: 0 }),
      svg("line", { class: "axis", y1: -1, y2: 1, x1: 0, x2: 0 }),
      svg("g", { id: "sphere-items" }, ...dots),
      this.listed,
      this.past,
      this.path,
      this.ray,
      this.action,
    );
    const shown = answer.items.length;
    const which = shown < answer.total ? `the ${shown.toLocaleString("en")} most popular of ${answer.total.toLocaleString("en")} items` : `all ${shown.toLocaleString("en")} items`;
    byId("sphere-note").textContent =
      `Shown: ${which}, projected on their two leading principal directions, which hold ` +
      `${Math.round(100 * answer.share)} % of the variance. The circle has radius 1.`;
  }

  /** Move the action and mark the items of the history and of the list. */
  move(answer, past) {
    const inHistory = new Set(past);
    const places = answer.items;
    this.listed.replaceChildren(...places.filter((p) => !inHistory.has(p.item)).map((p) => dot("listed", p, 0.026)));
    this.past.replaceChildren(...places.filter((p) => inHistory.has(p.item)).map((p) => dot("past", p, 0.03)));
    const action = answer.action;
    if (action === null) {
      this.trail = [];
      this.action.setAttribute("visibility", "hidden");
      this.ray.setAttribute("visibility", "hidden");
      this.path.setAttribute("points", "");
      return "No known item is in the history, so there is no action: popular items are listed.";
    }
    const [x, y] = [action.x, -action.y];
    const before = this.trail.at(-1);
    const moved = before ? Math.hypot(x - before[0], y - before[1]) : 0;
    if (!before || moved > 1e-4) this.trail = [...this.trail, [x, y]].slice(-TRAIL);
    this.path.setAttribute("points", this.trail.map((point) => point.join(",")).join(" "));
    this.action.dataset.x = action.x;
    this.action.dataset.y = action.y;
    this.action.style.transform = `translate(${x}px, ${y}px)`;
    this.ray.setAttribute("x2", x);
    this.ray.setAttribute("y2", y);
    for (const part of [this.action, this.ray]) part.setAttribute("visibility", "visible");
    const at = `The action is at (${number(action.x, 2)}, ${number(action.y, 2)})`;
    return before && moved > 1e-4 ? `${at}; it moved by ${number(moved, 2)}.` : `${at}.`;
  }
}

function dot(kind, place, radius) {
  const circle = svg("circle", { class: kind, cx: place.x, cy: -place.y, r: radius });
  circle.append(svg("title", {}, place.title || place.item));
  return circle;
}
