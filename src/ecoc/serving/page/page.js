// The page: a history that the user builds, the list that follows it, the sphere, and played sessions.

import { byId, el, itemLabel, number, show, spoken } from "./dom.js";
import { Channel, debounced, onOffline, onOnline, onToken, setToken } from "./server.js";
import { SessionView } from "./session.js";
import { SphereView } from "./sphere.js";

const WEIGHTS = [0, 0.1, 0.2, 0.5, 1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 200, 500, 1000];
const LONGEST_HISTORY = 200; // events; the page stays quick with them

const channels = Object.fromEntries(
  ["info", "search", "list", "items", "action", "play"].map((name) => [name, new Channel()]),
);
const sphere = new SphereView();
const session = new SessionView();
const state = { info: null, history: [], listed: [], unknown: new Set(), weights: WEIGHTS, hasSphere: false };

// ---------------------------------------------------------------------------------------------- model

/** Ask for everything anew: at the start, after a pause of the server, after another model was loaded. */
async function start() {
  try {
    const result = await channels.info.ask("v1/page");
    if (result === null) return;
    show(byId("token-form"), false);
    useModel(result.answer);
    await Promise.all([search(), recommend(), loadSphere()]);
  } catch (error) {
    if (error.kind === "refused") fail("list", error);
  }
}

function useModel(info) {
  const isNew = !state.info || state.info.model.version !== info.model.version;
  state.info = info;
  byId("model-name").textContent = info.model.name;
  byId("model-version").textContent = info.model.version.slice(0, 12) || "–";
  byId("model-method").textContent = `${info.method}, ${info.encoder}`;
  byId("model-items").textContent = info.items.toLocaleString("en");
  document.title = `ecoc – ${info.model.name}`;
  document.body.classList.toggle("no-critic", info.w === null);
  show(byId("weight-field"), info.w !== null);
  showPlayground(info.play);
  if (!isNew) return;
  if (info.w !== null) {
    state.weights = [...new Set([...WEIGHTS, info.w])].sort((a, b) => a - b);
    byId("weight").max = String(state.weights.length - 1);
    byId("weight").value = String(state.weights.indexOf(info.w));
    showWeight();
  }
  const names = info.feedback;
  byId("feedback").replaceChildren(...feedbackOptions(names, names[names.length > 1 ? 1 : 0]));
  show(byId("feedback-field"), names.length > 0);
  drawHistory();
}

function feedbackOptions(names, chosen) {
  const options = [el("option", { value: "" }, "not known"), ...names.map((name) => el("option", { value: name }, name))];
  for (const option of options) option.selected = option.value === (chosen || "");
  return options;
}

const weight = () => (state.info.w === null ? null : state.weights[Number(byId("weight").value)]);

function showWeight() {
  const text = String(weight());
  byId("weight-shown").textContent = text;
  byId("weight").setAttribute("aria-valuetext", `w ${text}`);
}

const ranking = () => (weight() === null ? {} : { rank_by: "blend", w: weight() });

function fail(place, error) {
  if (error.kind === "offline" || error.kind === "token") return; // the banner says so
  byId(`${place}-error`).textContent = error.message;
  show(byId(`${place}-error`), true);
  byId(`${place}-status`).textContent = "";
}

/** Whether the answer comes from the model that the page knows; otherwise the page asks for everything anew. */
function isCurrent(answer) {
  if (answer.model.version === state.info.model.version) return true;
  start();
  return false;
}

// ---------------------------------------------------------------------------------------------- search

async function search() {
  const text = byId("search").value.trim();
  byId("search-status").textContent = "Searching…";
  try {
    const result = await channels.search.ask(`v1/items?limit=8&query=${encodeURIComponent(text)}`);
    if (result === null) return;
    const { items, total } = result.answer;
    byId("found").replaceChildren(...items.map(foundItem));
    const count = total.toLocaleString("en");
    if (!text) byId("search-status").textContent = `Popular items, of ${count}.`;
    else if (!total) byId("search-status").textContent = "No item matches.";
    else byId("search-status").textContent = total > items.length ? `${items.length} of ${count} matches.` : `${count} found. Enter adds the first.`;
  } catch (error) {
    byId("found").replaceChildren();
    byId("search-status").textContent = error.message;
  }
}

function foundItem(item) {
  const button = el("button", { type: "button", "data-item": item.item }, itemLabel(item));
  button.addEventListener("click", () => addEvent(item));
  return el("li", {}, button);
}

/** Arrow keys go through the results; Enter in the field adds the first one. */
function onSearchKey(event) {
  const buttons = [...byId("found").querySelectorAll("button")];
  const place = buttons.indexOf(document.activeElement);
  if (event.key === "Enter" && event.target === byId("search") && buttons.length && byId("search").value.trim()) {
    event.preventDefault();
    buttons[0].click();
  } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    event.preventDefault();
    const next = place + (event.key === "ArrowDown" ? 1 : -1);
    if (next < 0) byId("search").focus();
    else if (next < buttons.length) buttons[next].focus();
  }
}

