// Beyond one incident: what open ones share; and the past, which is from the events topic and no evidence.
import { html, nothing, svg } from "./lit-html.js";
import { unit } from "./draw.js";
import { clock, count, duration, foreign, ofClient, ofIncident, plural, reach } from "./words.js";
import { SAID } from "./views.js";
import { BASE } from "./live.js";


const TONES = ["var(--info)", "var(--warning)", "var(--critical)"];
const WORDS = ["early warnings", "warnings", "critical"];
const HOURS = 6;

/** How many incidents were open in each quarter of an hour of the last 24; higher is more, and the worst has the colour. */
export function strip({ slots, from_ms: from, step_ms: step, opened }, width, isStale) {
  if (slots === null) return nothing;
  const u = unit();
  const high = Math.round(34 * u);
  const number = 86400000 / step;
  const x = (slot) => (slot * width) / number;
  const most = Math.max(1, ...slots.map(([, many]) => many));
  const worst = slots.reduce((latest, slot) => (slot[1] === most ? slot : latest), null);
  const label = slots.length ? `Incidents open in each quarter of an hour of the last 24 hours: at most ${count(most)}, at ${clock(from + worst[0] * step, from + 86400000).slice(-8, -3)}` : "No incident in the last 24 hours";
  const hours = Array.from({ length: 24 / HOURS }, (_, i) => (Math.ceil(from / (HOURS * 3600000)) + i) * HOURS * 3600000);
  return html`<div class="strip"><div class="name">the last 24 h</div>
    <div class="plot"><svg viewBox="0 0 ${width} ${high}" height=${high} role="img" aria-label=${label}>
      ${hours.map((at) => svg`<line x1=${x((at - from) / step)} x2=${x((at - from) / step)} y1="0" y2=${high} stroke="var(--rule)"/><text x=${x((at - from) / step) + 3 * u} y=${10 * u} font-size=${10.5 * u} fill="var(--muted)">${new Date(at).toISOString().slice(11, 16)}</text>`)}
      <line x1="0" x2=${width} y1=${high - 0.5} y2=${high - 0.5} stroke="var(--line)"/>
      ${slots.map(([slot, many, tone]) => {
        const tall = (4 + (tone + 1) * 3 + 9 * (Math.log(many) / Math.log(Math.max(2, most)))) * u;
        return svg`<rect x=${x(slot)} y=${high - tall} width=${Math.max(1.5, width / number - 1)} height=${tall} fill=${TONES[tone]}><title>${clock(from + slot * step, from + 86400000)}: ${count(many)} open, the worst ${WORDS[tone]}</title></rect>`;
      })}</svg></div>
    <div class="figure"><a href=${`${BASE}/history`}>${opened ? `${plural(opened, "incident")} opened` : isStale ? "not known now" : "no incident opened"}</a></div></div>`;
}

const TITLES = { owner: "By owner", transactional_id: "By transactional id", partition: "By partition", verdict: "By verdict", day: "By day" };

const ends = (row) => row.ends.map(([how, many], i) => html`${i ? ", " : ""}<span class="keep">${count(many)} ${how}</span>`);

function facet({ by, rows, more }, days) {
  const id = `h-by-${by}`;
  return html`<section class="card past"><header><h2 id=${id}>${TITLES[by]}</h2><span class="muted small">${more ? html`and ${count(more)} more: ` : nothing}<a href=${`${BASE}/api/v1/history.csv?days=${days}&by=${by}`} download>CSV</a></span></header>
    <div class="body scroll" tabindex="0" role="group" aria-labelledby=${id}><table><thead><tr><th scope="col">${by.replace("_", " ")}</th><th scope="col" class="number">incidents</th><th scope="col" class="number">median</th><th scope="col" class="number">longest</th><th scope="col" class="number">in all</th><th scope="col">how they ended</th></tr></thead>
    <tbody>${rows.map((row) => html`<tr><td class="name">${foreign(row.name)}</td><td class="number">${count(row.incidents)}${row.opened_before && by !== "day" ? html`<div class="muted small">${count(row.opened_before)} opened before</div>` : nothing}</td><td class="number">${duration(row.median_ms)}</td><td class="number">${duration(row.longest_ms)}</td><td class="number">${duration(row.total_ms)}</td><td>${ends(row)}</td></tr>`)}</tbody></table></div></section>`;
}

const SPANS = [[1, "a day"], [3, "3 days"], [7, "a week"], [31, "31 days"]];

