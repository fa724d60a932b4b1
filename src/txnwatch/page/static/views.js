// What is drawn first. The rest of a view is in `page.rest`, which is null until it is there.
import { html, nothing } from "./lit-html.js";
import { BASE } from "./live.js";
import { clock, count, duration, foreign, ofClient, ofIncident, plural, reach, shortClock, sign } from "./words.js";

/** A command with its button. It is text that the server has made ready for a shell; nothing is added to it here. */
export const command = (line, page) => line && html`<div class="command"><code>${line.split(/ (?=--|&& )/).map((one, i) => html`${i ? " " : ""}<span>${one}</span>`)}</code>
  <button type="button" aria-label="Copy the command" @click=${(event) => page.copy(event.currentTarget)}>Copy</button></div>`;

const parts = (pieces, now) => pieces.map((part, i) => {
  if (typeof part === "number") return html`<bdi class="keep">${duration(now - part)}</bdi>`;
  return i === 0 ? html`<b><bdi>${part}</bdi></b>` : html`<bdi>${part}</bdi>`;
});
const plain = (pieces, now) => pieces.map((part) => typeof part === "number" ? html`<bdi class="keep">${duration(now - part)}</bdi>` : html`<bdi>${part}</bdi>`);
export const time = (ms, page, digits = 0, show = clock) => html`<time datetime=${new Date(ms).toISOString()} title=${clock(ms, page.now)}>${show(ms, page.now, digits)}</time>`;

// --- the sentence
const LOST = {
  asking: ["Asking the watcher …", () => "Nothing is known yet."],
  stopped: ["Unknown.", (page) => `The process that serves this page was stopped in an orderly way, at ${clock(page.stoppedMs, page.trueNow)}. Until it is started again, a new hang would not be seen here. What is below may have changed.`],
  silent: ["Unknown.", () => "The watcher does not answer. Its process has ended, or cannot be reached from here. A new hang would not be seen here. What is below may have changed."],
  "not judged": ["Unknown.", () => "The watcher answers, but nothing was evaluated lately. A new hang would not be seen. What is below may have changed."],
};

/** What is said if the browser knows that nothing is known; else nothing: the server says more about itself. */
const lostOf = ({ truth, status }) => (truth.state === "unknown" && !(truth.why === "not judged" && status?.state === "unknown") ? LOST[truth.why] : null);

export function sentence(page, isSmall) {
  const { status } = page;
  const lost = lostOf(page);
  const now = page.truth.state === "unknown" ? page.trueNow : page.sentenceNow; // that nothing is evaluated gets older
  const tone = lost || !status || page.truth.state === "unknown" ? "unknown" : status.tone;
  const verb = page.picture?.clusters ? "read" : "evaluated";
  const judged = page.head?.judged_ms ?? null;
  const title = lost || !status ? html`<b>${lost?.[0] ?? "Unknown."}</b>` : parts(status.headline, now);
  const detail = lost || !status ? (page.isRefused ? "The server asks for a user: load the page again and log in." : lost?.[1](page)) : plain(status.detail, now);
  return html`<section class="sentence ${tone}${isSmall ? " small-sentence" : ""}" id="sentence">
    ${sign(tone)}<h1>${title}</h1><p>${detail}</p>
    ${judged === null ? nothing : html`<div class="age"><span class="small">${lost ? `last ${verb}` : verb}</span> <strong>${duration(page.trueNow - judged)}</strong> <span class="small">ago</span></div>`}
  </section>`;
}

export const pauseOf = (page) => page.pausedMs === null ? nothing : html`<p class="paused"><b>Paused</b> at ${clock(page.pausedMs, page.trueNow)}. What is below stands still. The sentence goes on.</p>`;

/** When what is below the sentence was true, if it is not now; else nothing. */
export const asOf = (page) => page.pausedMs ?? (page.isStale ? page.head?.judged_ms : null);

