// Numbers, times, addresses and signs: what every view needs.
import { html, nothing, svg } from "./lit-html.js";
import { BASE } from "./live.js";

export const count = new Intl.NumberFormat("en-GB").format;

/** A duration in words; from two hours on in its two largest units. */
export function duration(milliseconds) {
  const seconds = Math.max(0, milliseconds) / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  const whole = Math.floor(seconds);
  if (whole < 60) return `${whole} s`;
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes} min ${String(whole % 60).padStart(2, "0")} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${String(minutes % 60).padStart(2, "0")} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** A time of day in UTC; with the date if it is another day than `now`. */
export function clock(milliseconds, now, digits = 0) {
  const text = new Date(milliseconds).toISOString();
  const time = text.slice(11, digits ? 20 + digits : 19);
  return text.slice(0, 10) === new Date(now).toISOString().slice(0, 10) ? time : `${text.slice(0, 10)} ${time}`;
}

/** The same, short: another day has no seconds, and another year no time. */
export function shortClock(milliseconds, now) {
  const [at, today] = [milliseconds, now].map((one) => new Date(one).toUTCString()); // Sun, 29 Nov 2026 23:44:58
  if (at.slice(0, 16) === today.slice(0, 16)) return at.slice(17, 25);
  return at.slice(12, 16) === today.slice(12, 16) ? at.slice(5, 11) + at.slice(16, 22) : at.slice(5, 16);
}

export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

const address = (path, ...parts) => [BASE + path, ...parts.map((part) => encodeURIComponent(part))].join("/");
export const ofIncident = (id) => address("/incident", id);
export const ofPartition = (topic, number) => address("/partition", topic, number);
export const ofClient = (bar) =>
  bar.transactional_id ? address("/id", bar.transactional_id) : address("/producer", bar.producer_id);

/** Text that a client has chosen. */
export const foreign = (text) => html`<bdi>${text}</bdi>`;
/** Links of the operator's own table, which has only these schemes; they are checked again. */
export const reach = (links) => links.map(([text, address]) => (/^(https?:\/\/|tel:\+?\d+$)/.test(address ?? "") ? html` <a class="keep" href=${address} rel="noreferrer">${text}</a>` : nothing));

// --- signs: the shape says it, the colour repeats it
const signs = {
  critical: svg`<path d="M12 1.6 22.4 12 12 22.4 1.6 12z" fill="currentColor"/><path d="M12 7v6.2M12 16.6v.3" class="in-sign"/>`,
  warning: svg`<path d="M12 2.2 23 21.4H1z" fill="currentColor"/><path d="M12 9v5.4M12 17.8v.3" class="in-sign"/>`,
  limited: svg`<circle cx="12" cy="12" r="10" fill="currentColor"/><path d="M12 11v6M12 7v.3" class="in-sign"/>`,
  clear: svg`<circle cx="12" cy="12" r="10" fill="currentColor"/><path d="m7.2 12.4 3.2 3.2 6.3-7" class="in-sign"/>`,
  unknown: svg`<rect x="3" y="3" width="18" height="18" class="dashed-sign"/><path d="M9.4 9.6a2.7 2.7 0 1 1 3.7 2.5c-.8.3-1.1.8-1.1 1.7M12 16.8v.3" class="of-sign"/>`,
};
signs.partial = signs.unknown;
signs.info = signs.limited;
export const sign = (tone) => html`<svg class="sign" viewBox="0 0 24 24" aria-hidden="true">${signs[tone] ?? signs.unknown}</svg>`;
