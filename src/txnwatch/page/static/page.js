// The page: its address, its keys, and one drawing for each message and each second.
import { html, nothing, render, svg } from "./lit-html.js";
import { BASE, begin, live, now, state } from "./live.js";
import * as views from "./views.js";
import { clock } from "./words.js";

const root = document.getElementById("page");
root.replaceChildren(); // what the shell says until this runs
const WIDE = 600;
const BARS_MS = 10000; // how often bars move if a person wants less motion
const LESS_MOTION = matchMedia("(prefers-reduced-motion: reduce)");
const page = {
  picture: null, head: null, status: null, truth: { state: "unknown", why: "asking" }, isStale: true,
  trueNow: 0, sentenceNow: 0, now: 0, barNow: 0, pausedMs: null, // of the sentence, and of what is below it
  isRefused: false, stoppedMs: null, chosen: null, isLinear: false, plotWidth: WIDE, proofWidth: WIDE, rulerWidth: WIDE, series: {}, copy, go,
  rest: null, // the views that come after the first picture
};
const LOST = new Set(["asking", "stopped", "silent", "not judged"]);
let paused = null; // { picture, at, trueAt }
const NOT_ASKED = { answer: null, look: null, isMissing: false, error: null, isAsked: false, askedAt: -Infinity };
let detail = { ...NOT_ASKED, address: null };
let isSeriesAsked = false;
let isRestAsked = false;
let said = "";
let spoken = "";
let isNew = true; // the view has changed, and its heading is not there yet
let notFound = "";
let keysOff = localStorage.getItem("keys") === "off";

// --- addresses
// What begins with the first part and does not match is not asked: the server has no such address.
const ROUTES = [
  ["/incident/", /^([0-9a-f]{32})$/, (id) => `/api/v1/incidents/${id}`, "incident", "Incident"],
  ["/partition/", /^([\w.-]+)\/(\d{1,10})$/, (topic, number) => `/api/v1/partitions/${topic}/${number}`, "partition", "Partition"],
  ["/producer/", /^(\d{1,19})$/, (id) => `/api/v1/producers/${id}`, "client", "Producer"],
  ["/id", /^(?:\/([^/]+))?$/, (name) => `/api/v1/ids${name === undefined ? location.search : `?name=${name}`}`, "client", "Transactional id"],
  ["/incidents", /^$/, () => `/api/v1/incidents${location.search}`, "allIncidents", "Incidents"],
  ["/partitions", /^$/, () => "/api/v1/partitions", "partitions", "Partitions"],
  ["/ended", /^$/, () => "/api/v1/ended", "ended", "Ended"],
  ["/find", /^$/, () => `/api/v1/find${location.search}`, "found", "Found"],
  ["/open", /^$/, () => "/api/v1/open", "oldest", "Oldest"],
  ["/audit", /^(?:\/([\w-]+))?$/, (check) => `/api/v1/audit?check=${check ?? ""}`, "audit", "Audit"],
  ["/roots", /^$/, () => "/api/v1/roots", "roots", "Roots"],
  ["/history", /^$/, () => `/api/v1/history${location.search}`, "week", "History"],
];
/** A view of the rest; nothing until it is there. */
const later = (name) => (...given) => page.rest?.[name](...given) ?? nothing;
const LISTS = { "/": views.overview, "/watcher": later("watcherView") };

/** Whether the page hangs on a wall: one sentence, and nothing to click. */
const isWall = () => new URLSearchParams(location.search).has("wall");

/** The address within the pages of the cluster. */
const path = () => location.pathname.slice(BASE.length);

function route() {
  if (page.picture?.clusters && path() === "/find") return { address: `/api/v1/find${location.search}`, view: later("found"), title: "Found" };
  if (page.picture?.clusters) return { address: views.isFiltered() ? `/api/v1/incidents${location.search}` : null, view: views.clusters, title: null };
  if (path() === "/" && page.picture && views.isFiltered()) return { address: `/api/v1/${isWall() ? "incidents" : "overview"}${location.search}`, view: views.filteredOverview, title: null };
  if (LISTS[path()]) return { address: null, view: LISTS[path()], title: null };
  for (const [begin, rest, address, view, title] of ROUTES) {
    if (!path().startsWith(begin)) continue;
    const match = rest.exec(path().slice(begin.length));
    return { address: match && address(...match.slice(1)), view: match ? later(view) : () => later("missing")(`no ${title}`), title };
  }
  return { address: null, view: () => later("missing")("no address"), title: null };
}

/** How many views of this visit are before this one. */
const depth = () => history.state?.depth ?? 0;

function back() {
  if (depth()) history.back();
  else if (path() !== "/") go("/", 0);
}

