// What is known of the chosen stream, box, arc or output.
import { useEffect, useState } from "preact/hooks";
import { Trend } from "./charts.js";
import { html } from "./html.js";
import { arcDropRate, arcDropped, arcRate, arcs, behind, boxes, outputs, streams } from "./numbers.js";
import { Facts, Table, Trouble } from "./parts.js";
import { ask, looks, network, selected, shown, view } from "./state.js";
import { Tap } from "./tap.js";
import { bytes, clock, cost, count, delivered, percent, rate, sum, time, utility, utilityOf } from "./units.js";

const find = (look, kind, name) => look?.[kind].find(each => each.name === name);
const delta = (kind, name, value) => (look, then) => {
  const [a, b] = [find(look, kind, name), find(then, kind, name)];
  return a && b ? Math.max(0, value(a) - value(b)) / ((look.engine.now_ns - then.engine.now_ns) / 1e9) : null;
};
// An event time. It may be of any day.
const moment = ns => new Date(ns / 1e6).toISOString().replace("T", " ").replace(/\.?0*Z$/, " UTC");
const reasons = counts => Object.entries(counts || {}).map(([reason, n]) => `${count(n)} ${reason}`).join(", ");

function Schema({ fields }) {
  return html`<details><summary>schema: ${fields.length} fields</summary><${Table} head=${["field", "type"]} rows=${fields.map(f => [f.name, f.type + (f.nullable ? " or NULL" : "")])} /></details>`;
}

function Parameters({ values }) {
  const shown = Object.entries(values || {}).filter(([, v]) => v != null && v !== "" && !(typeof v === "object" && !Object.keys(v).length));
  return shown.length ? html`<pre class="parameters">${shown.map(([key, value]) => `${key}: ${typeof value === "object" ? JSON.stringify(value) : value}`).join("\n")}</pre>` : null;
}

function DeadLetters({ name }) {
  const [letters, setLetters] = useState(null), [error, setError] = useState(null);
  useEffect(() => { setLetters(null); }, [name]);
  const look = () => ask("/api/v1/dead_letters?limit=1000").then(a => setLetters(a.dead_letters.filter(l => l.stream === name || l.box === name)), setError);
  return html`<details onToggle=${e => e.target.open && look()}><summary>dead letters</summary><${Trouble} error=${error} />
    ${letters && html`<${Table} head=${["when", "reason", "what", "row"]} empty="no row was refused" rows=${letters.slice(0, 50).map(l => [clock(l.at_ns), l.reason, l.message, JSON.stringify(l.row ?? l.sample ?? "")])} />`}</details>`;
}

function Place({ kind, name }) {
  const go = () => { view.value = "change"; sessionStorage.setItem("aurorad.goTo", `${kind}/${name}`); };
  return html`<button class="link" onClick=${go}>its place in the network file</button>`;
}

function StreamPanel({ name }) {
  const s = streams.value.get(name), described = network.value.streams.find(each => each.name === name);
  if (!s || !described) return null;
  const dropped = sum(s.shed);
  return html`
    <${Facts} rows=${[["rate/s", rate(s.rate_per_s)], ["received", count(s.received)], ["refused", count(sum(s.rejected)), sum(s.rejected) ? "bad" : ""],
      ["dropped", dropped ? `${count(dropped)} (${reasons(s.shed)})` : "0", dropped ? "fair" : ""], ["senders", s.connections], ["decoded", percent(s.edge?.share ?? 1)],
      ["at overload", described.overload], ["event time", described.time || "none"], ["slack", described.slack_ns ? time(described.slack_ns) : ""],
      ["newest row", s.newest_ns == null ? "" : moment(s.newest_ns)], ["watermark", s.watermark_ns == null ? "" : moment(s.watermark_ns)]]} />
    <${Trend} label="rows a second" value=${look => find(look, "streams", name)?.rate_per_s} unit=${count} />
    <${Schema} fields=${described.schema} /><${DeadLetters} name=${name} />`;
}

function BoxPanel({ name }) {
  const b = boxes.value.get(name), described = network.value.boxes.find(each => each.name === name);
  if (!b || !described) return null;
  const lost = described.inputs.reduce((a, arc) => a + arcDropped(arc), 0);
  return html`
    <${Parameters} values=${described.parameters} />
    <${Facts} rows=${[["in/s", rate(b.rate_per_s)], ["selectivity", b.selectivity?.toFixed(3)], ["cost/tuple", cost(b.mean_tuple_ns)], ["cost/call", cost(b.mean_call_ns)],
      ["train", `${count(b.mean_call_tuples)} tuples`], ["busy", percent(b.busy_ratio)], ["waiting", `${count(b.queue_tuples)} tuples`],
      ["dropped", `${count(lost)} before it`, lost ? "fair" : ""], ["late", b.late ? `${count(b.late)}, the last by ${time(b.late_by_ns)}` : "0", b.late ? "fair" : ""],
      ["dead", count(b.dead), b.dead ? "bad" : ""], ["keys", b.state_keys ? count(b.state_keys) : ""], ["state", b.state_bytes ? bytes(b.state_bytes) : ""],
      ["watermark", b.watermark_ns == null ? "" : `${moment(b.watermark_ns)}, ${behind(name) ? `${time(behind(name))} behind the newest row` : "level with the newest row"}`], ["failure", b.failure, "bad"]]} />
    <${Trend} label="tuples in a second" value=${look => find(look, "boxes", name)?.rate_per_s} unit=${count} />
    <${Trend} label="share of time that it runs" value=${look => find(look, "boxes", name)?.busy_ratio} unit=${v => percent(v)} tone="--good" />
    <${Trend} label="tuples waiting before it" value=${look => find(look, "boxes", name)?.queue_tuples} unit=${count} tone="--fair" />
    ${described.ports.map(port => html`<${Schema} key=${port.name} fields=${port.schema} />`)}<${DeadLetters} name=${name} />`;
}

