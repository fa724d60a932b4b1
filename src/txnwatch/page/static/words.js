// Numbers, times and commands as text.
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

export const TWO_PHASE_MS = 2147483647; // such a transaction is never aborted by time

/** When a healthy transaction ends by itself at the latest, as text. */
export function endsBy(row, now) {
  if (row.phase === "hanging") return "never by itself";
  if (row.prepared_ms !== null) return "when its markers are written";
  if (!row.timeout_ms) return "not known";
  return row.timeout_ms >= TWO_PHASE_MS ? "not by time: it is two-phase" : `by ${clock(row.since_ms + row.timeout_ms, now)}`;
}

export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

/** What every address of one cluster begins with on a page of several clusters; else nothing. */
export const BASE = /^\/c\/[^/]+(?=\/)/.exec(location.pathname)?.[0] ?? "";

const address = (path, ...parts) => [BASE + path, ...parts.map((part) => encodeURIComponent(part))].join("/");
export const ofIncident = (id) => address("/incident", id);
export const ofPartition = (topic, number) => address("/partition", topic, number);
export const ofClient = (bar) =>
  bar.transactional_id ? address("/id", bar.transactional_id) : address("/producer", bar.producer_id);