/** Goes to another address within the pages of the cluster. */
function go(address, at = depth() + 1) {
  history.pushState({ depth: at }, "", BASE + address);
  scrollTo(0, 0);
  isNew = true;
  draw(true);
}

/** What the API answers about one thing; its answer is null if it is not known. */
async function answerOf(address) {
  const answer = await fetch(`${BASE}${address}${address.includes("?") ? "&" : "?"}missing=null`, { cache: "no-store" });
  if (!answer.ok) throw new Error(answer.status);
  return answer.json();
}

async function ask(address) {
  if (detail.address !== address) detail = { ...NOT_ASKED, address };
  if (detail.isAsked || performance.now() - detail.askedAt < 1000) return;
  const asked = detail;
  asked.isAsked = true;
  asked.askedAt = performance.now();
  try {
    const message = await answerOf(address);
    asked.answer = "answer" in message ? message.answer : message;
    asked.look = message.look;
    asked.isMissing = message.answer === null;
    asked.error = null;
  } catch {
    asked.error = "the watcher does not answer";
  }
  asked.isAsked = false;
  if (asked === detail) draw(false);
}

async function askSeries() {
  if (!page.picture || page.picture.clusters || paused) return;
  isSeriesAsked = true;
  try {
    const answer = await fetch(`${BASE}/api/v1/series`, { cache: "no-store" });
    if (answer.ok) page.series = (await answer.json()).columns;
  } catch {
    // The plots keep what they have.
  }
}

/** What the first picture does not need comes after it, over the same link. */
async function askRest() {
  isRestAsked = true;
  try {
    const [details, past] = await Promise.all([import("./details.js"), import("./past.js"), import("./draw.js")]);
    page.rest = { ...details, ...past };
    draw(true);
  } catch {
    setTimeout(() => (isRestAsked = false), 1000); // it is asked for again
  }
}

// --- drawing
function content() {
  const { address, view, title } = route();
  if (address === null) return page.picture ? view(page) : nothing;
  if (detail.address !== address) return nothing;
  const crumbs = title === null ? nothing : html`<nav class="crumbs" aria-label="Where this is"><a href=${`${BASE}/`}>Overview</a> / ${title}</nav>`;
  if (detail.isMissing) return html`${crumbs}${later("missing")(title, detail.look, page)}`;
  if (!detail.answer) return html`${crumbs}${detail.error ? html`<p class="muted">${detail.error}</p>` : nothing}`;
  return html`${crumbs}${detail.error ? html`<p class="muted">${detail.error}: what is below may have changed.</p>` : nothing}${view(detail.answer, page)}`;
}

const link = (to, text) => html`<a href=${BASE + to} aria-current=${path() === to ? "page" : nothing}>${text}</a>`;

function bar() {
  const isLive = page.truth.state !== "unknown";
  const lost = { stopped: "stopped", silent: "no answer" }[page.truth.why];
  const connection = lost ?? (isLive || !page.isStale ? (live.isPolling ? "every 5 s" : "live") : "nothing evaluated");
  const restarted = !lost && live.restartedMs !== null ? `, restarted at ${clock(live.restartedMs, page.trueNow)}` : "";
  const isList = Boolean(page.picture?.clusters);
  return html`<header class="bar"><a class="brand" href="/">txnwatch</a>${isList ? nothing : html`<span class="cluster">${page.head?.name ? html`<b><bdi>${page.head.name}</bdi></b> ` : nothing}<span class="mono"><bdi>${page.head?.cluster ?? ""}</bdi></span></span>
    <nav aria-label="Views">${link("/", "Overview")}${link("/incidents", "Incidents")}${link("/history", "History")}${link("/watcher", "Watcher")}${BASE ? html`<a href="/">All clusters</a>` : nothing}</nav>`}
    <form class="find" role="search" @submit=${find}><input type="search" id="find" autocomplete="off" maxlength="1000" aria-label="Find a partition, a topic, a transactional id, a producer id, a group, a team or an incident, by a part of its name" placeholder="topic, id, group, team, incident"><kbd>/</kbd><div role="status">${notFound}</div></form>
    <span class="connection"><svg viewBox="0 0 12 12" aria-hidden="true">${isLive || !page.isStale ? svg`<circle cx="6" cy="6" r="4.5" class="pulse" fill="var(--clear)"/>` : svg`<rect x="1.5" y="1.5" width="9" height="9" fill="none" stroke="var(--unknown)" stroke-width="1.8"/>`}</svg>${connection}${restarted}</span>
    <button type="button" @click=${pause}>${paused ? "Go on" : "Pause"}</button><button type="button" class="wide" aria-label="Keys" @click=${help}>?</button></header>`;
}

