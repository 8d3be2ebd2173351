// Numbers with their units, digit by digit as `aurorad top` writes them (engine/cli/views/numbers.py); a test compares
// both. Python rounds a half to the even digit, so this does too.

export function fixed(x, digits) {
  const twice = Math.abs(x) * 2 ** (digits + 1); // a half at this digit is a multiple of 2^-(digits + 1)
  if (!Number.isInteger(twice) || Math.abs(x) > 1e15) return x.toFixed(digits);
  const scaled = Math.abs(x) * 10 ** digits, below = Math.floor(scaled);
  if (scaled - below !== 0.5) return x.toFixed(digits);
  return (((below % 2 ? below + 1 : below) / 10 ** digits) * Math.sign(x)).toFixed(digits);
}
const grouped = digits => digits.replace(/\B(?=(\d{3})+$)/g, ",");

export function count(n) {
  if (n == null || Number.isNaN(n)) return "–";
  if (n < 1e4) return n >= 100 || Number.isInteger(n) ? grouped(fixed(n, 0)) : fixed(n, 1);
  for (const [limit, divisor, letter] of [[1e6, 1e3, "k"], [1e9, 1e6, "M"], [Infinity, 1e9, "G"]]) if (n < limit) return `${fixed(n / divisor, 1)} ${letter}`;
  return String(n);
}
export const rate = n => (n == null ? "–" : `${count(n)}/s`);

const two = n => String(n).padStart(2, "0");
export function time(ns) {
  if (ns == null || !(ns > 0)) return "–";
  for (const [limit, divisor, unit] of [[1e3, 1, "ns"], [1e6, 1e3, "us"], [1e9, 1e6, "ms"], [60e9, 1e9, "s"]]) if (ns < limit) return `${fixed(ns / divisor, divisor === 1 || ns / divisor >= 100 ? 0 : 1)} ${unit}`;
  const s = Math.floor(ns / 1e9);
  return s < 3600 ? `${Math.floor(s / 60)} m ${two(s % 60)} s` : `${Math.floor(s / 3600)} h ${two(Math.floor(s / 60) % 60)} m`;
}
// Two digits, so that a number stays as it is while it hardly changes.
export function cost(ns) {
  if (!(ns > 0)) return "–";
  const step = 10 ** (Math.floor(Math.log10(ns)) - 1), scaled = ns / step, below = Math.floor(scaled);
  const even = scaled - below === 0.5 && below * step + step / 2 === ns ? below + (below % 2) : Number(ns.toPrecision(2)) / step;
  return time(Number((even * step).toPrecision(2))).replace(".0", "");
}
export function bytes(n) {
  for (const unit of ["B", "KiB", "MiB"]) {
    if (n < 1024) return `${fixed(n, unit === "B" || n >= 10 ? 0 : 1)} ${unit}`;
    n /= 1024;
  }
  return `${fixed(n, 1)} GiB`;
}
export const percent = (ratio, digits = 0) => (ratio == null ? "–" : `${fixed(100 * ratio, digits)} %`);
export const delivered = ratio => (ratio >= 1 ? "100 %" : percent(Math.min(ratio, 0.999), 1)); // 100 % means all
export const utility = u => (u == null ? "–" : fixed(u, 3));
export const clock = ns => new Date(Number(ns) / 1e6).toLocaleTimeString([], { hour12: false });
export const sum = counts => Object.values(counts || {}).reduce((a, b) => a + b, 0);
export const utilityOf = output => output.utility.worst;
