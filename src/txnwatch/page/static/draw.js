// The drawings: the lanes, the proof, the offsets of a partition, small plots. Widths are in CSS pixels.
import { html, svg, nothing } from "./lit-html.js";
import { clock, count, duration, plural } from "./words.js";

const TWO_PHASE_MS = 2147483647; // such a transaction is never aborted by time

export const unit = () => parseFloat(getComputedStyle(document.documentElement).fontSize) / 14;

// --- the time axis: the age on a logarithmic axis, now at the right
const HOUR = 3600;
const SPANS = [HOUR, 24 * HOUR, 30 * 24 * HOUR];
const TICKS = [
  [30 * 24 * HOUR, "30 d"], [7 * 24 * HOUR, "7 d"], [24 * HOUR, "24 h"], [6 * HOUR, "6 h"],
  [HOUR, "1 h"], [600, "10 min"], [60, "1 min"], [10, "10 s"],
];

/** The axis for an oldest age in seconds; `isLinear`: the last 15 minutes. */
export function axisFor(oldest, isLinear) {
  const longest = isLinear ? 900 : SPANS.find((one) => oldest <= one) ?? SPANS.at(-1);
  const at = (age, width) => {
    const cut = Math.min(Math.max(0, age), longest);
    return width * (1 - (isLinear ? cut / longest : Math.log(1 + cut) / Math.log(1 + longest)));
  };
  const ticks = isLinear
    ? [[900, "15 min"], [600, "10 min"], [300, "5 min"]]
    : TICKS.filter(([age]) => age <= longest && (longest === HOUR || age >= 60 || age === 10));
  return { longest, at, ticks };
}

export function axis(scale, width, right) {
  const u = unit();
  let before = Infinity;
  const labels = scale.ticks.toReversed().flatMap(([age, text]) => {
    const x = scale.at(age, width);
    const half = text.length * 3.6 * u;
    if (x + half > before - 14 * u || (x < half && age !== scale.longest)) return [];
    before = x - half;
    const anchor = age === scale.longest ? "start" : "middle";
    return [svg`<text x=${x} y=${14 * u} font-size=${11.5 * u} text-anchor=${anchor} fill="var(--muted)">${text}</text>`];
  });
  return html`<svg viewBox="0 0 ${width} ${20 * u}" height=${20 * u} aria-hidden="true">${labels}
    <text x=${width} y=${14 * u} font-size=${11.5 * u} text-anchor="end" fill="var(--muted)">${right}</text></svg>`;
}

const grid = (scale, width, height) =>
  scale.ticks.map(([age]) => svg`<line x1=${scale.at(age, width)} x2=${scale.at(age, width)} y1="0" y2=${height} stroke="var(--rule)"/>`);

export const FORMS = { // `key` is the text in the key below the timeline
  hanging: { fill: "url(#hanging)", text: "never ends", key: "hanging: never ends" },
  stuck_prepare: { fill: "url(#prepared)", text: "", key: "prepared: markers missing" }, // see textOf
  late: { fill: "var(--warning)", text: "late", key: "late" },
  long_running: { fill: "var(--info)", text: "long running", key: "long running" },
  stray_write: { fill: "var(--warning)", text: "stray write" },
  unowned: { fill: "var(--surface)", text: "no owner at one look", key: "no owner at one look" },
  prepared: { fill: "var(--healthy)", text: "" },
  open: { fill: "var(--healthy)", text: "", key: "open, healthy" },
};
export const formOf = (bar) => FORMS[bar.phase] ?? FORMS.open;
const textOf = (bar) => {
  if (bar.phase !== "stuck_prepare") return formOf(bar).text;
  return bar.markers_missing ? `${plural(bar.markers_missing, "marker")} missing` : "last record missing";
};
const isStrong = (bar) => !["open", "prepared"].includes(bar.phase);

