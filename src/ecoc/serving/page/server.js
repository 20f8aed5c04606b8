// Requests to the server: token, time limit, answers that come too late, and what happens when it stops.

const TOKEN = "ecoc-token";
const RETRY_MS = 2000;
const LIMIT_MS = 15000;

/** A failure with a line for people. `kind` is offline, busy, token or refused. */
export class Failure extends Error {
  constructor(kind, message) {
    super(message);
    this.kind = kind;
  }
}

const listeners = { lost: () => {}, back: () => {}, token: () => {} };
let waiting = null; // timer that asks whether the server is back

/** `call` gets a line for people when the server does not answer or is busy. */
export const onLost = (call) => (listeners.lost = call);
export const onBack = (call) => (listeners.back = call);
/** `call` gets whether a token was sent, when the server wants another one. */
export const onToken = (call) => (listeners.token = call);

export const setToken = (token) => sessionStorage.setItem(TOKEN, token);
export const hasToken = () => sessionStorage.getItem(TOKEN) !== null;

/** Send a request and read its JSON. Resolves to the body and to the milliseconds it took. */
async function ask(path, body, signal) {
  const begin = performance.now();
  const response = await send(path, body, signal);
  let answer = null;
  try {
    answer = await response.json();
  } catch (error) {
    if (signal.aborted) throw error;
  }
  if (response.status === 401) {
    listeners.token(hasToken());
    throw new Failure("token", "The server waits for its token.");
  }
  const message = answer && answer.error ? answer.error.message : `The server answered with status ${response.status}.`;
  if (response.status === 503) {
    lost(`The server is busy (${message}). `);
    throw new Failure("busy", message);
  }
  if (!response.ok || answer === null) throw new Failure("refused", message);
  return { answer, ms: performance.now() - begin };
}

async function send(path, body, signal) {
  const headers = {};
  if (hasToken()) headers.Authorization = `Bearer ${sessionStorage.getItem(TOKEN)}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  try {
    return await fetch(path, {
      method: body === undefined ? "GET" : "POST",
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: AbortSignal.any([signal, AbortSignal.timeout(LIMIT_MS)]),
    });
  } catch (error) {
    if (signal.aborted) throw error;
    lost("The server does not answer. ");
    throw new Failure("offline", "The server does not answer.");
  }
}

/** Tell the page once, then ask until the server is ready again. */
function lost(reason) {
  if (waiting !== null) return;
  listeners.lost(`${reason}This page tries again every ${RETRY_MS / 1000} seconds.`);
  const again = async () => {
    try {
      const response = await fetch("v2/health/ready", { signal: AbortSignal.timeout(LIMIT_MS) });
      if (response.ok) {
        waiting = null;
        listeners.back();
        return;
      }
    } catch {
      // still away
    }
    waiting = setTimeout(again, RETRY_MS);
  };
  waiting = setTimeout(again, RETRY_MS);
}

/** Requests of one kind: a new one cancels the one before, so an old answer never replaces a newer one. */
export class Channel {
  constructor() {
    this.controller = null;
  }

  /** The answer, or null if a newer request has replaced this one. */
  async ask(path, body) {
    if (this.controller) this.controller.abort();
    const controller = (this.controller = new AbortController());
    try {
      const result = await ask(path, body, controller.signal);
      return controller.signal.aborted ? null : result;
    } catch (error) {
      if (controller.signal.aborted) return null;
      throw error;
    }
  }
}

/** A function that runs when it was not called again for some milliseconds. */
export function debounced(call, ms) {
  let timer = null;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(call, ms);
  };
}
