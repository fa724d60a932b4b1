// The rest of the views: each makes its content from the last picture, or from the answer about one thing.
import { html, nothing } from "./lit-html.js";
import { BASE } from "./live.js";
import { FORMS, axis, axisFor, formOf, histogram, lane, plot, proof, ruler } from "./draw.js";
import { strip } from "./past.js";
import { SAID, asOf, command, elsewhere, filters, growing, isFiltered, least, list, openTitle, places, time, withQuery } from "./views.js";
import { clock, count, duration, foreign, ofClient, ofIncident, ofPartition, plural, reach, sign } from "./words.js";

const RUNBOOK = "https://github.com/txnwatch/txnwatch/blob/main/docs/runbook.md";

/** What to do, in steps; the server says it. */
const steps = (row, page) => (page.isStale ? [{ text: SAID.again, command: row.look }] : row.steps).map((one) => html`<div class="step"><b>${foreign(one.text)}</b>${command(one.command, page)}</div>`);

/** Whom to call. */
const whom = (owner) => html`<b>${foreign(owner.name)}</b>${owner.contact ? html` ${foreign(owner.contact)}` : nothing}${reach(owner.links)}${reach([["about the team", owner.url]])}`;
const at = (ms, page) => html` at ${time(ms, page)}`;
const value = (shown, page) => (typeof shown === "number" ? time(shown, page, 3) : foreign(shown));

export function allIncidents(answer, page) {
  const last = answer.offset + answer.rows.length;
  const size = Number(new URLSearchParams(location.search).get("limit") ?? 50);
  const pages = [answer.offset ? html`<a href=${BASE + withQuery({ offset: Math.max(0, answer.offset - size) || "" })}>previous</a>` : nothing, answer.more ? html`<a href=${BASE + withQuery({ offset: last })}>next</a>` : nothing];
  return [html`<section class="card ${page.isStale ? "stale" : ""}" aria-labelledby="h-incidents"><header><h2 id="h-incidents">${openTitle(page)}</h2><span class="muted small">${answer.count ? `${count(answer.offset + 1)} to ${count(last)} of ${count(answer.count)}` : "none"}</span></header>
    ${filters(answer.choices, page)}${answer.rows.length ? list(answer.rows, page) : html`<div class="body">No incident ${location.search ? "like this " : ""}is open.</div>`}
    ${answer.offset || answer.more ? html`<nav class="more pages" aria-label="Pages">${pages}</nav>` : nothing}</section>`, page.picture ? recent(page) : nothing];
}

/** What is below the lanes of the overview. */
export const below = (page) => [exposed(page), watcher(page), recent(page)];

const recent = (page) => (page.picture.recent.rows.length ? ended(page.picture.recent, page, html`: <a href=${`${BASE}/ended`}>list them</a>`) : nothing);

/** The incidents that ended; `further` leads to more of them. */
export function ended({ rows, more }, page, further = nothing) {
  return html`<section class="card" aria-labelledby="h-recent"><header><h2 id="h-recent">Ended within a day</h2>${more ? html`<span class="muted small">and ${count(more)} more${further}</span>` : nothing}</header>
    ${rows.length ? html`<div class="body scroll" tabindex="0" role="group" aria-labelledby="h-recent"><table><thead><tr><th scope="col">opened</th><th scope="col">verdict</th><th scope="col">partition</th><th scope="col">behind</th><th scope="col">how it ended</th></tr></thead>
    <tbody>${rows.map((row) => html`<tr><td>${time(row.since_ms, page)}</td><td><a href=${ofIncident(row.id)}>${row.tag}</a></td><td>${row.places.map((one, i) => html`${i ? ", " : ""}${foreign(one)}`)}</td><td class="mono">${foreign(row.holder)}</td><td>${row.how}, after ${duration(row.ended_ms - row.since_ms)}</td></tr>`)}</tbody></table></div>` : html`<div class="body"><p>The watcher knows of no incident that has ended within a day.</p></div>`}</section>`;
}

// --- the timeline
const form = (phase, text) => html`<span><svg viewBox="0 0 30 14" aria-hidden="true"><rect x="1" y=${phase === "open" ? 4.5 : 2} width="28" height=${phase === "open" ? 5 : 10} rx="2" fill=${formOf({ phase }).fill} stroke=${phase === "unowned" ? "var(--critical)" : "none"} stroke-dasharray="3 2.5"/></svg>${text}</span>`;