/** One partition: the black line is the last stable offset, the hatching is what it hides. Bars end at `barNow`. */
export function lane(row, scale, width, now, barNow) {
  const u = unit();
  const height = Math.round(30 * u);
  const bar = row.holder;
  const age = (since) => (barNow - since) / 1000;
  const first = bar ?? row.behind[0];
  const x = first ? Math.min(width - 3, Math.max(1, scale.at(age(first.since_ms), width))) : width * 0.5;
  const label = first ? `${first.name}, open for ${duration(now - first.since_ms)}` : "the holder is not in the list";
  const thin = row.behind.map((one, i) => {
    const at = Math.min(width - 3, scale.at(age(one.since_ms), width));
    return svg`<rect x=${at} y=${height - 7 * u - i * 4.5 * u} width=${width - at} height=${2.6 * u} rx="1" fill="var(--healthy)"/>`;
  });
  return html`<svg viewBox="0 0 ${width} ${height}" height=${height} role="img" aria-label=${label}>
    ${grid(scale, width, height)}
    <rect x=${x} y=${3 * u} width=${width - x} height=${height - 6 * u} fill="url(#hidden)"/>
    ${bar ? thin : nothing}
    ${bar ? strongBar(bar, scale, width, height, x, row.behind.length, u) : nothing}
    <line x1=${x} x2=${x} y1="0" y2=${height} stroke="var(--text)" stroke-width="2" stroke-dasharray=${bar ? nothing : "3 3"}/>
  </svg>`;
}

function strongBar(bar, scale, width, height, x, behind, u) {
  const form = formOf(bar);
  const strong = isStrong(bar);
  const text = textOf(bar);
  const high = (strong ? 13 : 6) * u;
  const y = behind ? 4.5 * u : (height - high) / 2;
  const hollow = bar.phase === "unowned";
  const long = text.length * 7.1 * u + 12 * u;
  const inside = width - x > long + 14 * u;
  const timeout = bar.prepared_ms === null && bar.timeout_ms && bar.timeout_ms < TWO_PHASE_MS ? scale.at(bar.timeout_ms / 1000, width) : null;
  const words = !strong || !text ? nothing : inside
    ? svg`<rect x=${x + 5 * u} y=${y + u} width=${long} height=${high - 2 * u} rx="2" fill="var(--surface)"/>
        <text x=${x + 10 * u} y=${y + high - 3.2 * u} font-size=${11.5 * u} font-weight="600" fill="var(--text)">${text}</text>`
    : svg`<text x=${x - 7 * u} y=${y + high - 2.6 * u} font-size=${11.5 * u} text-anchor="end" fill="var(--muted)">${text}</text>`;
  return svg`<rect x=${x} y=${y} width=${Math.max(3, width - x)} height=${high} rx=${strong ? 2 : 1} fill=${form.fill}
      stroke=${hollow ? "var(--critical)" : "none"} stroke-width="1.5" stroke-dasharray=${hollow ? "3 2.5" : nothing}/>
    ${timeout === null ? nothing : svg`<path d="M${timeout - 4 * u} ${y - 4.5 * u}h${8 * u}l${-4 * u} ${4.5 * u}z" fill="var(--muted)"/>`}
    ${words}`;
}

/** The ages of the transactions that have no lane. */
export function histogram(bins, scale, width) {
  const u = unit();
  const height = Math.round(34 * u);
  const top = Math.max(1, ...bins.map(([, , number]) => number));
  return html`<svg viewBox="0 0 ${width} ${height}" height=${height} role="img" aria-label="ages of the other open transactions">
    ${grid(scale, width, height)}
    ${bins.map(([low, high, number]) => {
      const left = scale.at(high, width);
      const tall = Math.max(1.5, ((height - 6 * u) * number) / top);
      return svg`<rect x=${left} y=${height - 2 * u - tall} width=${Math.max(1, scale.at(low, width) - left - 1)} height=${tall} fill="var(--healthy)"/>`;
    })}</svg>`;
}

