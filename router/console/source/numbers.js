// Numbers of the look that is shown, by name: rates of arcs, drops, the utility behind a box.
import { computed } from "@preact/signals";
import { before, network, seconds, shown } from "./state.js";
import { sum, utilityOf } from "./units.js";

const byName = list => new Map((list || []).map(each => [each.name, each]));
export const boxes = computed(() => byName(shown.value?.boxes));
export const arcs = computed(() => byName(shown.value?.arcs));
export const streams = computed(() => byName(shown.value?.streams));
export const outputs = computed(() => byName(shown.value?.outputs));
const boxesBefore = computed(() => byName(before.value?.boxes));
const arcsBefore = computed(() => byName(before.value?.arcs));

const perSecond = (now, then) => (seconds.value > 0 && then != null ? Math.max(0, now - then) / seconds.value : 0);

// An arc inside a plan has no queue, so its rate is that of the port that feeds it.
export function arcRate(arc) {
  const from = arc.from.split(".")[0];
  const stream = streams.value.get(from);
  if (stream && arc.from === from) return stream.rate_per_s;
  const box = boxes.value.get(from);
  if (!box) return 0;
  const described = network.value.boxes.find(b => b.name === from);
  const port = Math.max(0, described.ports.findIndex(p => p.arcs.includes(arc.name)));
  const then = boxesBefore.value.get(from);
  return perSecond(box.tuples_out_by_port[port] ?? box.tuples_out, then && (then.tuples_out_by_port[port] ?? then.tuples_out));
}
export const arcDropped = name => sum(arcs.value.get(name)?.shed);
export const arcDropRate = name => perSecond(arcDropped(name), arcsBefore.value.has(name) ? sum(arcsBefore.value.get(name).shed) : null);
export const queued = name => arcs.value.get(name)?.tuples ?? 0;

const nextOf = computed(() => {
  const next = new Map();
  for (const arc of network.value?.arcs || []) {
    const from = arc.from.split(".")[0];
    next.set(from, [...(next.get(from) || []), arc.to]);
  }
  return next;
});
// All that is behind each stream.
const downstream = computed(() => {
  const found = new Map();
  for (const s of network.value?.streams || []) {
    const seen = new Set(), open = [s.name];
    while (open.length) for (const to of nextOf.value.get(open.pop()) || []) if (!seen.has(to)) { seen.add(to); open.push(to); }
    found.set(s.name, seen);
  }
  return found;
});

// The outputs that each stream and box feeds.
export const reach = computed(() => {
  const found = new Map();
  if (!network.value) return found;
  const next = nextOf.value;
  const outputNames = new Set(network.value.outputs.map(o => o.name));
  const walk = name => {
    if (found.has(name)) return found.get(name);
    const ends = new Set(outputNames.has(name) ? [name] : []);
    found.set(name, ends);
    for (const to of next.get(name) || []) for (const end of walk(to)) ends.add(end);
    return ends;
  };
  for (const each of [...network.value.streams, ...network.value.boxes, ...network.value.outputs]) walk(each.name);
  return found;
});
export function utilityBehind(name) {
  const worst = [...(reach.value.get(name) || [])].map(o => outputs.value.get(o)).filter(Boolean).map(utilityOf);
  return worst.length ? Math.min(...worst) : 1;
}

// The sums over the whole are the daemon's own, so that `aurorad top` shows the same.
export const totals = computed(() => {
  const look = shown.value;
  if (!look) return null;
  const { utility, outputs, dropped_tuples: dropped, dropped: reasons } = look.totals;
  return { dropped, reasons, utility: outputs ? utility : null, outputs, residual: sum(look.conservation_residual) };
});

// How far a box is behind: from its watermark to the newest event time of the streams that feed it, in ns.
const feeders = computed(() => {
  const found = new Map();
  for (const s of network.value?.streams || []) for (const box of downstream.value.get(s.name) || []) found.set(box, [...(found.get(box) || []), s.name]);
  return found;
});
export function behind(box) {
  const at = boxes.value.get(box)?.watermark_ns;
  const newest = (feeders.value.get(box) || []).map(s => streams.value.get(s)?.newest_ns).filter(ns => ns != null);
  return at == null || !newest.length ? null : Math.max(0, Math.max(...newest) - at);
}
