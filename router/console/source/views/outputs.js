// All outputs as a table, the least useful first: the figures of `aurorad top`, under the same words.
import { signal } from "@preact/signals";
import { html } from "../html.js";
import { Word } from "../parts.js";
import { selected, shown } from "../state.js";
import { count, delivered, fixed, percent, rate, sum, time, utility, utilityOf } from "../units.js";

const MOST = 100;
const isOpen = signal(true);

const COLUMNS = [
  ["utility", o => html`<span class="gauge" aria-hidden="true"><i class=${tone(utilityOf(o))} style=${`width:${fixed(100 * utilityOf(o), 0)}%`}></i></span>${utility(utilityOf(o))}`],
  ["delivered", o => delivered(o.share_delivered)],
  ["dropped", o => count(sum(o.shed) + o.dropped)],
  ["p50", o => time(o.latency.p50_ns)],
  ["p99", o => time(o.latency.p99_ns)],
  ["missed", o => (o.deadline_ns ? percent(o.sdmr, 1) : "–")],
  ["rate/s", o => rate(o.rate_per_s)],
  ["waiting", o => count(o.queue_tuples)],
  ["readers", o => o.readers || "none"],
];
const tone = u => (u > 0.9 ? "good" : u > 0.5 ? "fair" : "bad");

export function OutputsTable() {
  const all = shown.value?.outputs || [];
  if (!all.length) return null;
  const rows = all.slice().sort((a, b) => utilityOf(a) - utilityOf(b) || (a.name < b.name ? -1 : 1)).slice(0, MOST);
  return html`<details class="outputs" open=${isOpen.value} onToggle=${e => { isOpen.value = e.target.open; }}>
    <summary>${all.length === 1 ? "1 output" : `${count(all.length)} outputs`}${all.length > 1 ? ", the least useful first" : ""}</summary>
    <div class="scroll" tabindex="0" role="region" aria-label="outputs"><table>
      <thead><tr><th scope="col">output</th>${COLUMNS.map(([word]) => html`<th key=${word} scope="col"><${Word} word=${word} /></th>`)}</tr></thead>
      <tbody>${rows.map(o => html`<tr key=${o.name} class=${selected.value?.kind === "output" && selected.value.name === o.name ? "chosen" : ""}>
        <th scope="row"><button class="link" onClick=${() => { selected.value = { kind: "output", name: o.name }; }}>${o.name}</button></th>${COLUMNS.map(([word, cell]) => html`<td key=${word}>${cell(o)}</td>`)}</tr>`)}</tbody></table>
      ${all.length > MOST && html`<p class="quiet">and ${count(all.length - MOST)} outputs that are more useful; search finds each</p>`}</div></details>`;
}