export function timeline(page) {
  const { order, lanes, others } = page.picture;
  const rows = order.lanes.map((key) => lanes[key]).filter(Boolean);
  const oldest = Math.max(0, ...rows.map((row) => page.now - row.since_ms), others.oldest_ms ? page.now - others.oldest_ms : 0) / 1000;
  const scale = axisFor(oldest, page.isLinear);
  const width = page.plotWidth;
  return html`<section class="card ${page.isStale ? "stale" : ""}" aria-labelledby="h-lanes">
    <header><h2 id="h-lanes">What stands in the way of readers</h2><span class="muted small">partitions with data that is open for 2 s or longer; worst first, then oldest; the axis is ${page.isLinear ? "linear" : "logarithmic"}</span></header>
    ${strip(page.picture.day, width, page.isStale)}<div class="lanes"><div class="lane"><div class="name">partition, holder</div><div class="plot">${axis(scale, width, asOf(page) ? clock(asOf(page), page.now) : "now")}</div><div class="figure">hidden from readers, open for</div></div>
    ${rows.map((row) => html`<div class="lane"><div class="name"><div><a href=${ofPartition(row.topic, row.partition)}>${foreign(`${row.topic}-${row.partition}`)}</a></div>
      <div class="muted small">${row.holder ? html`<a class="mono" href=${ofClient(row.holder)}>${foreign(row.holder.name)}</a>${row.holder.owner ? html` · ${foreign(row.holder.owner)}` : nothing}` : "held by a transaction that is not in the list"}</div>${row.holder ? nothing : command(row.look, page)}</div>
      <div class="plot">${lane(row, scale, width, page.now, page.barNow)}</div>
      <div class="figure"><div>${row.hidden === null ? "not known" : html`<b>${count(row.hidden)}</b> hidden`}</div><div class="small">${row.hidden === null ? nothing : growing(`lane ${row.topic}-${row.partition}`, row.hidden, page)}${duration(page.now - row.since_ms)}${row.more + row.behind.length ? ` · ${least(row.more + row.behind.length, row.more_is_least)} more open` : ""}</div></div></div>`)}
    ${order.more_lanes ? html`<p class="muted">and ${plural(order.more_lanes, "more partition")}: <a href=${`${BASE}/partitions`}>list the partitions</a></p>` : nothing}
    ${!isFiltered() && (others.count || rows.length === 0) ? html`<div class="lane"><div class="name"><div>${page.head?.judged_ms === null ? "Nothing was evaluated yet" : plural(others.count, "other")}</div><div class="muted small">${others.listed ? `${count(others.listed)} listed, the oldest for ${duration(page.now - others.oldest_ms)}` : "none of them is in the lists"}</div></div><div class="plot">${histogram(others.ages_s, scale, width)}</div>
      <div class="figure"><div class="small">not drawn one by one</div><div><a href=${`${BASE}/open`}>list the oldest</a></div></div></div>` : nothing}</div>
    <div class="key">${Object.entries(FORMS).map(([phase, one]) => one.key ? form(phase, one.key) : nothing)}
      <span><svg viewBox="0 0 30 14" aria-hidden="true"><path d="M11 4h8l-4 6z" fill="var(--muted)"/></svg>its own timeout</span>
      <span><svg viewBox="0 0 30 14" aria-hidden="true"><rect x="4" y="1" width="25" height="12" fill="url(#hidden)"/><line x1="3" x2="3" y1="0" y2="14" stroke="var(--text)" stroke-width="2"/></svg>last stable offset, and what it hides</span></div></section>`;
}

// --- the watcher itself
const FIGURES = [
  ["latency_p99_ms", "hang to event, p99", (one) => (one === null ? "no incident yet" : duration(one))],
  ["batch_ms", "micro-batch", (one) => (one === null ? "not known" : duration(one))],
  ["behind", "partitions not read to their ends", (one) => (one === null ? "not known" : count(one))],
  ["unproven", "partitions without proof", (one) => (one === null ? "not known" : count(one))],
  ["open", "open transactions", (one) => (one === null ? "not known" : count(one))],
  ["undelivered", "events not yet delivered", (one) => (one === null ? "not known" : count(one))],
];

