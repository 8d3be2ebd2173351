// The network view: the drawing, how it is coloured, search, and the scrubber over the last hour.
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { Graph, colourBy, isCollapsed, search } from "../graph/graph.js";
import { html } from "../html.js";
import { ask, goTo, network, past, shown, superboxes } from "../state.js";
import { clock } from "../units.js";
import { OutputsTable } from "./outputs.js";

const times = signal([]);
const refresh = () => ask("/api/v1/past").then(answer => { times.value = answer.times_ns; }, () => {});

function Scrubber() {
  useEffect(() => {
    refresh();
    const timer = setInterval(refresh, 10_000);
    return () => clearInterval(timer);
  }, []);
  const all = times.value, last = all.length, at = past.value ? all.indexOf(past.value.at) : last;
  const move = number => goTo(number >= last ? null : all[number]);
  return html`<div class="scrubber">
    <label>last hour <input type="range" min="0" max=${last} step="1" value=${at < 0 ? last : at} disabled=${last < 2} onInput=${e => move(Number(e.target.value))} aria-valuetext=${past.value ? clock(past.value.at) : "now"} /></label>
    <output>${past.value ? `${clock(past.value.records.at(-1).engine.now_ns)}` : "now"}</output>
    ${past.value && html`<button onClick=${() => goTo(null)}>back to now</button>`}
  </div>`;
}

export function NetworkView() {
  const units = superboxes.value.filter(members => members.length > 1).length;
  return html`<div class="network"><h1 class="hidden">Network</h1>
    <div class="bar">
      <label class="search"><span class="hidden">find a stream, box or output</span><input type="search" placeholder="find …" value=${search.value} onInput=${e => { search.value = e.target.value; }} /></label>
      <div class="switch" role="group" aria-label="colour boxes by">
        <button aria-pressed=${colourBy.value === "utility"} onClick=${() => { colourBy.value = "utility"; }}>utility lost</button>
        <button aria-pressed=${colourBy.value === "busy"} onClick=${() => { colourBy.value = "busy"; }}>busyness</button>
      </div>
      ${units > 0 && html`<label class="check"><input type="checkbox" checked=${isCollapsed.value} onChange=${e => { isCollapsed.value = e.target.checked; }} /> one box for each superbox</label>`}
      <${Scrubber} />
    </div>
    <${Graph} />
    <ul class="legend" aria-label="legend">
      ${colourBy.value === "utility"
        ? html`<li class="good">outputs behind it above 0.9</li><li class="fair">0.5 to 0.9</li><li class="bad">below 0.5</li>`
        : html`<li class="good">busy below 60 %</li><li class="fair">60 to 90 %</li><li class="bad">above 90 %</li>`}
      <li class="bar-mark">bar at the foot: tuples waiting</li><li class="drop-mark">✕ tuples dropped a second</li><li>width of an arrow: its rate</li><li>dashed frame: boxes that are scheduled together</li>
    </ul><${OutputsTable} />
    ${network.value && !network.value.boxes.length && !network.value.streams.length && html`<p class="lead">This daemon has no streams yet. <a href="#start">Begin with ten rows</a>.</p>`}
  </div>`;
}