// --- incidents
const ofGroup = (row, group) => {
  const owner = row.group_owners.find(([one]) => one === group)?.[1];
  return html`${foreign(group)}${owner ? html` (${foreign(owner)})` : nothing}`;
};
const groupsOf = (row, names, more) => html`${names.map((one, i) => html`${i ? ", " : ""}${ofGroup(row, one)}`)}${more ? `, and ${more} more` : ""}`;

function hurt(row) {
  const { fold } = row;
  if (fold && (fold.stopped || fold.waiting)) return html`<b>${plural(fold.stopped + fold.waiting, "group")} stopped or waiting</b><div class="muted small clip">${groupsOf(row, [...row.stopped, ...row.waiting], 0)} …</div>`;
  if (row.connect && !row.stopped.length && !row.waiting.length) return html`<div class="small clip" title=${row.connect}>${foreign(row.connect)}</div>`;
  if (![row.stopped, row.waiting, row.at_risk].flat().length) return html`<span class="muted small">${row.topic ? SAID.stands : SAID.groups}</span>`;
  return html`${row.stopped.length ? html`<b>${plural(row.stopped.length + row.more_stopped, "group")} stopped</b><div class="muted small clip">${groupsOf(row, row.stopped, row.more_stopped)}</div>` : nothing}
    ${row.waiting.length ? html`<b>${plural(row.waiting.length + row.more_waiting, "group")} waiting for offsets</b><div class="muted small clip">${groupsOf(row, row.waiting, row.more_waiting)}</div>` : nothing}
    ${row.at_risk.length && !row.stopped.length ? html`<div class="small clip">at risk: ${groupsOf(row, row.at_risk, 0)}</div>` : nothing}`;
}

export const places = (row) => html`${row.places.slice(0, 3).map((one, i) => html`${i ? ", " : ""}<bdi class="whole">${one}</bdi>`)}${row.places.length + row.more_places > 3 ? ` and ${row.places.length + row.more_places - 3} more` : ""}`;
const holderOf = (row) => html`<a class="mono" href=${ofClient(row)} title=${row.holder}>${foreign(row.short ?? row.holder)}</a>`;
const tagOf = (row, page) => `${row.tag}${row.fold ? ` × ${count(row.fold.count)}` : row.verdict === "late" && row.due_ms !== null ? ` +${duration(page.now - row.due_ms)}` : ""}`;

/** A count that a list cuts, or that is of another moment, says so. */
export const least = (number, isLeast) => `${isLeast ? "at least " : ""}${count(number)}`;

const RATE_MS = 10000;
const before = new Map();
/** How fast a number grows, from what this page has seen of it in the last seconds; null before that. */
function rate(key, value, now) {
  const seen = (before.get(key) ?? []).filter(([at]) => now - at <= RATE_MS && at <= now);
  if (seen.at(-1)?.[0] !== now) seen.push([now, value]);
  before.set(key, seen);
  const [[from, low]] = seen;
  return now - from < 2000 || value <= low ? null : Math.round(((value - low) * 1000) / (now - from));
}
export const growing = (key, value, page) => {
  const speed = page.isStale || page.pausedMs !== null ? null : rate(key, value, page.now);
  return speed ? html`<span class="muted small rate">+${count(speed)}/s </span>` : nothing;
};

function hiddenOf(row, page) {
  const { fold } = row;
  if (fold) return html`<div class="big">${least(fold.hidden, fold.hidden_is_least)}</div>${growing(`fold ${row.id}`, fold.hidden, page)}`;
  if (row.hidden === null) return html`<div class="big">not known</div>`;
  return html`<div class="big">${least(row.hidden, row.hidden_is_least)}</div>${row.hidden_at_ms === null ? growing(row.id, row.hidden, page) : html`<div class="muted small">at ${time(row.hidden_at_ms, page, 0, shortClock)}</div>`}`;
}