/** A destination that does not take what it is given; nothing for one that does. */
function targetOf(one, page) {
  if (one.is_stopped) return html`<p class="more"><b>${foreign(one.name)} gets no events.</b> It has answered 410. If it should get them, start the watcher again.</p>`;
  if (one.problem === null) return nothing;
  return html`<p class="more"><b>${foreign(one.name)} takes no events.</b> ${plural(one.waiting, "event")} ${one.waiting === 1 ? "waits" : "wait"}${one.oldest_ms === null ? "" : `, the oldest for ${duration(page.now - one.oldest_ms)}`}. Last error: ${foreign(one.problem)}</p>`;
}

function watcher(page) {
  return html`<section class="card ${page.isStale ? "stale" : ""}" aria-labelledby="h-watcher"><header><h2 id="h-watcher">The watcher itself</h2><span class="muted small">the last hour, since this process was started</span></header>
    <div class="health">${FIGURES.map(([key, title, shown]) => html`<figure><figcaption>${title}</figcaption><div class="big">${page.isStale ? "not known" : shown(page.picture.watcher[key]?.[0] ?? null)}</div>${plot(page.series[key] ?? [])}</figure>`)}</div>${page.status?.targets.map((one) => targetOf(one, page))}</section>`;
}

// --- what exposes the cluster
const DOCS = "https://github.com/txnwatch/txnwatch/blob/main/";
const ofCheck = (name) => `${BASE}/audit/${encodeURIComponent(name)}`;
const toneOf = (row) => (row.severity === "warn" ? "warning" : row.severity);
const exposures = (counts) => {
  const worst = counts.critical ? "critical" : counts.warn ? "warn" : null;
  return `${plural(counts.critical + counts.warn + counts.info, "exposure")}${worst ? `, ${count(counts[worst])} ${worst}` : ""}`;
};
const audited = (counts, page) => html`audited ${duration(page.trueNow - counts.at_ms)} ago, at ${time(counts.at_ms, page)}`;

/** The quiet line. */
function exposed(page) {
  const counts = page.status?.exposures;
  return counts ? html`<p class="muted"><a href=${`${BASE}/audit`}>${exposures(counts)}</a> <span class="small">${audited(counts, page)}</span></p>` : nothing;
}

const listed = (names, total) => html`${names.map((one, i) => html`${i ? ", " : ""}${foreign(one)}`)}${total > names.length ? ` and ${count(total - names.length)} more` : ""}`;

function exposure(row, page) {
  const who = [
    row.affected > 1 ? ["affected", listed(row.examples, row.affected)] : null,
    row.exposed_ids === null ? null : ["transactional ids", row.exposed_ids ? listed(row.transactional_ids, row.exposed_ids) : "none"],
    row.owners.length ? ["to call", html`<b>${listed(row.owners, 0)}</b>`] : null,
    ...row.evidence.map((one) => ["evidence", html`${foreign(one.request)}: ${foreign(one.field)}: <span class="mono">${foreign(one.value)}</span>`]),
    row.incidents.length ? ["incidents of the last week that fit", html`${row.incidents.map((one, i) => html`${i ? ", " : ""}<a href=${ofIncident(one.id)}>${one.verdict.replace("_", " ")} of ${time(one.since_ms, page)}</a>`)}${row.more_incidents ? ` and ${count(row.more_incidents)} more` : ""}`] : null,
  ].filter(Boolean);
  return html`<li class=${toneOf(row)}>${sign(toneOf(row))}<div><h2><span class="tag">${row.severity.toUpperCase()}</span> <a href=${ofCheck(row.check)}>${row.check}</a> <span class="muted small">${[row.group, ...row.issues].join(", ")} · <a href=${DOCS + row.docs} rel="noreferrer">about it</a></span></h2><p>${foreign(row.finding)}</p>
    <dl class="facts small">${who.map(([name, shown]) => html`<dt>${name}</dt><dd>${shown}</dd>`)}</dl>
    ${row.remedies.map((one) => html`<div class="step"><b>${foreign(one.text)}</b>${command(page.isStale ? null : one.command, page)}</div>`)}</div></li>`;
}