const foot = () => html`<footer><span>txnwatch ${page.head?.version ?? ""}</span><span>${page.status?.barrier ? `barrier ${page.status.barrier}` : ""}</span><span>times are UTC</span>${page.status?.bootstrap_servers ? html`<span>cluster <bdi>${page.head?.name ?? page.head?.cluster ?? ""}</bdi> at <bdi>${page.status.bootstrap_servers}</bdi></span>` : nothing}${page.status?.speaks === false ? html`<span>events are published by ${page.status.speaker ?? "another instance"}, not by this one</span>` : nothing}<a href="/metrics">metrics</a><a href=${`${BASE}/api/v1/snapshot`}>API</a></footer>`;

function take() {
  page.truth = state();
  page.trueNow = now();
  page.isRefused = live.isRefused;
  page.stoppedMs = live.stoppedMs;
  // A cluster that is unknown makes the list unknown, and not the other lines.
  page.isStale = live.picture?.clusters ? LOST.has(page.truth.why) : page.truth.state === "unknown";
  page.head = live.head;
  page.status = live.picture?.status ?? null;
  // What is out of date does not get older: its durations stop where the last barrier was evaluated.
  page.sentenceNow = page.isStale && live.head?.judged_ms ? live.head.judged_ms : page.trueNow;
  page.picture = paused ? paused.picture : live.picture;
  page.pausedMs = paused ? paused.trueAt : null;
  page.now = paused ? paused.at : page.sentenceNow;
  page.barNow = LESS_MOTION.matches ? Math.floor(page.now / BARS_MS) * BARS_MS : page.now;
}

function draw(hasChanged) {
  take();
  const { address, title } = route();
  if (address && hasChanged && !(paused && detail.address === address)) ask(address);
  if (page.rest && !isSeriesAsked) askSeries();
  if (isWall()) {
    render(html`<main id="main" class="on-wall">${views.wall(detail.answer, page)}</main>`, root);
    fit();
    return sentenceChanged();
  }
  render(html`${bar()}<main id="main" tabindex="-1">${views.sentence(page, title !== null)}${views.pauseOf(page)}<div class="visually-hidden" role="status">${said}</div><div class="visually-hidden" role="status">${spoken}</div>${content()}</main>${foot()}`, root);
  sentenceChanged();
  measure();
  if (isNew && page.rest) focusHeading();
  if (page.picture && !isRestAsked) askRest();
}

/** A person who has followed a link reads on at the heading of the new view. */
function focusHeading() {
  const { address, title } = route();
  if (address !== null && detail.address === address && !detail.answer && !detail.isMissing) return;
  const isFirst = isNew === true && depth() === 0;
  isNew = false;
  const heading = document.querySelector(title === null ? "#main h1" : ".crumbs ~ * h1, .crumbs ~ * h2, .crumbs ~ h1");
  if (isFirst || !heading) return;
  heading.tabIndex = -1;
  heading.focus({ preventScroll: true });
}

function sentenceChanged() {
  const open = page.status?.open_incidents ?? 0;
  const shown = page.truth.state === "incident" ? `◆ ${open} ${open === 1 ? "incident" : "incidents"}` : { clear: "✓ clear", limited: "ℹ no hang", partial: "? partly known" }[page.truth.state] ?? "? unknown";
  const cluster = page.picture?.clusters ? null : page.head?.name ?? page.head?.cluster;
  document.title = [shown, viewTitle(), cluster, "txnwatch"].filter(Boolean).join(" · ");
  document.documentElement.dataset.state = page.truth.state;
  if (said !== shown && page.truth.why !== "asking") {
    said = shown; // read out when the state changes, not each second
    queueMicrotask(() => draw(false));
  }
}

/** What the view is about; nothing for the overview. */
function viewTitle() {
  const { address, title } = route();
  if (address === null) return title ?? (path() === "/watcher" ? "watcher" : null);
  const [, kind, ...rest] = path().split("/");
  if (kind === "incident" && detail.answer?.tag) return `${detail.answer.tag.toLowerCase()} ${detail.answer.places[0] ?? detail.answer.holder}`;
  return rest.length ? rest.map(decodeURIComponent).join("-").slice(0, 80) : title;
}

const LARGEST = 5.4;
const SMALLEST = 1.2;
/** The largest type with which all of the wall is on the screen. */
function fit() {
  const style = document.documentElement.style;
  for (let size = LARGEST; size >= SMALLEST; size -= 0.3) {
    style.setProperty("--wall", `${size}vw`);
    if (root.scrollHeight <= innerHeight && root.scrollWidth <= innerWidth) return;
  }
}

function measure() {
  const width = (selector, otherwise) => Math.floor(document.querySelector(selector)?.clientWidth ?? otherwise) || otherwise;
  const widths = [width(".lanes .plot", page.plotWidth), width(".proof .plot", page.proofWidth), width(".card .body > .plot", page.rulerWidth)];
  if (widths[0] !== page.plotWidth || widths[1] !== page.proofWidth || widths[2] !== page.rulerWidth) {
    [page.plotWidth, page.proofWidth, page.rulerWidth] = widths;
    queueMicrotask(() => draw(false));
  }
}