// ---------------------------------------------------------------------------------------------- history

function addEvent(item) {
  if (state.history.length >= LONGEST_HISTORY) {
    byId("history-status").textContent = `The history is full: it holds ${LONGEST_HISTORY} events.`;
    return;
  }
  const event = { item: item.item, title: item.title, feedback: byId("feedback").value || null };
  state.history.push(event);
  changed(`${spoken(item)} added.`);
}

function changed(text) {
  drawHistory();
  byId("history-status").textContent = text;
  recommend();
}

function drawHistory() {
  const { history } = state;
  byId("event-count").textContent = history.length ? `(${history.length})` : "";
  show(byId("no-events"), history.length === 0);
  show(byId("clear"), history.length > 0);
  byId("events").replaceChildren(...history.map(historyRow));
}

function historyRow(event, place) {
  const move = (by) => () => {
    state.history.splice(place, 1);
    state.history.splice(place + by, 0, event);
    changed(`${spoken(event)} is event ${place + by + 1}.`);
    focusEvent(place + by, by < 0 ? "up" : "down");
  };
  const remove = () => {
    state.history.splice(place, 1);
    changed(`${spoken(event)} removed.`);
    focusEvent(Math.min(place, state.history.length - 1), "remove");
  };
  const buttons = [
    actionButton("up", "↑", `Move ${spoken(event)} up`, place === 0, move(-1)),
    actionButton("down", "↓", `Move ${spoken(event)} down`, place === state.history.length - 1, move(1)),
    actionButton("remove", "×", `Remove ${spoken(event)}`, false, remove),
  ];
  const row = el("li", { "data-item": event.item }, itemLabel(event), el("div", { class: "actions" }, ...buttons));
  row.classList.toggle("unknown", state.unknown.has(event.item));
  if (state.info.feedback.length) {
    const select = el("select", { "aria-label": `Feedback of ${spoken(event)}` }, ...feedbackOptions(state.info.feedback, event.feedback));
    select.addEventListener("change", () => {
      event.feedback = select.value || null;
      recommend();
    });
    row.append(select);
  }
  return row;
}

function actionButton(name, sign, label, isDisabled, call) {
  const button = el("button", { type: "button", class: name, "aria-label": label }, sign);
  button.disabled = isDisabled;
  button.addEventListener("click", call);
  return button;
}

/** Keep the keyboard where it was after the rows were drawn anew. */
function focusEvent(place, name) {
  const row = byId("events").children[place];
  if (!row) return byId("search").focus();
  const wanted = row.querySelector(`.${name}:not(:disabled)`) || row.querySelector("button:not(:disabled)");
  return wanted.focus();
}

// ---------------------------------------------------------------------------------------------- list

async function recommend() {
  if (!state.info) return;
  const history = state.history.map(({ item, feedback }) => (feedback ? { item, feedback } : item));
  const body = { history, k: Number(byId("count").value), exclude_seen: byId("exclude-seen").checked, ...ranking() };
  byId("list-box").setAttribute("aria-busy", "true");
  try {
    const result = await channels.list.ask("v1/recommend", body);
    if (result === null || !isCurrent(result.answer)) return;
    drawList(result.answer);
    byId("latency").textContent = `${number(result.ms, result.ms < 10 ? 1 : 0)} ms`;
    await moveAction(history);
  } catch (error) {
    fail("list", error);
  } finally {
    byId("list-box").setAttribute("aria-busy", "false");
  }
}

function drawList(answer) {
  show(byId("list-error"), false);
  const before = state.listed;
  state.listed = answer.items.map((item) => item.item);
  byId("rows").replaceChildren(...answer.items.map((item, place) => listRow(item, place, before)));
  state.unknown = new Set(answer.unknown);
  for (const row of byId("events").children) row.classList.toggle("unknown", state.unknown.has(row.dataset.item));
  byId("list-status").textContent = listStatus(answer);
}

function listStatus(answer) {
  if (!answer.items.length) return "No item is left to list.";
  const count = `${answer.items.length} items.`;
  if (!state.history.length) return `${count} The history is empty, so these are popular items.`;
  const unknown = answer.unknown.length ? ` ${answer.unknown.length} events are unknown to the model and ignored.` : "";
  return `${count} First: ${spoken(answer.items[0])}.${unknown}`;
}

function listRow(item, place, before) {
  const add = el("button", { type: "button", class: "add", "aria-label": `Add ${spoken(item)} to the history`, title: "Add to the history" }, "+");
  add.addEventListener("click", () => addEvent(item));
  return el(
    "tr",
    { "data-item": item.item },
    el("td", { class: "right" }, String(place + 1), movement(before.indexOf(item.item), place, before.length)),
    el("th", { scope: "row" }, itemLabel(item)),
    el("td", { class: "right" }, number(item.score)),
    el("td", { class: "right value" }, item.value === null ? "–" : number(item.value, 2)),
    el("td", {}, add),
  );
}

