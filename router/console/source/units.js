// Numbers with their units. The words and the rounding are those of `aurorad top`.

export function count(n) {
  if (n == null || Number.isNaN(n)) return "–";
  if (n >= 1e9) return (n / 1e9).toFixed(1) + " G";
  if (n >= 1e6) return (n / 1e6).toFixed(1) + " M";
  if (n >= 1e4) return (n / 1e3).toFixed(1) + " k";
  return n >= 100 || Number.isInteger(n) ? Math.round(n).toString() : n.toFixed(1);
}
export const rate = n => (n == null ? "–" : `${count(n)}/s`);

export function time(ns) {
  if (!ns) return "–";
  if (ns < 1e3) return ns.toFixed(0) + " ns";
  if (ns < 1e6) return (ns / 1e3).toFixed(ns < 1e4 ? 1 : 0) + " us";
  if (ns < 1e9) return (ns / 1e6).toFixed(ns < 1e7 ? 1 : 0) + " ms";
  return (ns / 1e9).toFixed(1) + " s";
}
export const cost = ns => time(ns ? Number(ns.toPrecision(2)) : 0);

export function bytes(n) {
  for (const unit of ["B", "KiB", "MiB", "GiB", "TiB"]) {
    if (n < 1024 || unit === "TiB") return n.toFixed(n < 10 && unit !== "B" ? 1 : 0) + " " + unit;
    n /= 1024;
  }
}
export function span(s) {
  const d = Math.floor(s / 86400), h = Math.floor(s / 3600) % 24, m = Math.floor(s / 60) % 60;
  return d ? `${d} d ${h} h` : h ? `${h} h ${m} min` : m ? `${m} min ${Math.floor(s % 60)} s` : `${Math.floor(s)} s`;
}
export const percent = (ratio, digits = 0) =>
  ratio == null ? "–" : ratio >= 1 && digits ? `${(100 * ratio).toFixed(0)} %` : `${(100 * ratio).toFixed(digits)} %`;
export const delivered = ratio => (ratio >= 1 ? "100 %" : `${Math.min(100 * ratio, 99.9).toFixed(1)} %`);
export const utility = u => (u == null ? "–" : u.toFixed(2));
export const clock = ns => new Date(Number(ns) / 1e6).toLocaleTimeString([], { hour12: false });
export const sum = counts => Object.values(counts || {}).reduce((a, b) => a + b, 0);
export const utilityOf = output => Math.min(output.utility.latency, output.utility.loss);