// --- what a person does
async function copy(button) {
  const code = button.parentElement.querySelector("code");
  try {
    await navigator.clipboard.writeText(code.textContent);
    button.textContent = "Copied";
    say("The command is copied.");
  } catch {
    getSelection().selectAllChildren(code); // without https the browser has no clipboard
    button.textContent = "press Ctrl+C";
    say("The command is selected: press Ctrl+C.");
  }
  setTimeout(() => (button.textContent = "Copy"), 2500);
}

/** Reads a text out. */
function say(text) {
  spoken = text;
  draw(false);
  setTimeout(() => (spoken = ""), 2500);
}

async function find(event) {
  event.preventDefault();
  const text = document.getElementById("find").value.trim();
  if (!text) return;
  const asked = `?name=${encodeURIComponent(text)}`;
  const message = await answerOf(`/api/v1/find${asked}`).catch(() => null);
  notFound = message ? "" : "the watcher does not answer";
  if (!message) return draw(false);
  document.getElementById("find").blur();
  if (page.picture?.clusters) location.assign(message.answer?.address ?? `/find${asked}`);
  else go(message.answer?.address ?? `/find${asked}`);
}

function pause() {
  paused = paused ? null : { picture: live.picture, at: page.now, trueAt: page.trueNow };
  draw(true);
}

function choose(step) {
  const ids = [...document.querySelectorAll("[data-incident]")].map((row) => row.dataset.incident);
  if (!ids.length) return;
  const at = ids.indexOf(page.chosen);
  page.chosen = ids[Math.min(ids.length - 1, Math.max(0, at < 0 ? 0 : at + step))];
  draw(false);
  document.querySelector(`[data-incident="${page.chosen}"]`)?.scrollIntoView({ block: "nearest" });
}

const KEYS = {
  "/": ["find", () => document.getElementById("find")?.focus()],
  j: ["next incident", () => choose(1)],
  k: ["previous incident", () => choose(-1)],
  Enter: ["open the chosen incident", () => page.chosen && go(`/incident/${page.chosen}`)],
  c: ["copy the command of the chosen incident", () => document.querySelector(page.chosen ? `[data-incident="${page.chosen}"] .command button` : ".command button")?.click()],
  o: ["overview", () => go("/")],
  h: ["the history", () => go("/history")],
  w: ["the watcher itself", () => go("/watcher")],
  t: ["change the axis of time", () => { page.isLinear = !page.isLinear; draw(false); }],
  p: ["pause, or go on", pause],
  "?": ["these keys", help],
};

const OF_THE_LIST = new Set(["p", "?", "/"]); // the others are about one cluster

function help() {
  const dialog = document.getElementById("keys") ?? document.body.appendChild(Object.assign(document.createElement("dialog"), { id: "keys" }));
  const toggle = (event) => {
    keysOff = !event.target.checked;
    localStorage.setItem("keys", keysOff ? "off" : "on");
  };
  render(html`<h2>Keys</h2><dl>${Object.entries(KEYS).map(([key, [text]]) => html`<dt><kbd>${key}</kbd></dt><dd>${text}</dd>`)}<dt><kbd>Esc</kbd></dt><dd>back</dd></dl>
    <label><input type="checkbox" .checked=${!keysOff} @change=${toggle}> use single keys</label> <button type="button" @click=${() => dialog.close()}>Close</button>`, dialog);
  dialog.showModal();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const isTyping = event.target.matches("input, textarea, select");
  if (event.key === "Escape") {
    if (isTyping) event.target.blur();
    else back();
    return;
  }
  if (isTyping || keysOff || (event.key === "Enter" && event.target.matches("a, button"))) return;
  const known = KEYS[event.key];
  if (known && (!page.picture?.clusters || OF_THE_LIST.has(event.key))) {
    event.preventDefault();
    known[1]();
  }
});
document.addEventListener("click", (event) => {
  const anchor = event.target.closest?.("a[href^='/']");
  if (!anchor || event.button || event.ctrlKey || event.metaKey || event.shiftKey) return;
  const to = anchor.getAttribute("href");
  // What is not of this cluster is another page, with a stream of its own.
  if (!to.startsWith(`${BASE}/`) || /^\/(metrics|api|static|c)\b/.test(to.slice(BASE.length)) || page.picture?.clusters) return;
  event.preventDefault();
  go(to.slice(BASE.length));
});
addEventListener("popstate", () => {
  isNew = "back";
  draw(true);
});
addEventListener("resize", () => draw(false));
setInterval(askSeries, 5000);
begin(draw);
draw(true);