/** A small plot of values over the last hour; null is a gap. */
export function plot(values) {
  const known = values.filter((one) => one !== null);
  const top = Math.max(1, ...known);
  let path = "";
  let isDown = false;
  values.forEach((value, i) => {
    if (value === null) {
      isDown = false;
      return;
    }
    path += `${isDown ? "L" : "M"}${((i + 720 - values.length) * 200) / 720} ${(34 - (value / top) * 30).toFixed(1)}`;
    isDown = true;
  });
  return html`<svg viewBox="0 0 200 36" preserveAspectRatio="none" aria-hidden="true"><path d=${path || "M0 0"} fill="none" stroke="var(--healthy)" stroke-width="1.4" vector-effect="non-scaling-stroke"/></svg>`;
}

/** The two looks and the fresh read on a time axis; what is not recorded is a gap with these words. */
export function proof(evidence, width, now) {
  const u = unit();
  const left = 130 * u;
  const height = 168 * u;
  const [first, second] = evidence.looks;
  const times = [first.data_listed_ms, first.log_listed_ms, second.data_listed_ms, second.log_listed_ms, evidence.fresh_read.confirmed_ms, evidence.opened_ms].filter((one) => one !== null);
  if (times.length < 2) return html`<p class="muted">The times of the readings are not recorded.</p>`;
  const from = Math.min(...times);
  const long = Math.max(1, Math.max(...times) - from);
  const begin = left + 200 * u;
  const x = (at) => begin + ((width - begin - 84 * u) * (at - from)) / long;
  const rows = [30, 70, 104, 138].map((one) => one * u);
  const label = (y, text) => svg`<text x="0" y=${y + 4 * u} font-size=${12 * u} fill="var(--muted)">${text}</text><line x1=${left} x2=${width} y1=${y} y2=${y} stroke="var(--rule)"/>`;
  const short = (at) => clock(at, now, 3).slice(-12);
  const dot = (at, y, text) => at === null ? nothing : svg`<circle cx=${x(at)} cy=${y} r=${5 * u} fill="var(--info)" stroke="var(--surface)" stroke-width="1.5"/><text x=${x(at)} y=${y - 9 * u} font-size=${11 * u} text-anchor="middle" fill="var(--text)">${text} ${short(at)}</text>`;
  const read = evidence.fresh_read.confirmed_ms;
  return html`<svg viewBox="0 0 ${width} ${height}" height=${height} role="img" aria-label="The two looks and the fresh read on a time axis">
    ${label(rows[0], `data of ${evidence.producer_id}`)}${label(rows[1], evidence.place.slice(0, 20))}${label(rows[2], "coordinators’ log")}${label(rows[3], "fresh read")}
    <rect x=${left} y=${rows[0] - 7 * u} width=${width - left} height=${14 * u} fill="url(#hanging)"/>
    <rect x=${left + 8 * u} y=${rows[0] - 6 * u} width=${(230 + 7 * String(evidence.start_offset).length) * u} height=${12 * u} fill="var(--surface)"/>
    <text x=${left + 13 * u} y=${rows[0] + 4 * u} font-size=${11.5 * u} font-weight="600" fill="var(--text)">open from ${count(evidence.start_offset ?? 0)}, never closed</text>
    ${first.data_listed_ms === null
      ? svg`<rect x=${left + 4 * u} y=${rows[1] - 14 * u} width=${134 * u} height=${rows[2] - rows[1] + 26 * u} fill="url(#hidden)"/><text x=${left + 12 * u} y=${(rows[1] + rows[2]) / 2} font-size=${11 * u} fill="var(--text)">look 1, barrier ${count(first.barrier ?? 0)}:</text><text x=${left + 12 * u} y=${(rows[1] + rows[2]) / 2 + 14 * u} font-size=${11 * u} fill="var(--text)">time not recorded</text>`
      : svg`${dot(first.data_listed_ms, rows[1], "D₁")}${dot(first.log_listed_ms, rows[2], "T₁")}`}
    ${dot(second.data_listed_ms, rows[1], "D₂")}${dot(second.log_listed_ms, rows[2], "T₂")}${dot(read, rows[3], "read")}
    <line x1=${x(evidence.opened_ms)} x2=${x(evidence.opened_ms)} y1=${8 * u} y2=${height - 8 * u} stroke="var(--critical)" stroke-width="2"/>
    <text x=${x(evidence.opened_ms) + 6 * u} y=${height - 8 * u} font-size=${11.5 * u} font-weight="600" fill="var(--critical)">event</text>
  </svg>`;
}

