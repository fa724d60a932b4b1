// What the server has said last, and whether it is still true.
//
// Ages come from the server's clock in each message and from performance.now(), never from the clock of this machine. The
// message that came fastest shows the difference of the two clocks. So a message that was held up is as old as it is.

/** What every address of one cluster begins with on a page of several clusters; else nothing. */
export const BASE = /^\/c\/[^/]+(?=\/)/.exec(location.pathname)?.[0] ?? "";

const SILENT_MS = 3000;
const POLL_MS = 5000;
const HIDDEN_MS = 60000;
const STUCK_MS = 30000;
const FAILURES = 3;
const WITHIN_MS = 30000;
const SLOWER = 0.001; // how much the two clocks may differ in speed

export const live = { picture: null, head: null, isPolling: false, isRefused: false, restartedMs: null, stoppedMs: null };
let listener = () => {};
let end = null; // ends the stream or the asking; null if neither is going on
let heardAt = 0;
let onTimeAt = 0; // the last message that was on time, or the begin of the stream or of the asking
let offset = 0; // the server's clock less performance.now()
let isFirst = true; // nothing was heard since the stream was opened
let dueMs = SILENT_MS; // until when a message counts: the next one has to come before
let failures = [];
let hiddenTimer = 0;
let drift = Date.now() - performance.now();

/** The server's clock now, in epoch milliseconds. */
export const now = () => (live.head ? performance.now() + offset : 0);

/** The state of the page: that of the server, or `unknown` if nothing says that it is still true. */
export function state() {
  if (!live.picture) return { state: "unknown", why: "asking" };
  if (live.stoppedMs !== null) return { state: "unknown", why: "stopped" };
  if (now() - live.head.server_ms > dueMs) return { state: "unknown", why: "silent" };
  const status = live.picture.status;
  const judged = live.head.judged_ms;
  if (judged === null || now() - judged > status.judged_within_ms) return { state: "unknown", why: "not judged" };
  return { state: status.state, why: status.why };
}

function heard(message, nextMs, at = performance.now()) {
  if (live.head && live.head.boot !== message.boot) live.restartedMs = message.server_ms;
  const ahead = message.server_ms - at;
  offset = isFirst ? ahead : Math.max(offset - SLOWER * (at - heardAt), ahead);
  isFirst = false;
  heardAt = at;
  dueMs = nextMs;
  if (ahead >= offset - nextMs) onTimeAt = at;
  live.head = message;
  live.isRefused = false;
  live.stoppedMs = null;
}

function apply(difference) {
  const next = {};
  for (const [section, entries] of Object.entries(live.picture)) {
    next[section] = { ...entries, ...(difference.set[section] ?? {}) };
    for (const key of difference.gone[section] ?? []) delete next[section][key];
  }
  live.picture = next;
}

function close() {
  end?.();
  end = null;
}

/** Ends what is going on; `ends` ends what begins. */
function begins(ends) {
  close();
  end = ends;
  onTimeAt = performance.now();
}

function open() {
  const source = new EventSource(`${BASE}/api/v1/stream`);
  begins(() => source.close());
  isFirst = true;
  source.addEventListener("snapshot", (event) => {
    const message = JSON.parse(event.data);
    isFirst = true; // also after the browser has opened the stream again
    heard(message, SILENT_MS);
    live.picture = message.picture;
    live.isPolling = false;
    listener(true);
  });
  source.addEventListener("delta", (event) => {
    const message = JSON.parse(event.data);
    if (isFirst) return;
    heard(message, SILENT_MS);
    apply(message);
    listener(true);
  });
  source.addEventListener("beat", (event) => {
    if (isFirst) return;
    heard({ ...live.head, ...JSON.parse(event.data) }, SILENT_MS); // it has the times only
    listener(false);
  });
  source.addEventListener("bye", (event) => {
    if (JSON.parse(event.data).why === "shutdown") live.stoppedMs = now();
    listener(false);
  });
  source.addEventListener("error", () => {
    failures = [...lately(), performance.now()];
    if (failures.length >= FAILURES || source.readyState === EventSource.CLOSED) poll();
    listener(false);
  });
}

const lately = () => failures.filter((one) => performance.now() - one < WITHIN_MS);

async function poll() {
  const asking = new AbortController();
  let timer = 0;
  begins(() => {
    asking.abort();
    clearTimeout(timer);
  });
  live.isPolling = true;
  try {
    const answer = await fetch(`${BASE}/api/v1/snapshot`, { cache: "no-store", signal: asking.signal });
    const message = answer.ok ? await answer.json() : null;
    if (asking.signal.aborted) return;
    live.isRefused = answer.status === 401;
    if (message) {
      heard(message, POLL_MS + SILENT_MS);
      live.picture = message.picture;
    }
  } catch {
    if (asking.signal.aborted) return;
    live.isRefused = false; // The state says that nothing was heard.
  }
  listener(true);
  failures = lately();
  timer = setTimeout(failures.length ? poll : open, POLL_MS);
}

function look() {
  const jump = Date.now() - performance.now() - drift;
  drift += jump;
  const hasSlept = Math.abs(jump) > SILENT_MS;
  if (hasSlept) {
    // What was heard before does not count, and what comes on the old stream may be as old.
    dueMs = -1;
    offset += Math.max(0, jump);
  }
  if (end && hasSlept) open();
  else if (end && performance.now() - onTimeAt > STUCK_MS) poll();
  listener(false);
}

/** Nobody reads a hidden tab, and a browser has six connections for a host. */
function hideOrShow() {
  clearTimeout(hiddenTimer);
  if (document.hidden) hiddenTimer = setTimeout(close, HIDDEN_MS);
  else if (!end) open();
}

/** The picture that has come with the page. It may be as old as the request for the page, and counts as one that was asked for. */
function firstOne() {
  try {
    const message = JSON.parse(document.getElementById("first").textContent);
    heard(message, POLL_MS + SILENT_MS, performance.getEntriesByType("navigation")[0].requestStart);
    live.picture = message.picture;
  } catch {
    // It did not come whole. The stream has it.
  }
}

firstOne();
open(); // while the other files come
/** Calls `onChange` after each message, with whether the picture may have changed. */
export function begin(onChange) {
  listener = onChange;
  setInterval(look, 1000);
  document.addEventListener("visibilitychange", hideOrShow);
  hideOrShow(); // it may have been opened in the background
}