export function audit(report, page) {
  const none = report.at_ms === null ? "This process has not audited the cluster: a watch does it a minute after it is ready, and then once an hour." : "Nothing was found in what is checked here.";
  return [html`<section class="card" aria-labelledby="h-audit"><header><h1 class="big" id="h-audit">${report.check ? report.check.name : "What exposes this cluster"}</h1><span class="muted small">${report.at_ms === null ? nothing : html`${report.check ? html`<a href=${`${BASE}/audit`}>${exposures(report.counts)}</a>` : exposures(report.counts)}, ${audited(report, page)}`}</span></header>
    ${report.check ? html`<div class="body"><p class="muted">It fires if: ${report.check.fires}</p></div>` : nothing}
    ${report.rows.length ? html`<ol class="exposures">${report.rows.map((row) => exposure(row, page))}</ol>` : html`<div class="body"><p>${none}</p></div>`}
    ${report.unexplained ? html`<div class="body"><p>${report.unexplained}</p></div>` : nothing}</section>`,
  html`<section class="card"><header><h2>Not checked</h2></header><div class="body"><dl class="facts">${report.not_checked.map((one) => html`<dt>${foreign(one.what)}</dt><dd>${foreign(one.why)}</dd>`)}</dl><p>This command makes all checks, and only reads.</p>${command(report.command, page)}</div></section>`];
}

const answerOf = (row, page) => {
  if (row.problem) return html`<b>not used</b>: ${foreign(row.problem)}`;
  const age = row.judged_ms === null ? "nothing evaluated yet" : `evaluated ${duration(page.trueNow - row.judged_ms)} ago`;
  return html`${row.is_shown ? html`<b>shown</b>, ` : nothing}${age}, answered in ${duration(row.took_ms)}`;
};

function watchers(page) {
  const { watchers: rows } = page.status;
  if (page.head.instance) return nothing;
  return html`<section class="card"><header><h2 id="h-watchers">The watchers of this cluster</h2></header><div class="body scroll" tabindex="0" role="group" aria-labelledby="h-watchers"><table><thead><tr><th scope="col">asked at</th><th scope="col">answer</th><th scope="col">watcher</th><th scope="col">version</th><th scope="col">view</th></tr></thead>
    <tbody>${rows.map((row) => html`<tr><td>${elsewhere(row.url, row.url)}</td><td>${answerOf(row, page)}</td><td>${foreign(row.instance ?? "")}</td><td>${foreign(row.version ?? "")}</td><td>${row.view ?? ""}</td></tr>`)}</tbody></table></div></section>`;
}

export function watcherView(page) {
  const { status } = page;
  const facts = [
    ["state", `${status.state}${status.why ? `: not met: ${status.why}` : ""}`],
    ["view of the coordinators", status.view],
    ["not detected in this view", status.not_detected?.length ? status.not_detected.join(", ") : "nothing"],
    ["scanned partitions", count(status.partitions.scanned)],
    ["partitions that a census watches", count(status.partitions.census)],
    ["of these, beyond the bytes per second: no stray writes are found", count(status.partitions.beyond)],
    ["partitions without proof", status.partitions.unproven === null ? "not known" : `${count(status.partitions.unproven)} ${status.unproven_names.join(", ")}`],
    ["of these, of the coordinators' log", count(status.unread_log_partitions)],
    ["open transactions that may hang", status.undecided === null ? "not known" : `${count(status.undecided)} ${status.undecided_names.join("; ")}`],
    ["last barrier", status.barrier === null ? "none" : count(status.barrier)],
    ["events that the topic lacks", status.undelivered === null ? "not known" : count(status.undelivered)],
    ["bootstrap servers", status.bootstrap_servers ?? "not known"],
    ...(page.head.instance ? [["this instance", page.head.instance]] : []),
    ["publishes events", status.speaks ? "this instance" : status.speaker ?? (status.speaks === null ? "not known" : "another instance, of which no heartbeat was read within a minute")],
    ...status.targets.map((one) => [`events to ${one.name}`, one.problem ?? (one.waiting ? `${count(one.waiting)} waiting` : "all taken")]),
  ];
  return [watcher(page), watchers(page), html`<section class="card"><header><h2>What it covers</h2></header><div class="body"><dl class="facts">${facts.map(([name, text]) => html`<dt>${name}</dt><dd>${foreign(text)}</dd>`)}</dl></div></section>`];
}

