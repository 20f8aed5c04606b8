// The page: a history that the user builds, the list that follows it, the sphere, and played sessions.

import { byId, counted, el, isStill, itemLabel, number, shortName, show } from "./dom.js";
import { Channel, debounced, hasToken, onBack, onLost, onToken, setToken } from "./server.js";
import { SessionView } from "./session.js";
import { SphereView } from "./sphere.js";

const WEIGHTS = [0, 0.1, 0.2, 0.5, 1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 200, 500, 1000];
const LONGEST_HISTORY = 200; // events; the page stays quick with them
const COMPARED = 100; // first items of the supervised policy, against which ranks are compared
const MATCHES = 8;
const FIT_MS = 2000; // between two questions whether the simulator is fitted

const channels = Object.fromEntries(
  ["info", "search", "list", "items", "action", "play"].map((name) => [name, new Channel()]),
);
const sphere = new SphereView((item) => addEvent(item));
const session = new SessionView();
const state = {
  info: null,
  history: [],
  listed: [],
  unknown: new Set(),
  weights: WEIGHTS,
  hasSphere: false,
  matches: [],
  active: -1, // the match that Enter adds
  cloned: { key: null, rank: new Map() }, // ranks of the supervised policy, and the question they answer
  fitTimer: null,
};

// ---------------------------------------------------------------------------------------------- model

/** Ask for everything anew: at the start, after a pause of the server, after another model was loaded. */
async function start() {
  try {
    const result = await channels.info.ask("v1/page");
    if (result === null) return;
    show(byId("token-form"), false);
    useModel(result.answer);
    await Promise.all([recommend(), loadSphere()]);
  } catch (error) {
    fail("list", error);
    if (!state.info) for (const id of ["sphere-status", "session-off"]) byId(id).textContent = error.message;
  }
}

const startSoon = debounced(start, 300);