const ownerOf = (row) => row.owner ? html`<b>${foreign(row.owner.name)}</b><div class="small">${row.owner.contact ? foreign(row.owner.contact) : nothing}${reach([...row.owner.links, ["team", row.owner.url]])}</div>` : html`<span class="muted small">no owner is known</span>`;

/** What a fold holds, and the worst of it; the row is about that one. */
const foldHead = ({ fold }) => html`<a href=${BASE + fold.list}>${foreign(fold.topic ?? (fold.prefix ? `${fold.prefix}…` : "several"))}</a>: ${plural(fold.partitions, "partition")} <span class="muted">behind</span> ${plural(fold.producers, "producer")}`;

export function incidentRow(row, page, isChosen) {
  const tone = row.severity === "info" ? "info" : row.severity;
  const title = row.places.length ? places(row) : "no partition stands";
  const single = html`<a href=${ofIncident(row.id)}>${title}</a> <span class="muted">behind</span> ${holderOf(row)}`;
  const [step, ...further] = page.isStale ? [{ text: SAID.again, command: row.look }] : row.steps;
  return html`<li class="${tone}${isChosen ? " chosen" : ""}" data-incident=${row.id}>${sign(tone)}
    <div class="what"><h3><span class="tag">${tagOf(row, page)}</span> ${row.fold ? foldHead(row) : single}</h3>
      ${row.fold ? html`<div class="muted small">the worst: ${single}</div>` : nothing}
      ${row.decision && !page.isStale ? html`<div class="muted small">${row.decision}</div>` : nothing}</div>
    <div class="cell owner"><div class="label">owner</div>${ownerOf(row)}</div>
    <div class="standing"><div class="label">standing for at least</div><div class="big">${duration(page.now - (row.fold?.since_ms ?? row.since_ms))}</div><div class="muted small">since ${time(row.fold?.since_ms ?? row.since_ms, page, 0, shortClock)}</div></div>
    <div class="hide"><div class="label">hidden records</div>${hiddenOf(row, page)}</div>
    <div class="cell hurt"><div class="label">hurt</div>${hurt(row)}</div>
    <div class="do"><div class="say"><b>${row.fold ? "The worst: " : ""}${foreign(step?.text ?? "")}</b>
      ${further.length ? html`<a class="small" href=${ofIncident(row.id)}>${plural(further.length, "further step")}</a>` : nothing}${commandsElsewhere(page)}</div>
      <div class="safe small">${foreign(row.safe)} <span class="muted">${foreign(row.why)}</span></div>${command(step?.command, page)}</div></li>`;
}

const HEAD = html`<div class="incident-head small muted" aria-hidden="true"><span></span><span>what stands, behind whom</span><span>owner</span><span class="number">standing for</span><span class="number">hidden records</span><span>who is hurt</span></div>`;
export const list = (rows, page) => html`${HEAD}<ol class="incidents">${rows.map((row) => incidentRow(row, page, row.id === page.chosen))}</ol>`;
export const openTitle = (page) => asOf(page) ? html`${page.pausedMs ? "Open at the pause" : "Open when last evaluated"}, at ${time(asOf(page), page)}` : "Open incidents";