// --- one incident
export function incident(details, page) {
  const tone = details.severity === "info" ? "info" : details.severity;
  const isOpen = details.ended_ms === null;
  return html`<section class="sentence ${isOpen ? tone : "limited"}">${sign(isOpen ? tone : "limited")}<h1><b>${details.tag}</b> ${places(details)} behind ${foreign(details.holder)}. ${isOpen ? "" : "It has ended."}</h1><p>${foreign(details.why)} ${foreign(details.outcome)} ${foreign(details.connect)}</p>
      <div class="age"><span class="small">${isOpen ? "standing for at least" : "was open for at least"}</span> <strong>${duration((details.ended_ms ?? page.now) - details.since_ms)}</strong> <span class="small">since ${time(details.since_ms, page)}</span></div></section>
    <div class="two ${page.isStale ? "stale" : ""}"><div class="stack">
      ${isOpen ? html`<section class="card"><header><h2>What to do</h2><span class="small"><a href="${RUNBOOK}#${details.runbook}" rel="noreferrer">Runbook: ${details.tag.toLowerCase()}</a></span></header><div class="body"><p class="safe">${foreign(details.safe)}</p>${steps(details, page)}<p>${foreign(details.ends)}</p>
        <p class="muted">A command of txnwatch reads everything again, asks before it writes, and reads the marker back. Nothing is written from this page.${details.decision && !page.isStale ? ` The ${details.decision}.` : ""}</p></div></section>` : nothing}
      ${details.proof ? proofCard(details.proof, page) : nothing}
      <section class="card"><header><h2>Its life</h2>${details.life_is_whole ? nothing : html`<span class="muted small">only the events since this process was started</span>`}</header><div class="body"><ol class="life">${details.life.map((one) => html`<li><span class="muted">${time(one.at_ms, page, 3)}</span><span><b>${one.status}</b> · ${foreign(one.text)}</span></li>`)}</ol></div></section>
    </div><div class="stack">
      ${ownerCard(details)}
      ${details.causes.length ? html`<section class="card"><header><h2>What can be its cause</h2><span class="muted small">by the last audit</span></header><div class="body">${details.causes.map((one) => html`<p><b>${one.severity}</b> <a href=${ofCheck(one.check)}>${one.check}</a> ${foreign(one.finding)}</p>`)}</div></section>` : nothing}
      ${waits(details, page)}
      <section class="card"><header><h2>Facts</h2></header><div class="body"><dl class="facts">${details.facts.map(([name, shown]) => html`<dt>${name}</dt><dd>${value(shown, page)}</dd>`)}<dt>incident</dt><dd><code>${details.id}</code></dd></dl></div></section>
    </div></div>`;
}

const ownerCard = (details) => html`<section class="card"><header><h2>Whom to call</h2></header><div class="body">
  <p>${details.owner ? html`${whom(details.owner)} <span class="muted">found by the ${details.owner.found_by}</span>` : details.no_owner}</p>
  ${details.application ? html`<p class="muted">Its id: ${foreign(details.application)}.</p>` : nothing}</div></section>`;

function proofCard(evidence, page) {
  const looks = [...evidence.looks.map((one, i) => [`Look ${i + 1}`, one.barrier === null ? "" : `barrier ${count(one.barrier)}`, one]), ["Fresh read", evidence.fresh_read.confirmed_ms === null ? "" : clock(evidence.fresh_read.confirmed_ms, page.now, 3), evidence.fresh_read]];
  return html`<section class="card"><header><h2>How it was proven</h2></header><div class="body proof"><div class="plot">${proof(evidence, page.proofWidth, page.now)}</div></div>
    <ol class="looks">${looks.map(([title, where, one]) => html`<li><h3>${title} <span class="muted small">${where}</span></h3>${one.text.map((text) => html`<p>${foreign(text)}</p>`)}<p><b>${one.gives}</b></p></li>`)}</ol>
    <div class="body"><p class="muted small">A barrier is one look at all logs. D: the end of the partition was listed. T: the end of the coordinators' log was listed, after D. A look has read both logs to these ends.</p></div></section>`;
}