function useModel(info) {
  const isNew = !state.info || state.info.model.version !== info.model.version;
  state.info = info;
  state.cloned.key = null;
  byId("model-name").textContent = info.model.name;
  byId("model-version").textContent = info.model.version.slice(0, 12) || "–";
  byId("model-method").textContent = `${info.method}, ${info.encoder}`;
  byId("model-items").textContent = counted(info.items);
  document.title = `ecoc – ${info.model.name}`;
  document.body.classList.toggle("no-critic", info.w === null);
  show(byId("weight-field"), info.w !== null);
  show(byId("example"), true);
  showPlayground(info.play);
  if (!isNew) return;
  if (info.w === null) {
    byId("weight-note").textContent = "This model has no critic, so there are no long-term values and no weight w.";
  } else {
    state.weights = [...new Set([...WEIGHTS, info.w])].sort((a, b) => a - b);
    byId("weight").max = String(state.weights.length - 1);
    byId("weight").value = String(state.weights.indexOf(info.w));
    byId("weight-end").textContent = `long-term value, ${state.weights.at(-1)}`;
    byId("weight-note").textContent = `This model’s own weight is ${info.w}.`;
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

const historyToSend = () => state.history.map(({ item, feedback }) => (feedback ? { item, feedback } : item));

function fail(place, error) {
  byId(`${place}-status`).textContent = error.kind === "refused" ? "" : error.message;
  byId(`${place}-error`).textContent = `The server refused this: ${error.message}`;
  show(byId(`${place}-error`), error.kind === "refused"); // a banner shows the others
}

/** Whether the answer comes from the model that the page knows; otherwise the page asks for everything anew. */
function isCurrent(model) {
  if (model.version === state.info.model.version) return true;
  startSoon();
  return false;
}

// ---------------------------------------------------------------------------------------------- search

async function search() {
  const text = byId("search").value.trim();
  showPopup(true);
  byId("search-status").textContent = "Searching…";
  try {
    const result = await channels.search.ask(`v1/items?limit=${MATCHES}&query=${encodeURIComponent(text)}`);
    if (result === null) return;
    const { items, total } = result.answer;
    drawMatches(items);
    setActive(text && items.length ? 0 : -1);
    const first = items.length < total ? `The first ${items.length} of ` : "";
    if (!total) byId("search-status").textContent = "No item matches.";
    else if (!text) byId("search-status").textContent = `Popular items. ${counted(total)} in all.`;
    else byId("search-status").textContent = `${first}${counted(total)} ${total === 1 ? "item" : "items"}. Enter adds the marked one.`;
  } catch (error) {
    drawMatches([]);
    byId("search-status").textContent = error.message;
  }
}

function drawMatches(items) {
  state.matches = items;
  setActive(-1);
  byId("matches").replaceChildren(
    ...items.map((item, place) => {
      const option = el("li", { role: "option", id: `match-${place}`, "aria-selected": "false", "data-item": item.item }, itemLabel(item));
      option.addEventListener("click", () => addMatch(place));
      return option;
    }),
  );
}

function showPopup(isShown) {
  show(byId("popup"), isShown);
  byId("search").setAttribute("aria-expanded", String(isShown));
  if (!isShown) setActive(-1);
}

function setActive(place) {
  state.active = place;
  [...byId("matches").children].forEach((option, index) => option.setAttribute("aria-selected", String(index === place)));
  if (place < 0) return byId("search").removeAttribute("aria-activedescendant");
  byId("search").setAttribute("aria-activedescendant", `match-${place}`);
  return byId(`match-${place}`).scrollIntoView({ block: "nearest" });
}

function addMatch(place) {
  const item = state.matches[place];
  showPopup(false);
  byId("search").select(); // the next text replaces this one
  addEvent(item);
}

/** Arrow keys go through the matches, Enter adds the marked one, Escape closes the list. */
function onSearchKey(event) {
  const isOpen = !byId("popup").hidden;
  const last = state.matches.length - 1;
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    event.preventDefault();
    if (!isOpen) search();
    else if (event.key === "ArrowDown") setActive(state.active >= last ? 0 : state.active + 1);
    else setActive(state.active <= 0 ? last : state.active - 1);
  } else if (event.key === "Enter" && isOpen && state.active >= 0) {
    event.preventDefault();
    addMatch(state.active);
  } else if (event.key === "Escape" && isOpen) {
    event.preventDefault();
    showPopup(false);
  }
}

// ---------------------------------------------------------------------------------------------- history

function addEvent(...items) {
  if (state.history.length + items.length > LONGEST_HISTORY) {
    byId("list-status").textContent = `The history is full: it holds ${LONGEST_HISTORY} events.`;
    return;
  }
  const feedback = byId("feedback").value || null;
  state.history.push(...items.map((item) => ({ item: item.item, title: item.title, feedback })));
  changed(`${items.map((item) => shortName(item)).join(", ")} added.`);
}

async function addExample() {
  try {
    const result = await channels.search.ask("v1/items?limit=3");
    if (result !== null) addEvent(...result.answer.items);
  } catch (error) {
    fail("list", error);
  }
  byId("search").focus();
  showPopup(false);
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
    changed(`${shortName(event)} is event ${place + by + 1}.`);
    focusEvent(place + by, by < 0 ? "up" : "down");
  };
  const remove = () => {
    state.history.splice(place, 1);
    changed(`${shortName(event)} removed.`);
    focusEvent(Math.min(place, state.history.length - 1), "remove");
  };
  const actions = el(
    "div",
    { class: "actions" },
    actionButton("up", "↑", `Move ${shortName(event)} up`, place === 0, move(-1)),
    actionButton("down", "↓", `Move ${shortName(event)} down`, place === state.history.length - 1, move(1)),
    actionButton("remove", "×", `Remove ${shortName(event)}`, false, remove),
  );
  if (state.info.feedback.length) {
    const select = el("select", { "aria-label": `Feedback of ${shortName(event)}` }, ...feedbackOptions(state.info.feedback, event.feedback));
    select.addEventListener("change", () => {
      event.feedback = select.value || null;
      recommend();
    });
    actions.prepend(select);
  }
  const row = el("li", { "data-item": event.item }, itemLabel(event), actions);
  row.classList.toggle("unknown", state.unknown.has(event.item));
  return row;
}

function actionButton(name, sign, label, isDisabled, call) {
  const button = el("button", { type: "button", class: name, "aria-label": label, title: label }, sign);
  button.disabled = isDisabled;
  button.addEventListener("click", call);
  return button;
}

/** Keep the keyboard where it was after the rows were drawn anew. */
function focusEvent(place, name) {
  const row = byId("events").children[place];
  if (!row) return focusSearch();
  const wanted = row.querySelector(`.${name}:not(:disabled)`) || row.querySelector("button:not(:disabled)");
  return wanted.focus();
}

function focusSearch() {
  byId("search").focus();
  showPopup(false);
}

// ---------------------------------------------------------------------------------------------- list

async function recommend() {
  if (!state.info) return;
  const wanted = {
    history: historyToSend(),
    k: Number(byId("count").value),
    exclude_seen: byId("exclude-seen").checked,
    ...ranking(),
  };
  const { w, k, ...rest } = wanted;
  const compared = { ...rest, k: COMPARED, rank_by: "policy" };
  const key = JSON.stringify(compared);
  const isCompared = weight() !== null && state.history.length > 0;
  const body = isCompared && key !== state.cloned.key ? [wanted, compared] : [wanted];
  showRequest(wanted);
  byId("list-box").setAttribute("aria-busy", "true");
  try {
    const result = await channels.list.ask("v1/recommend", body);
    if (result === null || !isCurrent(result.answer[0].model)) return;
    const [list, cloned] = result.answer;
    if (cloned) state.cloned = { key, rank: new Map(cloned.items.map((item, place) => [item.item, place])) };
    drawList(list, isCompared ? state.cloned.rank : null);
    byId("latency").textContent = `${number(result.ms, result.ms < 10 ? 1 : 0)} ms`;
    byId("list-box").setAttribute("aria-busy", "false");
    await moveAction();
  } catch (error) {
    byId("list-box").setAttribute("aria-busy", "false");
    byId("list-box").classList.add("stale"); // it does not follow this history
    fail("list", error);
  }
}

