// A played session: two curves of cumulative reward that grow step by step, and the steps of one user as a table.

import { byId, el, isStill, itemLabel, number, show, svg } from "./dom.js";

const LONGEST_STEP_MS = 220;
const LONGEST_MS = 6000; // of a whole drawing
const HEIGHT = 260;
const ROOM = { left: 46, right: 64, top: 14, bottom: 34 };

export class SessionView {
  constructor() {
    this.timer = null;
    this.onEnd = () => {};
  }

  /** Draw a session as it goes; `onEnd` is told when it is over or was stopped. */
  start(session, onEnd) {
    this.stop();
    this.session = session;
    this.onEnd = onEnd;
    this.shown = 0;
    this.steps = Math.max(...session.policies.map((policy) => policy.cumulative.length));
    show(byId("session"), true);
    byId("session-legend").replaceChildren(
      ...session.policies.map((policy) =>
        el("li", {}, el("span", { class: `stroke ${policy.name}` }), policyName(policy, session)),
      ),
    );
    byId("session-note").textContent = note(session);
    this.prepareTable();
    this.draw();
    if (isStill()) this.finish();
    else this.timer = setInterval(() => this.step(), Math.min(LONGEST_STEP_MS, LONGEST_MS / this.steps));
  }

  step() {
    this.shown += 1;
    this.draw();
    if (this.shown >= this.steps) this.finish();
  }

  finish() {
    this.shown = this.steps;
    this.draw();
    this.stop();
  }

  /** End the drawing where it is. */
  stop() {
    if (this.timer !== null) clearInterval(this.timer);
    this.timer = null;
    const end = this.onEnd;
    this.onEnd = () => {};
    end();
  }

  /** The rewards so far, in words. */
  summary() {
    const parts = this.session.policies.map((policy) => {
      const total = policy.cumulative[Math.min(this.shown, policy.cumulative.length) - 1] || 0;
      return `${policyName(policy, this.session)}: ${number(total, this.session.users > 1 ? 2 : 1)}`;
    });
    return `Reward after ${this.shown} of ${this.steps} steps. ${parts.join("; ")}.`;
  }

  draw() {
    const chart = byId("chart");
    const width = Math.max(280, Math.min(960, chart.parentElement.clientWidth || 640));
    chart.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    const { policies } = this.session;
    const all = policies.flatMap((policy) => policy.cumulative);
    const ticks = niceTicks(Math.min(0, ...all), Math.max(1, ...all));
    const [low, high] = [ticks[0], ticks.at(-1)];
    const x = (step) => ROOM.left + ((width - ROOM.left - ROOM.right) * step) / this.steps;
    const y = (value) => HEIGHT - ROOM.bottom - ((HEIGHT - ROOM.top - ROOM.bottom) * (value - low)) / (high - low);
    const parts = ticks.flatMap((tick) => [
      svg("line", { class: tick === 0 ? "base" : "grid", x1: ROOM.left, x2: width - ROOM.right, y1: y(tick), y2: y(tick) }),
      svg("text", { x: ROOM.left - 8, y: y(tick) + 4, "text-anchor": "end" }, String(tick).replace("-", "−")),
    ]);
    for (let step = 0; step <= this.steps; step += this.steps > 50 ? 20 : this.steps > 10 ? 5 : 1)
      parts.push(svg("text", { x: x(step), y: HEIGHT - ROOM.bottom + 18, "text-anchor": "middle" }, String(step)));
    parts.push(svg("text", { x: (x(0) + x(this.steps)) / 2, y: HEIGHT - 2, "text-anchor": "middle" }, "step"));
    const heights = [];
    for (const policy of policies) {
      const values = [0, ...policy.cumulative.slice(0, this.shown)];
      const points = values.map((value, step) => `${x(step).toFixed(1)},${y(value).toFixed(1)}`);
      parts.push(svg("polyline", { class: `curve ${policy.name}`, id: `curve-${policy.name}`, points: points.join(" ") }));
      const last = values.length - 1;
      parts.push(svg("circle", { class: `end ${policy.name}`, cx: x(last), cy: y(values[last]), r: 4 }));
      let height = y(values[last]) + 4;
      for (const other of heights) if (Math.abs(other - height) < 15) height = other + (height < other ? -15 : 15);
      heights.push(height);
      const digits = this.session.users > 1 ? 2 : 1;
      parts.push(svg("text", { class: `total ${policy.name}`, x: x(last) + 9, y: height }, number(values[last], digits)));
    }
    chart.replaceChildren(...parts);
    this.drawRows();
    byId("session").dataset.step = String(this.shown);
  }

  prepareTable() {
    const { policies, start } = this.session;
    byId("steps-head").replaceChildren(
      el("th", { scope: "col", class: "right" }, "Step"),
      ...policies.map((policy) => el("th", { scope: "col" }, policyName(policy, this.session))),
    );
    const before = start.slice(-5).map((step) =>
      el("tr", { class: "start" }, el("th", { scope: "row", class: "right" }, "before"), el("td", { colspan: policies.length }, shownItem(step))),
    );
    byId("step-rows").replaceChildren(...before);
    this.rows = 0;
  }

  drawRows() {
    for (; this.rows < this.shown; this.rows += 1) {
      const cells = this.session.policies.map((policy) => {
        const step = policy.steps[this.rows];
        return el("td", {}, step ? shownItem(step) : "–");
      });
      byId("step-rows").append(el("tr", {}, el("th", { scope: "row", class: "right" }, String(this.rows + 1)), ...cells));
    }
    const box = byId("steps-box");
    if (this.timer !== null) box.scrollTop = box.scrollHeight;
  }
}

function shownItem(step) {
  const did = step.reward > 0 ? `${step.feedback}, reward ${number(step.reward, 1)}` : step.feedback;
  return el("div", {}, itemLabel({ item: step.item, title: step.title }), el("span", { class: step.reward > 0 ? "did reward" : "did" }, did));
}

/** The name of a ranking in the legend. */
function policyName(policy, session) {
  if (policy.name === "blend") return `ECoC, w = ${policy.w}`;
  return session.policies.length > 1 ? "Supervised policy" : "This policy";
}

function note(session) {
  const who = session.users > 1 ? `Mean reward of ${session.users} users so far` : "Reward of one user so far";
  const pair = session.policies.length > 1 ? " Both rankings meet the same users and the same random numbers." : "";
  const before = session.start.length ? " Events marked “before” come from the log’s policy and do not count." : "";
  const warning = session.warnings.length ? ` Do not rely on these figures: ${session.warnings.join("; ")}.` : "";
  return `${who}, in ${session.place}.${pair}${before}${warning}`;
}

/** Round numbers from at or below `low` to at or above `high`. */
function niceTicks(low, high) {
  const rough = (high - low) / 4;
  const size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * size).find((candidate) => candidate >= rough);
  const first = Math.floor(low / step);
  const count = Math.ceil(high / step - 1e-9) - first;
  return Array.from({ length: count + 1 }, (_, place) => Number(((first + place) * step).toPrecision(12)));
}