function waits(details, page) {
  const { waits: behind, next_holder: next } = details;
  return html`<section class="card"><header><h2>What waits behind it</h2></header><div class="body tree"><div><a class="mono" href=${ofClient(details)}>${foreign(behind.holder)}</a> <span class="muted">producer ${behind.producer_id}</span></div>
      <ul>${behind.places.map((place) => html`<li>${details.topic ? html`<a href=${ofPartition(details.topic, details.partition)}>${foreign(place)}</a>` : foreign(place)} <span class="muted">${behind.last_stable === null ? "" : `stands at ${count(behind.last_stable)}`}${behind.hidden === null ? "" : `; ${least(behind.hidden, behind.hidden_is_least)} hidden`}${behind.hidden_at_ms === null ? nothing : at(behind.hidden_at_ms, page)}</span></li>`)}
      <li><ul>${behind.groups.map((one) => html`<li><b>${foreign(one.name)}</b> <span class="muted">${one.state === "stopped" ? "stopped" : "at risk"}, ${count(one.behind)} behind${one.behind_at_ms === null ? nothing : at(one.behind_at_ms, page)}${one.owner ? html` · ${foreign(one.owner)}` : nothing}</span></li>`)}${behind.more_groups ? html`<li>and ${behind.more_groups} more groups</li>` : nothing}${behind.waiting.map((one) => html`<li><b>${foreign(one.name)}</b> <span class="muted">waits for its committed offsets of ${one.partitions.map((at, i) => html`${i ? ", " : ""}${foreign(at)}`)} and reads nothing after a restart or rebalance</span></li>`)}${behind.more_waiting ? html`<li>and ${behind.more_waiting} more groups wait</li>` : nothing}${behind.cleaner ? html`<li>the log cleaner <span class="muted">stops here, too</span></li>` : nothing}</ul></li></ul></div></section>
    ${details.ended_ms === null && details.topic ? html`<section class="card"><header><h2>If you end it</h2></header><div class="body"><p>${next ? html`Of the listed transactions, <a class="mono" href=${ofClient(next)}>${foreign(next.name)}</a> is the next: from <b>${count(next.start)}</b>, open for ${duration(page.now - next.since_ms)} (ends by itself: ${next.ends}).` : "No other listed transaction is open on this partition. Readers come to its end."}</p><p class="muted">Listed are those that are open for 2 s or longer, at most the oldest of each bucket.</p></div></section>` : nothing}`;
}

// --- what is not there
/** What to type about something that the watcher does not know. */
const toType = (look, page) => (look ? html`<section class="card"><header><h2>What to type</h2></header><div class="body"><p>This command asks the brokers, and only reads.</p>${command(look, page)}</div></section>` : nothing);

/** Says that something is not there, in the form of what is not known; `look` is a command that may find it.
 * The server adds MISSING to this file, and SAID to views.js: the sentences that the text has, too. */
export function missing(what, look, page) {
  const [title, text] = MISSING[what] ?? MISSING["no address"];
  return html`<section class="sentence unknown missing">${sign("unknown")}<h1>${title}</h1><p>${text}</p></section>${what === "Incident" && look ? html`<section class="card"><div class="body">${command(look, page)}</div></section>` : toType(look, page)}`;
}

/** What has the text in its name. */
export const found = ({ matches, more }) => html`<section class="card"><header><h1 class="big" id="h-found">Found</h1>${more ? html`<span class="muted small">and ${count(more)} more</span>` : nothing}</header><div class="body scroll" tabindex="0" role="group" aria-labelledby="h-found"><table><thead><tr><th scope="col">what</th><th scope="col">name</th></tr></thead><tbody>
  ${matches.map((one) => html`<tr><td>${one.kind}</td><td class="mono"><a href=${BASE + one.address}>${foreign(one.text)}</a></td></tr>`)}</tbody></table></div></section>`;

// --- one partition, one client, the oldest
function partitionHead(details, page) {
  const place = foreign(`${details.topic}-${details.partition}`);
  const worst = details.incidents[0];
  if (worst) return [worst.severity, html`<b>${place} ${worst.places.includes(`${details.topic}-${details.partition}`) ? "stands still" : "has an incident"}.</b> Readers stop ${details.last_stable === null ? "" : `at offset ${count(details.last_stable)} `}behind ${foreign(worst.holder)}.`, `watched: ${details.watched}`];
  if (details.is_watched === false) return ["unknown", html`<b>${place} is not watched, or does not exist.</b> Nothing is known about it.`, details.partitions_watched ? `Of ${details.topic}, the partitions 0 to ${details.partitions_watched - 1} are watched.` : `No topic with the name ${details.topic} is watched.`];
  if (details.is_watched === null) return ["unknown", html`<b>Whether ${place} is watched is not known.</b>`, "The watcher has no list of the partitions yet."];
  if (details.is_unproven || page.isStale) return ["unknown", html`<b>Nothing is known about ${place}${page.isStale ? " now" : ""}.</b>`, `watched: ${details.watched}`];
  return ["limited", html`<b>${place}.</b> No incident is open here.`, `watched: ${details.watched}`];
}