function drawList(answer, clonedRank) {
  show(byId("list-error"), false);
  const rows = byId("rows");
  const before = new Map([...rows.children].map((row) => [row.dataset.item, row.getBoundingClientRect().top]));
  byId("list-box").classList.remove("stale");
  const focused = [...rows.children].findIndex((row) => row.contains(document.activeElement));
  state.listed = answer.items.map((item) => item.item);
  rows.replaceChildren(...answer.items.map((item, place) => listRow(item, place, clonedRank)));
  if (focused >= 0) (rows.querySelectorAll(".add")[Math.min(focused, state.listed.length - 1)] || byId("search")).focus();
  if (before.size && !isStill()) animate(rows, before);
  state.unknown = new Set(answer.unknown);
  for (const row of byId("events").children) row.classList.toggle("unknown", state.unknown.has(row.dataset.item));
  byId("list-status").textContent = listStatus(answer);
}

/** Let rows slide from where they were. */
function animate(rows, before) {
  const tops = [...rows.children].map((row) => row.getBoundingClientRect().top);
  [...rows.children].forEach((row, place) => {
    const from = before.get(row.dataset.item);
    const frames = from === undefined ? [{ opacity: 0 }, { opacity: 1 }] : [{ transform: `translateY(${from - tops[place]}px)` }, { transform: "none" }];
    if (from !== tops[place]) row.animate(frames, { duration: 250, easing: "ease-out" });
  });
}

function listStatus(answer) {
  if (!answer.items.length) return "No item is left to recommend.";
  const count = `${answer.items.length} items.`;
  if (answer.unknown.length === state.history.length) {
    const why = state.history.length ? "The model knows no item of the history" : "The history is empty";
    return `${count} ${why}, so these are popular items${weight() === null ? "" : ", whatever w is"}.`;
  }
  const unknown = answer.unknown.length ? ` Unknown to the model and ignored: ${answer.unknown.length}.` : "";
  return `${count} First: ${shortName(answer.items[0], 40)}.${unknown}`;
}

function listRow(item, place, clonedRank) {
  const add = el("button", { type: "button", class: "add", "aria-label": `Add ${shortName(item)} to the history`, title: "Add to the history" }, "+");
  add.addEventListener("click", () => addEvent(item));
  const row = el(
    "tr",
    { "data-item": item.item },
    el("td", { class: "right rank" }, String(place + 1), shift(clonedRank, item.item, place)),
    el("th", { scope: "row" }, itemLabel(item)),
    el("td", { class: "right" }, number(item.score)),
    el("td", { class: "right value" }, item.value === null ? "–" : number(item.value, 2)),
    el("td", {}, add),
  );
  for (const name of ["pointerenter", "focusin"]) row.addEventListener(name, () => sphere.highlight(item));
  for (const name of ["pointerleave", "focusout"]) row.addEventListener(name, () => sphere.highlight(null));
  return row;
}

/** Places by which an item is above or below its rank at w = 0. */
function shift(clonedRank, item, place) {
  const cell = el("span", { class: "shift" });
  if (clonedRank === null) return cell;
  const isCompared = clonedRank.has(item);
  const by = (isCompared ? clonedRank.get(item) : COMPARED) - place;
  if (by === 0) return cell;
  cell.classList.add(by > 0 ? "up" : "down");
  cell.title = isCompared ? `Rank ${clonedRank.get(item) + 1} at w = 0` : `Not among the first ${COMPARED} at w = 0`;
  cell.append(el("span", { "aria-hidden": "true" }, `${by > 0 ? "▲" : "▼"}${Math.abs(by)}${isCompared ? "" : "+"}`), el("span", { class: "sr" }, cell.title));
  return cell;
}

/** The request as a line for a shell. */
function showRequest(wanted) {
  const quoted = JSON.stringify(wanted).replaceAll("'", "'\\''");
  const token = hasToken() ? '-H "Authorization: Bearer $ECOC_TOKEN" ' : "";
  byId("request-text").textContent = `curl -s ${token}--json '${quoted}' ${location.origin}/v1/recommend`;
}

// ---------------------------------------------------------------------------------------------- sphere