function ArcPanel({ name }) {
  const a = arcs.value.get(name), described = network.value.arcs.find(each => each.name === name);
  if (!a || !described) return null;
  return html`
    <${Facts} rows=${[["rate/s", rate(arcRate(described))], ["waiting", `${count(a.tuples)} tuples, ${bytes(a.bytes)}`], ["dropped", sum(a.shed) ? `${count(sum(a.shed))} (${reasons(a.shed)})` : "0", sum(a.shed) ? "fair" : ""],
      ["drops/s", rate(arcDropRate(name))], ["on disk", a.spilled_tuples ? `${count(a.spilled_tuples)} tuples, ${bytes(a.spilled_bytes)}` : ""]]} />
    <${Trend} label="tuples waiting" value=${look => find(look, "arcs", name)?.tuples} unit=${count} />
    <${Trend} label="drops a second" value=${delta("arcs", name, each => sum(each.shed))} unit=${count} tone="--bad" />
    <${Schema} fields=${described.schema} />`;
}

function OutputPanel({ name }) {
  const o = outputs.value.get(name), described = network.value.outputs.find(each => each.name === name);
  if (!o || !described) return null;
  const dropped = sum(o.shed) + o.dropped;
  return html`
    <${Facts} rows=${[["rate/s", rate(o.rate_per_s)], ["utility", `${utility(utilityOf(o))} (by delay ${utility(o.utility.latency)}, by loss ${utility(o.utility.loss)})`], ["delivered", `${delivered(o.share_delivered)} of its tuples`, o.share_delivered < 0.9995 ? "fair" : ""],
      ["p50", time(o.latency.p50_ns)], ["p99", time(o.latency.p99_ns)], ["p99.9", time(o.latency.p999_ns)], ["max", time(o.latency.max_ns)], ["mean", time(o.latency.mean_ns)], ["missed", o.deadline_ns ? `${percent(o.sdmr, 1)} later than ${time(o.deadline_ns)}` : ""],
      ["dropped", dropped ? `${count(dropped)} (${reasons(o.shed)})` : "0", dropped ? "fair" : ""], ["waiting", count(o.queue_tuples)], ["readers", o.readers || "none"]]} />
    <p><button onClick=${() => { view.value = "qos"; }}>its QoS graphs</button> <button onClick=${() => { view.value = "why"; sessionStorage.setItem("aurorad.why", name); }}>why was a tuple late?</button></p>
    <${Trend} label="utility" value=${look => { const each = find(look, "outputs", name); return each && utilityOf(each); }} unit=${utility} tone="--good" />
    <${Trend} label="p99 of the last 10 s" value=${look => find(look, "outputs", name)?.latency.p99_ns} unit=${time} />
    <${Trend} label="tuples out a second" value=${look => find(look, "outputs", name)?.rate_per_s} unit=${count} />
    <${Schema} fields=${described.schema} />`;
}

const PANELS = { stream: StreamPanel, box: BoxPanel, arc: ArcPanel, output: OutputPanel };

export function Panel() {
  const chosen = selected.value;
  if (!chosen || !shown.value || !network.value) return null;
  const One = PANELS[chosen.kind];
  const described = chosen.kind === "box" && network.value.boxes.find(b => b.name === chosen.name);
  const isKnown = One && network.value[{ stream: "streams", box: "boxes", arc: "arcs", output: "outputs" }[chosen.kind]].some(e => e.name === chosen.name);
  return html`<aside class="panel" aria-label=${`${chosen.kind} ${chosen.name}`}>
    <header><h2>${chosen.name} <small>${described ? described.kind : chosen.kind}</small></h2><button class="close" aria-label="close" onClick=${() => { selected.value = null; }}>×</button></header>
    ${isKnown ? html`<${One} name=${chosen.name} key=${chosen.name} /><h3>Tap</h3><${Tap} name=${chosen.name} /> ${chosen.kind !== "arc" && html`<${Place} kind=${chosen.kind} name=${chosen.name} />`}` : html`<p class="empty">the network has no ${chosen.kind} of this name now</p>`}
  </aside>`;
}
