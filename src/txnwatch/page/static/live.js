// What the server has said last, and whether it is still true.
//
// Ages come from the server's clock in each message and from performance.now(), never from the clock of this machine.
import { BASE } from "./words.js";

const SILENT_MS = 3000;
const POLL_MS = 5000;
const HIDDEN_MS = 60000;
const FAILURES = 3;
const WITHIN_MS = 30000;

export const live = { picture: null, head: null, heardAt: -Infinity, isPolling: false, isRefused: false, restartedMs: null };
let listener = () => {};
let source = null;
let failures = [];
let timer = 0;
let hiddenTimer = 0;
let drift = Date.now() - performance.now();

/** The server's clock now, in epoch milliseconds. */
export const now = () => (live.head ? live.head.server_ms + performance.now() - live.heardAt : 0);

/** The state of the page: that of the server, or `unknown` if nothing says that it is still true. */
export function state() {
  if (!live.picture) return { state: "unknown", why: "asking" };
  const silent = performance.now() - live.heardAt;
  if (silent > (live.isPolling ? POLL_MS + SILENT_MS : SILENT_MS)) return { state: "unknown", why: "silent" };
  const status = live.picture.status;
  const judged = live.head.judged_ms;
  if (judged === null || now() - judged > status.judged_within_ms) return { state: "unknown", why: "not judged" };
  return { state: status.state, why: status.why };
}

function heard(message) {
  if (live.head && live.head.boot !== message.boot) live.restartedMs = message.server_ms;
  live.head = message;
  live.heardAt = performance.now();
  live.isRefused = false;
}

function apply(difference) {
  const next = {};
  for (const [section, entries] of Object.entries(live.picture)) {
    next[section] = { ...entries, ...(difference.set[section] ?? {}) };
    for (const key of difference.gone[section] ?? []) delete next[section][key];
  }
  live.picture = next;
}

function open() {
  close();
  source = new EventSource(`${BASE}/api/v1/stream`);
  source.addEventListener("snapshot", (event) => {
    const message = JSON.parse(event.data);
    heard(message);
    live.picture = message.picture;
    live.isPolling = false;
    listener(true);
  });
  source.addEventListener("delta", (event) => {
    const message = JSON.parse(event.data);
    if (!live.picture) return;
    heard(message);
    apply(message);
    listener(true);
  });
  source.addEventListener("beat", (event) => {
    if (!live.head) return;
    heard({ ...live.head, ...JSON.parse(event.data) }); // it has the times only
    listener(false);
  });
  source.addEventListener("error", () => {
    const at = performance.now();
    failures = [...failures.filter((one) => at - one < WITHIN_MS), at];
    if (failures.length >= FAILURES || source.readyState === EventSource.CLOSED) poll();
    listener(false);
  });
}

function close() {
  if (source) source.close();
  source = null;
  clearTimeout(timer);
}

async function poll() {
  close();
  live.isPolling = true;
  try {
    const answer = await fetch(`${BASE}/api/v1/snapshot`, { cache: "no-store" });
    live.isRefused = answer.status === 401;
    if (answer.ok) {
      const message = await answer.json();
      heard(message);
      live.picture = message.picture;
    }
  } catch {
    // The state says that nothing was heard.
  }
  listener(true);
  failures = failures.filter((one) => performance.now() - one < WITHIN_MS);
  timer = setTimeout(failures.length ? poll : open, POLL_MS);
}

/** Begins; `onChange` is called after each message, with whether the picture may have changed. */
export function begin(onChange) {
  listener = onChange;
  open();
  setInterval(() => {
    const found = Date.now() - performance.now();
    if (Math.abs(found - drift) > SILENT_MS) live.heardAt = -Infinity; // this machine has slept
    drift = found;
    listener(false);
  }, 1000);
  document.addEventListener("visibilitychange", () => {
    clearTimeout(hiddenTimer);
    if (document.hidden) hiddenTimer = setTimeout(close, HIDDEN_MS);
    else if (!source && !live.isPolling) open();
  });
}