async function loadSphere() {
  state.hasSphere = false;
  for (const id of ["sphere", "sphere-legend", "sphere-note"]) show(byId(id), state.info.has_sphere);
  if (!state.info.has_sphere) {
    byId("sphere-status").textContent = `Method ${state.info.method} has no item vectors, so there is no sphere to draw.`;
    return;
  }
  try {
    const result = await channels.items.ask("v1/sphere");
    if (result === null || !isCurrent(result.answer.model)) return;
    sphere.drawItems(result.answer);
    state.hasSphere = true;
    await moveAction();
  } catch (error) {
    byId("sphere-status").textContent = error.message;
  }
}

async function moveAction() {
  if (!state.hasSphere) return;
  const past = state.history.map((event) => event.item);
  const items = [...new Set([...past, ...state.listed])];
  try {
    const result = await channels.action.ask("v1/sphere", { history: historyToSend(), items, ...ranking() });
    if (result === null || !isCurrent(result.answer.model)) return;
    byId("sphere-status").textContent = sphere.move(result.answer, past);
  } catch (error) {
    byId("sphere-status").textContent = error.message;
  }
}

// ---------------------------------------------------------------------------------------------- session

function showPlayground(ground) {
  const isReady = ground.status === "ready";
  show(byId("session-form"), isReady);
  show(byId("session-off"), !isReady);
  byId("session-off").textContent = ground.reason || "";
  clearTimeout(state.fitTimer);
  if (ground.status === "fitting") state.fitTimer = setTimeout(askPlayground, FIT_MS);
  if (!isReady) return;
  const counts = [...new Set([ground.most_users, 10, 1])].filter((users) => users <= ground.most_users);
  const chosen = Number(byId("users").value);
  byId("users").replaceChildren(
    ...counts.map((users) => el("option", { value: String(users) }, users === 1 ? "1 user" : `${users} users, mean`)),
  );
  if (counts.includes(chosen)) byId("users").value = String(chosen);
  byId("session-lead").textContent =
    state.info.w === null
      ? `This model has no critic, so its only ranking is played in ${ground.place}.`
      : `ECoC with the weight w above and the supervised policy (w = 0) meet the same users in ${ground.place}.`;
}

/** Ask again whether sessions can be played; everything else on the page stays. */
async function askPlayground() {
  try {
    const result = await channels.info.ask("v1/page");
    if (result === null) return;
    if (isCurrent(result.answer.model)) showPlayground(result.answer.play);
  } catch {
    // the banner shows it, and the page asks for everything when the server is back
  }
}

async function play(event) {
  event.preventDefault();
  session.stop();
  show(byId("session-error"), false);
  byId("session-status").textContent = "Playing…";
  byId("play").setAttribute("aria-disabled", "true");
  const body = { users: Number(byId("users").value), seed: Number(byId("seed").value) };
  if (weight() !== null) body.w = weight();
  try {
    const result = await channels.play.ask("v1/play", body);
    if (result === null) return;
    show(byId("stop"), true);
    session.start(result.answer, () => {
      if (byId("stop") === document.activeElement) byId("play").focus();
      show(byId("stop"), false);
      byId("session-status").textContent = session.summary();
    });
  } catch (error) {
    fail("session", error);
  } finally {
    byId("play").removeAttribute("aria-disabled");
  }
}

// ---------------------------------------------------------------------------------------------- events

onLost((message) => {
  byId("offline").textContent = message;
  show(byId("offline"), true);
  byId("latency").textContent = "–";
});
onBack(() => {
  show(byId("offline"), false);
  start();
});
onToken((wasSent) => {
  if (byId("token-form").hidden) {
    show(byId("token-form"), true);
    byId("token").focus();
  }
  byId("token-note").textContent = wasSent ? "The server refused this token." : "";
});
byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  setToken(byId("token").value.trim());
  byId("token").value = "";
  start();
});
byId("search").addEventListener("input", debounced(search, 120));
byId("search").addEventListener("click", () => byId("popup").hidden && search());
byId("search").addEventListener("keydown", onSearchKey);
byId("search").addEventListener("blur", () => showPopup(false));
byId("popup").addEventListener("pointerdown", (event) => event.preventDefault()); // the field keeps the focus
const recommendSoon = debounced(recommend, 30);
byId("weight").addEventListener("input", () => {
  showWeight();
  recommendSoon();
});
byId("count").addEventListener("change", recommend);
byId("exclude-seen").addEventListener("change", recommend);
byId("example").addEventListener("click", addExample);
byId("clear").addEventListener("click", () => {
  state.history = [];
  changed("All events removed.");
  focusSearch();
});
byId("session-form").addEventListener("submit", play);
byId("stop").addEventListener("click", () => session.stop());
addEventListener("resize", debounced(() => session.session && session.draw(), 150));
start();