function incidents(page) {
  const { order, incidents: rows } = page.picture;
  const all = order.incidents.map((id) => rows[id]).filter(Boolean);
  const shown = all.filter((row) => row.severity !== "info");
  const warnings = all.filter((row) => row.severity === "info");
  const early = warnings.reduce((sum, row) => sum + (row.fold?.count ?? 1), 0);
  if (!all.length && !isFiltered()) return nothing;
  return html`<section class="card ${page.isStale ? "stale" : ""}" aria-labelledby="h-incidents">
    <header><h2 id="h-incidents">${openTitle(page)}</h2><span class="muted small">who hurts somebody first · one row for each cause · <a href=${`${BASE}/incidents${isFiltered() ? location.search : ""}`}>one by one</a></span></header>
    ${filters(order.choices, page)}
    ${isFiltered() && !all.length ? html`<div class="body">No incident like this is open.</div>` : nothing}
    ${shown.length ? list(shown, page) : nothing}
    ${warnings.length ? html`<div class="more">${plural(early, "early warning")}: ${warnings.slice(0, 3).map((row, i) => html`${i ? ", " : ""}<a href=${row.fold ? BASE + row.fold.list : ofIncident(row.id)}>${foreign(row.fold ? `${count(row.fold.count)} of ${row.fold.prefix ?? row.fold.topic ?? "several"}` : row.holder)}</a>`)}. ${early === 1 ? "It ends at its timeout." : "Each ends at its timeout."}</div>` : nothing}
    ${page.rest?.rootLine(page)}
    ${order.more_incidents ? html`<div class="more">and ${plural(order.more_incidents, "more incident")} of ${plural(order.more_rows, "other cause")}: ${Object.entries(order.more_by_verdict).map(([verdict, number]) => `${count(number)} ${verdict}`).join(", ")}. <a href=${`${BASE}/incidents`}>List them</a></div>` : nothing}</section>`;
}

// --- the incidents one by one
const FILTERS = [["verdict", "verdict"], ["owner", "owner"], ["topic", "topic"], ["prefix", "application"]];
export const withQuery = (changes) => {
  const query = new URLSearchParams(location.search);
  for (const [key, value] of Object.entries(changes)) if (value) query.set(key, value); else query.delete(key);
  return `${location.pathname.slice(BASE.length)}${query.size ? `?${query}` : ""}`;
};
export const isFiltered = () => [...FILTERS, ["reason"]].some(([key]) => new URLSearchParams(location.search).get(key));

export function filters(choices, page) {
  const query = new URLSearchParams(location.search);
  const one = ([key, text]) => {
    const value = query.get(key) ?? "";
    const options = choices[key].some(([name]) => name === value) || !value ? choices[key] : [[value, 0], ...choices[key]];
    return html`<label>${text} <select name=${key} .value=${value} @change=${(event) => page.go(withQuery({ [key]: event.target.value, offset: "", reason: "" }))}><option value="" ?selected=${!value}>any</option>${options.map(([name, number]) => html`<option value=${name} ?selected=${name === value}>${name} (${count(number)})</option>`)}</select></label>`;
  };
  return html`<form class="filters${isFiltered() ? "" : " idle"}" aria-label="Filters" @submit=${(event) => event.preventDefault()}>${FILTERS.map(one)}${query.size ? html`<a href=${location.pathname}>all</a>` : nothing}</form>`;
}

function toDo(page) {
  if (page.truth.state !== "unknown" || !page.status?.search_command) return nothing;
  return html`<section class="card"><header><h2>What to do now</h2></header><div class="body"><p>Until the watcher evaluates again, this command finds what hangs. Exit code 3: found; 1: not everything could be checked.</p>${command(page.status.search_command, page)}<p class="muted">${GOES_ON[page.truth.why] ?? "The watcher goes on by itself once the cause is gone."} <code>txnwatch doctor</code> tells whether this machine reaches the brokers, and whether the login works.</p></div></section>`;
}

const ENDED = "If the process of the watcher has ended, it does not go on by itself: look whether it runs, and start it again if nothing else does.";
const GOES_ON = { silent: ENDED, stopped: ENDED };

/** The steps of a start, and which one is done now. */
const starting = (page) => !page.status?.start || page.isStale && LOST_WHILE_STARTING.has(page.truth.why) ? nothing : html`<section class="card"><header><h2>The watcher starts</h2></header><ol class="body steps">${page.status.start.map((one, i) => html`<li class=${one.state === "now" ? "now" : "muted"}>${i + 1} of 3: ${one.text} <b>${one.state}</b></li>`)}</ol></section>`;
const LOST_WHILE_STARTING = new Set(["silent", "stopped", "asking"]);

export const overview = (page) => [starting(page), toDo(page), html`<div class="pair">${incidents(page)}${page.rest?.timeline(page)}</div>`, page.rest?.below(page)];