/** The offsets of a partition; not to scale left of the last stable offset. */
export function ruler(partition, width) {
  const u = unit();
  const y = 52 * u;
  const at = 0.3 * width;
  const { last_stable: from, end } = partition;
  const long = Math.max(1, (end ?? from) - from);
  const place = (offset) => at + (width - at) * Math.min(1, Math.max(0, (offset - from) / long));
  const flags = partition.holders.slice(0, 4).map((one, i) => {
    const x = place(one.start);
    const right = x > width * 0.7;
    return svg`<line x1=${x} x2=${x} y1=${y + 9 * u} y2=${y + (24 + 16 * i) * u} stroke="var(--text)"/><circle cx=${x} cy=${y + (24 + 16 * i) * u} r=${3.4 * u} fill="var(--text)"/>
      <text x=${right ? x - 8 * u : x + 8 * u} y=${y + (28 + 16 * i) * u} font-size=${11.5 * u} text-anchor=${right ? "end" : "start"} fill="var(--text)">${one.name.slice(0, 60)}</text>`;
  });
  const groups = partition.groups.slice(0, 4).map((one, i) => svg`<path d="M${at - 7 * u} ${y + (32 + 16 * i) * u}h${10 * u}l${-5 * u} ${-8 * u}z" fill="var(--warning)"/><text x=${at - 12 * u} y=${y + (32 + 16 * i) * u} font-size=${11.5 * u} text-anchor="end" fill="var(--text)">${one.name.slice(0, 40)} ${one.state === "stopped" ? "stopped here" : "comes"}</text>`);
  const height = y + (40 + 16 * Math.max(flags.length, groups.length)) * u;
  return html`<svg viewBox="0 0 ${width} ${height}" height=${height} role="img" aria-label="The offsets of the partition">
    <rect x="0" y=${y - 9 * u} width=${at} height=${18 * u} fill="var(--info-bg)" stroke="var(--info-line)"/>
    <rect x=${at} y=${y - 9 * u} width=${width - at} height=${18 * u} fill="url(#hidden)" stroke="var(--line)"/>
    <line x1=${at} x2=${at} y1=${y - 28 * u} y2=${y + 12 * u} stroke="var(--text)" stroke-width="2"/>
    <text x=${6 * u} y=${y + 4 * u} font-size=${11.5 * u} fill="var(--text)">readers get this</text>
    <text x=${at + 8 * u} y=${y - 18 * u} font-size=${11.5 * u} font-weight="600" fill="var(--text)">last stable offset ${count(from)}</text>
    ${end === null ? nothing : svg`<text x=${width} y=${y - 18 * u} font-size=${11.5 * u} text-anchor="end" fill="var(--text)">end ${count(end)}</text>
      <rect x=${at + 6 * u} y=${y - 6 * u} width=${(120 + 8 * count(partition.hidden ?? 0).length) * u} height=${12 * u} fill="var(--surface)"/><text x=${at + 10 * u} y=${y + 4 * u} font-size=${11.5 * u} font-weight="600" fill="var(--text)">${count(partition.hidden ?? 0)} records hidden</text>`}
    ${flags}${groups}</svg>`;
}