export function partition(details, page) {
  const [tone, title, text] = partitionHead(details, page);
  const head = html`<section class="sentence ${tone}">${sign(tone)}<h1>${title}</h1><p>${foreign(text)}</p></section>`;
  if (!details.incidents.length && details.is_watched !== true) return [head, toType(details.look, page)];
  return html`${head}
    ${details.incidents.length ? html`<section class="card"><header><h2>What to do</h2>${details.leader === null ? nothing : html`<span class="muted small">leader: broker ${details.leader}, at ${time(details.leader_ms, page)}</span>`}</header>${list(details.incidents, page)}</section>` : nothing}
    ${details.last_stable === null ? nothing : html`<section class="card"><header><h2>Offsets</h2><span class="muted small">not to scale left of the last stable offset</span></header><div class="body"><div class="plot">${ruler(details, page.rulerWidth)}</div></div></section>`}
    <div class="two"><section class="card"><header><h2 id="h-open">Open here, in the order in which they hold readers back</h2></header><div class="body scroll" tabindex="0" role="group" aria-labelledby="h-open">
      ${details.holder_is_listed || details.last_stable === null ? nothing : html`<p>It is held by a transaction that is not in this list.</p>`}${command(details.look, page)}
      ${details.holders.length ? html`<table><thead><tr><th scope="col" class="number">from offset</th><th scope="col">transactional id</th><th scope="col">state</th><th scope="col">open for</th><th scope="col">ends by itself</th></tr></thead><tbody>${details.holders.map((one) => html`<tr><td class="number">${count(one.start)}</td><td class="mono"><a href=${ofClient(one)}>${foreign(one.name)}</a></td><td>${one.state}</td><td>${duration(page.now - one.since_ms)}</td><td>${one.ends}</td></tr>`)}</tbody></table>` : html`<p>Nothing is open here for 2 s or longer.</p>`}</div></section>
    <section class="card"><header><h2 id="h-groups">Groups</h2></header><div class="body scroll" tabindex="0" role="group" aria-labelledby="h-groups">${details.groups.length ? html`<table><thead><tr><th scope="col">group</th><th scope="col">state</th><th scope="col" class="number">lag that Kafka reports</th><th scope="col" class="number">really behind</th></tr></thead><tbody>${details.groups.map((one) => html`<tr><td>${foreign(one.name)}</td><td><b>${one.state === "stopped" ? "stopped" : "at risk"}</b></td><td class="number">${one.lag === null ? "nothing committed" : count(one.lag)}</td><td class="number">${count(one.behind)}${one.behind_at_ms === null ? nothing : html`<div class="muted small">${at(one.behind_at_ms, page)}</div>`}</td></tr>`)}</tbody></table>
      <p class="muted small">The lag that Kafka reports ends at the last stable offset, so it is 0 while the group stands. Really behind is up to the end of the partition.</p>` : html`<p>Groups are read only for an incident that holds a partition.</p>`}</div></section></div>`;
}

/** The partitions with open data; for a prepared transaction also those whose marker is missing, and what is known of it. */
function spansOf(details, page) {
  const stuck = details.incidents.find((one) => one.is_open && one.verdict === "stuck_prepare");
  const hasMarkers = stuck || details.open.some((one) => one.prepared_ms !== null);
  const missing = new Set(stuck?.pending);
  const spans = details.open.flatMap((one) => one.spans).map((span) => ({ ...span, place: `${span.topic}-${span.partition}` }));
  const marker = (place) => (!stuck ? "not seen yet" : missing.has(place) ? "missing" : "written, as its coordinator says; not read here yet");
  const others = [...missing].filter((place) => !spans.some((span) => span.place === place));
  const placed = (place) => [place.slice(0, place.lastIndexOf("-")), place.slice(place.lastIndexOf("-") + 1)];
  return html`<table><thead><tr><th scope="col">partition</th><th scope="col" class="number">from offset</th><th scope="col">first seen</th>${hasMarkers ? html`<th scope="col">marker</th>` : nothing}</tr></thead><tbody>
    ${spans.map((span) => html`<tr><td><a href=${ofPartition(span.topic, span.partition)}>${foreign(span.place)}</a></td><td class="number">${count(span.start)}</td><td>${time(span.since_ms, page)}</td>${hasMarkers ? html`<td>${marker(span.place)}</td>` : nothing}</tr>`)}
    ${others.map((place) => html`<tr><td><a href=${ofPartition(...placed(place))}>${foreign(place)}</a></td><td class="number">not seen</td><td>not seen</td><td>missing when it was confirmed; no open data is seen now</td></tr>`)}</tbody></table>
    ${stuck ? html`<p class="muted small">A partition whose marker is written and read is not in this table any more.</p>` : nothing}`;
}