/** How an item moved since the list before. */
function movement(from, to, count) {
  if (!count || from === to) return el("span", { class: "moved" });
  if (from < 0) return el("span", { class: "moved", title: "not in the list before" }, "new");
  const text = from > to ? `▲${from - to}` : `▼${to - from}`;
  return el("span", { class: `moved ${from > to ? "up" : "down"}`, title: `rank ${from + 1} before` }, text);
}

// ---------------------------------------------------------------------------------------------- sphere

async function loadSphere() {
  if (!state.info.has_sphere) {
    state.hasSphere = false;
    show(byId("sphere").parentElement, true);
    show(byId("sphere"), false);
    show(byId("sphere-legend"), false);
    byId("sphere-status").textContent = `Method ${state.info.method} has no item vectors, so there is no sphere to draw.`;
    return;
  }
  try {
    const result = await channels.items.ask("v1/sphere");
    if (result === null) return;
    for (const id of ["sphere", "sphere-legend"]) byId(id).removeAttribute("hidden");
    sphere.drawItems(result.answer);
    state.hasSphere = true;
    await moveAction(state.history.map(({ item, feedback }) => (feedback ? { item, feedback } : item)));
  } catch (error) {
    byId("sphere-status").textContent = error.message;
  }
}

async function moveAction(history) {
  if (!state.hasSphere) return;
  const past = state.history.map((event) => event.item);
  const items = [...new Set([...past, ...state.listed])];
  try {
    const result = await channels.action.ask("v1/sphere", { history, items, ...ranking() });
    if (result === null || !isCurrent(result.answer)) return;
    byId("sphere-status").textContent = sphere.move(result.answer, past);
  } catch (error) {
    byId("sphere-status").textContent = error.message;
  }
}

// ---------------------------------------------------------------------------------------------- session

function showPlayground(ground) {
  show(byId("session-form"), ground.status === "ready");
  show(byId("session-off"), ground.status !== "ready");
  byId("session-off").textContent = ground.reason || "";
  if (ground.status === "fitting") setTimeout(start, 3000);
  if (ground.status !== "ready") return;
  const many = ground.most_users;
  const options = [el("option", { value: "1" }, "one user, every step")];
  if (many > 1) options.push(el("option", { value: String(many) }, `mean over ${many} users`));
  const chosen = byId("users").value;
  byId("users").replaceChildren(...options);
  if (options.some((option) => option.value === chosen)) byId("users").value = chosen;
  byId("session-lead").textContent =
    state.info.w === null
      ? `This model has no critic, so its only ranking is played, in ${ground.place}.`
      : `The blend with the weight w above and the supervised policy (w = 0) meet the same users in ${ground.place}.`;
}

async function play(event) {
  event.preventDefault();
  session.stop();
  show(byId("session-error"), false);
  byId("session-status").textContent = "Playing…";
  byId("play").disabled = true;
  const body = { users: Number(byId("users").value), seed: Number(byId("seed").value) };
  if (weight() !== null) body.w = weight();
  try {
    const result = await channels.play.ask("v1/play", body);
    if (result === null) return;
    show(byId("stop"), true);
    session.start(result.answer, () => {
      show(byId("stop"), false);
      byId("session-status").textContent = session.summary();
    });
  } catch (error) {
    byId("session-status").textContent = "";
    fail("session", error);
  } finally {
    byId("play").disabled = false;
  }
}

// ---------------------------------------------------------------------------------------------- events

onOffline(() => {
  byId("offline").textContent = "The server does not answer. The page asks again every 2 seconds and goes on by itself.";
  show(byId("offline"), true);
  byId("latency").textContent = "–";
});
onOnline(() => {
  show(byId("offline"), false);
  start();
});
onToken((wasGiven) => {
  if (byId("token-form").hidden) {
    show(byId("token-form"), true);
    byId("token").focus();
  }
  byId("token-note").textContent = wasGiven ? "The server refused this token." : "";
});
byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  setToken(byId("token").value.trim());
  byId("token").value = "";
  start();
});
byId("search").addEventListener("input", debounced(search, 150));
byId("history-panel").addEventListener("keydown", (event) => {
  if (event.target === byId("search") || byId("found").contains(event.target)) onSearchKey(event);
});
const later = debounced(recommend, 60);
byId("weight").addEventListener("input", () => {
  showWeight();
  later();
});
byId("count").addEventListener("change", recommend);
byId("exclude-seen").addEventListener("change", recommend);
byId("clear").addEventListener("click", () => {
  state.history = [];
  changed("All events removed.");
  byId("search").focus();
});
byId("session-form").addEventListener("submit", play);
byId("stop").addEventListener("click", () => session.stop());
addEventListener("resize", debounced(() => session.session && session.draw(), 150));
start();