/** The overview of what a filter means. The sentence is about all. */
export const filteredOverview = ({ incidents: rows, lanes, order }, page) => overview({ ...page, picture: { ...page.picture, incidents: rows, lanes, order } });

/** An address from the operator's own file, which has only http and https; it is checked again. */
export const elsewhere = (url, text) => (/^https?:\/\//.test(url) ? html`<a href=${url} rel="noreferrer">${foreign(text)}</a>` : foreign(text));

/** Where the whole commands are, if this page does not know how the brokers are reached. */
const commandsElsewhere = (page) => {
  const shown = page.status?.watchers.find((one) => one.is_shown);
  return shown && page.status.bootstrap_servers === null ? html`<p class="small">The whole command is on ${elsewhere(shown.url, "the page of its watcher")}.</p>` : nothing;
};

// --- several clusters
/** One line for each cluster, worst first; `matches` has what a filter means. */
export function clusters(matches, page = matches) {
  const { clusters: rows, order } = page.picture;
  const lines = html`<section class="card ${page.isStale ? "stale" : ""}" aria-labelledby="h-clusters"><header><h2 id="h-clusters">Clusters</h2><span class="muted small">worst first; the age is that of the last evaluation</span></header>
    <ol class="clusters">${order.clusters.filter((key) => rows[key]).map((key) => ({ key, ...rows[key] })).map((row) => html`<li class=${page.isStale ? "unknown" : row.tone}>${sign(page.isStale ? "unknown" : row.tone)}
      <div class="which"><a href=${ofCluster(row.key, `/${location.search}`)}><b>${foreign(row.name)}</b></a>${row.cluster_id ? html` <span class="mono muted small">${foreign(row.cluster_id)}</span>` : nothing}</div>
      <div class="cell">${plain(row.text, page.now)}</div>
      <div class="muted count">${row.incidents === null ? "not known" : plural(row.incidents, "incident")}</div>
      <div class="age${row.is_late ? " late" : ""}">${row.judged_ms === null ? "never evaluated" : `${duration((page.pausedMs ?? page.trueNow) - row.judged_ms)} ago`}</div></li>`)}</ol></section>`;
  return [lines, order.choices.verdict.length || isFiltered() ? ofAllClusters(matches, page) : nothing];
}

const ofCluster = (key, path) => `/c/${encodeURIComponent(key)}${path}`;

/** The open incidents of all clusters that a filter means. */
function ofAllClusters({ rows, count: all }, page) {
  const name = (key) => page.picture.clusters[key]?.name ?? key;
  return html`<section class="card ${page.isStale ? "stale" : ""}" aria-labelledby="h-incidents"><header><h2 id="h-incidents">${openTitle(page)}</h2><span class="muted small">${rows ? `${count(rows.length)} of ${count(all)}; a cluster that is not known may have more` : "of all clusters"}</span></header>${filters(page.picture.order.choices, page)}
    ${!rows ? nothing : !rows.length ? html`<div class="body">No known incident is like this.</div>` : html`<div class="body scroll" tabindex="0" role="group" aria-labelledby="h-incidents"><table><thead><tr><th scope="col">cluster</th><th scope="col">what stands, behind whom</th><th scope="col">owner</th><th scope="col" class="number">standing for</th><th scope="col" class="number">hidden records</th><th scope="col">next</th></tr></thead>
    <tbody>${rows.map((row) => html`<tr class=${row.severity}><td><a href=${ofCluster(row.cluster, "/")}>${foreign(name(row.cluster))}</a></td><td><span class="tag">${row.tag}</span> <a href=${ofCluster(row.cluster, `/incident/${row.id}`)}>${row.places.length ? places(row) : "no partition stands"}</a> behind ${foreign(row.holder)}</td><td>${ownerOf(row)}</td><td class="number">${duration(page.now - row.since_ms)}</td><td class="number">${hiddenOf(row, page)}</td><td>${foreign(row.steps[0]?.text ?? "")}</td></tr>`)}</tbody></table></div>`}</section>`;
}

// --- the wall: one sentence that is read from afar
const TURN_MS = 10000;
const NO_CAUSES = { rows: [] };

/** The sentence of one cluster, or about one owner's incidents; `matches` has the latter. What is open is said in each state. */
export function wall(matches, page) {
  const owner = new URLSearchParams(location.search).get("owner");
  const say = (tone, title, text, { rows: lines, more } = NO_CAUSES) => html`<section class="sentence ${tone} wall" id="sentence">${sign(tone)}<h1>${title}</h1>
    ${lines.length ? html`<ul class="causes">${lines.map((one) => html`<li>${plain(one, now)}</li>`)}${more ? html`<li>and ${plural(more, "more cause")}</li>` : nothing}</ul>` : nothing}<p>${text}</p>
    <div class="age"><span class="small">${page.picture?.clusters ? "read" : "evaluated"}</span> <strong>${page.head?.judged_ms ? duration(page.trueNow - page.head.judged_ms) : "never"}</strong> <span class="small">ago</span></div></section>`;
  const lost = lostOf(page);
  if (!page.status) return say("unknown", html`<b>${lost?.[0] ?? "Unknown."}</b>`, lost?.[1](page) ?? "");
  const { clusters: rows, order } = page.picture;
  const key = rows && order.clusters[Math.floor(page.trueNow / TURN_MS) % order.clusters.length];
  const row = rows ? rows[key] : { name: page.head.name ?? page.head.cluster ?? "", state: page.truth.state, tone: page.status.tone, text: page.status.headline, incidents: page.status.open_incidents, causes: order.causes, judged_ms: page.head.judged_ms };
  const state = lost ? "unknown" : row.state;
  const now = state === "unknown" ? page.trueNow : page.sentenceNow;
  const causes = !owner ? row.causes : rows ? matches?.causes[key] : matches?.causes;
  const all = owner ? causes?.incidents : row.incidents;
  const worst = owner ? matches?.rows.find((one) => one.severity !== "info" && (!rows || one.cluster === key)) : null;
  const ofTeam = owner === "none" ? html`without an owner` : html`of ${foreign(worst?.owner?.name ?? owner)}`;
  const [first, ...further] = lost ? [lost[0], ` ${lost[1](page)}`] : row.text;
  if (["unknown", "partial"].includes(state)) {
    const when = row.judged_ms === null ? nothing : html` at <span class="keep">${clock(row.judged_ms, now)}</span>`;
    const had = !all ? nothing : html` ${plural(all, "incident")}${owner ? html` ${ofTeam}` : nothing} ${all === 1 ? "was" : "were"} open${when}.`;
    return say(state, html`${rows ? html`<b>${foreign(row.name)}:</b> ${first}` : html`<b>${first}</b>`}${had}`, html`${rows ? nothing : html`${foreign(row.name)} · `}${plain(further, now)}`);
  }
  if (!owner && rows) return say(row.tone, html`<b>${foreign(row.name)}:</b> ${plain(row.text, now)}`, parts(page.status.headline, page.now), causes);
  if (!owner) return say(row.tone, parts(row.text, now), html`${foreign(row.name)} · ${plain(page.status.detail, now)}`, causes);
  if (all === undefined) return say("unknown", html`<b>Asking the watcher …</b>`, foreign(row.name));
  if (!worst) return say(state === "limited" ? state : "clear", html`<b>Nothing ${ofTeam} stands.</b>`, html`${foreign(row.name)} · ${parts(page.status.headline, page.sentenceNow)}`);
  const [ofWorst, ...others] = causes.rows;
  return say(worst.severity, html`<b>${plural(all, "incident")} ${ofTeam}.</b> ${plain(ofWorst, now)}.`, html`${foreign(row.name)} · ${foreign(worst.steps[0]?.text ?? "")} ${foreign(worst.safe)}`, { ...causes, rows: others });
}