export function client(details, page) {
  const open = details.open[0];
  const bad = details.incidents.find((one) => one.is_open);
  const tone = bad ? (bad.verdict === "hanging" || bad.verdict === "stuck_prepare" ? "critical" : "warning") : "limited";
  const states = { unowned: "No live transaction owns its data", owner_unknown: "It has open data" };
  const title = bad ? html`<b>${bad.verdict.replace("_", " ").toUpperCase()}</b> for ${duration(page.now - bad.since_ms)}` : open ? html`<b>${states[open.state] ?? open.state}</b> for ${duration(page.now - open.since_ms)}` : html`<b>Nothing is open</b> for 2 s or longer`;
  return html`<section class="sentence ${tone}">${sign(tone)}<h1>${title}</h1><p class="mono">${foreign(details.name ?? "no transactional id is known")}</p></section>
    ${details.row ? html`<section class="card"><header><h2>What to do</h2></header>${list([details.row], page)}</section>` : nothing}
    <div class="two"><section class="card"><header><h2 id="h-spans">Partitions with open data</h2></header><div class="body scroll" tabindex="0" role="group" aria-labelledby="h-spans">${spansOf(details, page)}</div></section>
    ${ownerCard(details)}
    <section class="card"><header><h2>Its incidents</h2></header><div class="body"><ol class="life">${details.incidents.map((one) => html`<li><span class="muted">${time(one.since_ms, page)}</span><span><a href=${ofIncident(one.id)}>${one.verdict}</a> · ${foreign(one.text)}</span></li>`)}</ol><p class="muted">producer ids: ${details.producer_ids.join(", ")}${details.length > 1000 ? html` · the id has ${count(details.length)} characters` : nothing}</p></div></section></div>`;
}

export const oldest = (answer, page) => html`<section class="card"><header><h1 class="big" id="h-oldest">The oldest open transactions</h1>${answer.more ? html`<span class="muted small">and ${count(answer.more)} more</span>` : nothing}</header><div class="body scroll" tabindex="0" role="group" aria-labelledby="h-oldest"><table><thead><tr><th scope="col">transactional id</th><th scope="col">state</th><th scope="col">open for</th><th scope="col">partitions</th></tr></thead><tbody>${answer.rows.map((row) => html`<tr><td class="mono"><a href=${ofClient(row)}>${foreign(row.name)}</a></td><td>${row.state}</td><td>${duration(page.now - row.since_ms)}</td><td>${row.partitions.join(", ")}${row.more_partitions ? ` and ${row.more_partitions} more` : ""}</td></tr>`)}</tbody></table></div></section>`;

export const partitions = (answer, page) => html`<section class="card"><header><h1 class="big" id="h-partitions">Partitions that are held back</h1><span class="muted small">worst first, then oldest${answer.more ? `; and ${count(answer.more)} more` : ""}</span></header><div class="body scroll" tabindex="0" role="group" aria-labelledby="h-partitions"><table><thead><tr><th scope="col">partition</th><th scope="col">held by</th><th scope="col">verdict or state</th><th scope="col">open for</th><th scope="col" class="number">hidden</th><th scope="col" class="number">more open</th></tr></thead><tbody>
  ${answer.rows.map((row) => html`<tr><td><a href=${ofPartition(row.topic, row.partition)}>${foreign(`${row.topic}-${row.partition}`)}</a></td><td class="mono">${row.holder ? html`<a href=${ofClient(row.holder)}>${foreign(row.holder.name)}</a>` : "not in the list"}</td><td>${row.holder ? row.holder.phase.replace("_", " ") : nothing}</td><td>${duration(page.now - row.since_ms)}</td><td class="number">${row.hidden === null ? "not known" : count(row.hidden)}</td><td class="number">${least(row.more, row.more_is_least)}</td></tr>`)}</tbody></table></div></section>`;