/** A week of history; on a page of several clusters, where it is. */
export function week(history, page) {
  if (history.state !== "read") return elsewhere(history, page);
  const { days } = history;
  const at = (ms) => html`<time datetime=${new Date(ms).toISOString()}>${clock(ms, page.now)}</time>`;
  return html`<section class="card"><header><h1 class="big" id="h-history">History</h1><nav class="small pages" aria-label="How long">${SPANS.map(([one, text]) => html`<a href=${`${BASE}/history${one === 7 ? "" : `?days=${one}`}`} aria-current=${one === days ? "true" : nothing}>${text}</a>`)}</nav></header>
      <div class="body"><p><b>${history.headline}</b></p>${history.remarks.map((one) => html`<p>${one}</p>`)}
      <p class="muted">From the events topic ${foreign(history.topic)}${history.is_signed ? ", from records with a valid signature" : ", which others may be able to write"}. Each incident counts once. A duration is a lower bound. Nothing here is evidence. ${SAID.again} The topic keeps what has ended for a limited time, a week by default.</p>
      <p><a href=${`${BASE}/api/v1/history.md?days=${days}`}>Markdown for a ticket</a> · <a href=${`${BASE}/api/v1/history.csv?days=${days}`} download>CSV of all incidents</a></p></div></section>
    ${history.incidents.length ? html`<div class="facets">${history.facets.map((one) => facet(one, days))}</div>` : nothing}
    ${history.incidents.length ? html`<section class="card past"><header><h2 id="h-past">The incidents, the last one first</h2>${history.more ? html`<span class="muted small">and ${count(history.more)} more</span>` : nothing}</header>
      <div class="body scroll" tabindex="0" role="group" aria-labelledby="h-past"><table><thead><tr><th scope="col">opened</th><th scope="col">verdict</th><th scope="col">partition</th><th scope="col">behind</th><th scope="col">owner</th><th scope="col" class="number">open for at least</th><th scope="col">how it ended</th></tr></thead>
      <tbody>${history.incidents.map((row) => html`<tr><td>${at(row.since_ms)}${row.opened_before ? html`<div class="muted small">opened before</div>` : nothing}</td><td><a href=${ofIncident(row.id)}>${row.tag}</a></td><td>${row.places.map((one, i) => html`${i ? ", " : ""}${foreign(one)}`)}${row.more_places ? ` and ${count(row.more_places)} more` : ""}</td><td class="mono name"><a href=${ofClient(row)}>${foreign(row.holder)}</a></td><td>${foreign(row.owner)}${reach(row.links)}</td><td class="number">${duration((row.ended_ms ?? history.to_ms) - row.since_ms)}</td><td>${row.ended_ms === null ? html`<b>still open</b>` : row.how}</td></tr>`)}</tbody></table></div></section>` : nothing}`;
}

function elsewhere(history, page) {
  const urls = (page.status?.watchers ?? []).map((one) => one.url).filter((one) => /^https?:\/\//.test(one));
  return html`<section class="card"><header><h1 class="big">History</h1></header><div class="body">${history.state === "reading"
    ? html`<p>The events topic is being read.</p>`
    : html`<p>The history is on the page of a watcher of this cluster: it reads the events topic, and this page does not.</p>${urls.map((url) => html`<p><a href=${`${url.replace(/\/$/, "")}/history`} rel="noreferrer">${foreign(url)}</a></p>`)}`}</div></section>`;
}

// --- what open incidents share
const holds = (row) => `${plural(row.partitions, "partition")} and ${plural(row.groups, "group")}`;
const rootOf = (row) => html`${row.kind} ${row.producer_id === null ? html`<b>${foreign(row.name)}</b>` : html`<a class="mono" href=${ofClient(row)}>${foreign(row.name)}</a>`}`;

/** The first roots of several incidents, below their list. */
export function rootLine({ picture }) {
  const { roots: rows, more } = picture.shared;
  return rows.length ? html`<div class="more">${rows.map((row) => html`${rootOf(row)} holds ${holds(row)} in ${plural(row.incidents, "incident")}; `)}${more ? `${count(more)} more; ` : ""}<a href=${`${BASE}/roots`}>what they share</a></div>` : nothing;
}

const behindOf = (row) => html`${row.behind.map((one, i) => html`${i ? ", " : ""}<a href=${ofIncident(one.id)}>${one.tag} ${foreign(one.place)}</a>`)}${row.more ? ` and ${count(row.more)} more` : ""}`;
const table = (id, title, more, columns, rows) => html`<section class="card past ${id}"><header><h2 id=${id}>${title}</h2>${more ? html`<span class="muted small">and ${count(more)} more</span>` : nothing}</header>
  <div class="body scroll" tabindex="0" role="group" aria-labelledby=${id}>${rows.length ? html`<table><thead><tr>${columns.map((one) => html`<th scope="col">${one}</th>`)}</tr></thead><tbody>${rows}</tbody></table>` : html`<p>None.</p>`}</div></section>`;

/** The roots of several incidents, and each hurt group once. */
export const roots = (shared, page) => html`<h1 class="visually-hidden">What the open incidents share</h1>
  ${table("h-roots", "Roots of several incidents", shared.more_roots, ["root", "holds", "since", "incidents"], shared.roots.map((row) => html`<tr><td class="name">${rootOf(row)}</td><td>${holds(row)}</td><td>${clock(row.since_ms, page.now)}</td><td>${behindOf(row)}</td></tr>`))}
  ${table("h-hurt", "Groups that do not get on, or are at risk", shared.more_groups, ["group", "state", "owner", "behind"], shared.groups.map((row) => html`<tr><td class="name">${foreign(row.name)}</td><td><b>${row.state}</b></td><td>${foreign(row.owner ?? "not known")}</td><td>${behindOf(row)}</td></tr>`))}
  <p class="muted">A root is where to look first: one transactional id, one partition of the coordinators’ log, or a broker that most of the incidents have in common. It is no proof of a cause.</p>`;
