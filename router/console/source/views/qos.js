// The QoS view: each output's graphs with its operating point and the trail of the last minute; what goes first.
import { useEffect, useState } from "preact/hooks";
import { html } from "../html.js";
import { outputs } from "../numbers.js";
import { Table, Trouble } from "../parts.js";
import { ask, looks, network, past, post, selected, shown, view } from "../state.js";
import { count, delivered, percent, rate, time, utility, utilityOf } from "../units.js";

const fine = v => (Math.abs(v) < 10 && v !== 0 ? String(Number(v.toPrecision(3))) : count(v));
const W = 250, H = 130, L = 34, B = 26, T = 10, R = 12, TRAIL = 60;

function Curve({ title, points, unit, at, trail, note }) {
  const top = Math.max(...points.map(p => p[0]), at?.[0] ?? 0, 1e-9) * 1.06;
  const x = v => L + ((W - L - R) * Math.min(v, top)) / top, y = u => T + (H - T - B) * (1 - u);
  const drawn = [...points, [top, points.at(-1)[1]]];
  const label = `${title}: utility ${at ? utility(at[1]) : "unknown"} at ${at ? unit(at[0]) : "–"}`;
  return html`<figure class="curve"><figcaption>${title}</figcaption>
    <svg viewBox="0 0 ${W} ${H}" role="img" aria-label=${label}>
      ${[0, 0.5, 1].map(u => html`<g key=${u}><line class="grid" x1=${L} x2=${W - R} y1=${y(u)} y2=${y(u)} /><text class="tick" x=${L - 6} y=${y(u) + 3} text-anchor="end">${u}</text></g>`)}
      ${[0, top / 2.12, top / 1.06].map((v, i) => html`<text class="tick" key=${i} x=${x(v)} y=${H - 10} text-anchor=${i === 2 ? "end" : i ? "middle" : "start"}>${unit(v) === "–" ? "0" : unit(v)}</text>`)}
      <polyline class="graph" points=${drawn.map(p => `${x(p[0])},${y(p[1])}`).join(" ")} />
      ${trail.map((p, i) => html`<circle class="trail" key=${i} cx=${x(p[0])} cy=${y(p[1])} r="2.2" style=${`opacity:${(0.08 + (0.4 * i) / trail.length).toFixed(2)}`} />`)}
      ${at && html`<circle class="point" cx=${x(at[0])} cy=${y(at[1])} r="5" />`}
    </svg><p class="quiet">${note}</p></figure>`;
}

function OutputCard({ output }) {
  const now = outputs.value.get(output.name);
  if (!now) return null;
  const recent = (past.value ? past.value.records : looks.value.slice(-TRAIL)).map(l => l.outputs.find(o => o.name === output.name)).filter(Boolean);
  const u = utilityOf(now), q = output.qos;
  const open = () => { selected.value = { kind: "output", name: output.name }; view.value = "network"; };
  return html`<article class="card"><header><h2><button class="link" onClick=${open}>${output.name}</button></h2>
      <span class=${`score ${u > 0.9 ? "good" : u > 0.5 ? "fair" : "bad"}`}>utility ${utility(u)}</span></header>
    <div class="curves">
      ${q.latency && html`<${Curve} title="by delay" points=${q.latency} unit=${time} at=${[now.latency.mean_ns || 0, now.utility.latency]} trail=${recent.map(o => [o.latency.mean_ns || 0, o.utility.latency])} note=${`mean ${time(now.latency.mean_ns)}, p99 ${time(now.latency.p99_ns)}`} />`}
      ${q.loss && html`<${Curve} title="by share delivered" points=${q.loss} unit=${v => percent(v)} at=${[now.share_delivered, now.utility.loss]} trail=${recent.map(o => [o.share_delivered, o.utility.loss])} note=${`${delivered(now.share_delivered)} delivered`} />`}
      ${q.value && html`<${Curve} title=${`by value of ${q.value_field}`} points=${q.value} unit=${fine} at=${now.value_point} trail=${recent.map(o => o.value_point).filter(Boolean)} note=${`${now.value_point ? `mean ${fine(now.value_point[0])}; ` : ""}${percent(now.utility.value, 1)} of all worth delivered`} />`}
      ${!q.latency && !q.loss && !q.value && html`<p class="empty">no QoS graph: every tuple counts the same, late or not</p>`}
    </div>
    ${q.prefer && html`<p class="quiet">keeps first: <code>${q.prefer}</code></p>`}</article>`;
}

function GiveUp() {
  const [answer, setAnswer] = useState(null), [error, setError] = useState(null);
  useEffect(() => {
    const look = () => ask("/api/v1/give_up").then(a => { setAnswer(a); setError(null); }, setError);
    look();
    const timer = setInterval(look, 5000);
    return () => clearInterval(timer);
  }, []);
  if (!answer) return html`<${Trouble} error=${error} />`;
  const total = answer.steps.at(-1)?.saves || 0;
  const isDone = step => total > 0 && step.saves / total <= answer.level + 1e-6;
  return html`<section><h2>What goes first under overload</h2>
    <p>From the top down, each step gives up the least utility for the work that it saves. ${shown.value.overload.plan ? html`Now: <strong>${shown.value.overload.why}</strong>.` : "Nothing is dropped now."}</p>
    <${Table} head=${["now", "drop on", "how", "outputs that lose", "work saved so far", "utility given up so far"]} empty="nothing may be dropped: no output has a loss graph, or no stream says overload: shed"
      rows=${answer.steps.map(s => ({ cells: [isDone(s) ? "● dropped now" : "○", s.arc, s.manner === "semantic" ? "least valuable first" : s.manner === "window" ? "whole windows" : "at random", s.outputs.join(", "), percent(s.saves), s.costs.toFixed(2)], tone: isDone(s) ? "active" : "" }))} /></section>`;
}

function Contract() {
  const [found, setFound] = useState([]), [isBusy, setBusy] = useState(false), [error, setError] = useState(null);
  const make = async () => {
    setBusy(true); setError(null); setFound([]);
    try { for (const factor of [1, 1.5, 2, 3]) { const answer = await post("/api/v1/what_if", { factor }); setFound(all => [...all, { factor, ...answer }]); } } catch (failed) { setError(failed); }
    setBusy(false);
  };
  return html`<section><h2>The contract</h2><p>What each output will deliver if the present rates grow, by the simulator, with the costs that are measured now.</p>
    <button onClick=${make} disabled=${isBusy}>${isBusy ? "simulating …" : "make the contract"}</button><${Trouble} error=${error} />
    ${found.length > 0 && html`<${Table} head=${["rates", "rows/s", ...found[0].outputs.map(o => o.name), "utility in all"]} rows=${found.map(f => [`${f.factor} × now`, rate(f.rate_per_s), ...f.outputs.map(o => `${utility(o.utility)} (${delivered(o.share)}, p99 ${time(o.p99_ns)})`), utility(f.utility)])} />`}</section>`;
}

// Of many outputs the least useful ones, and those that the user looks for.
const MOST_CARDS = 60;
function chosenOutputs(wanted) {
  const all = network.value.outputs, text = wanted.trim().toLowerCase();
  if (!text && all.length <= MOST_CARDS) return all;
  const worth = o => (outputs.value.has(o.name) ? utilityOf(outputs.value.get(o.name)) : 1);
  return all.filter(o => o.name.toLowerCase().includes(text)).sort((a, b) => worth(a) - worth(b)).slice(0, MOST_CARDS);
}

export function QosView() {
  const [wanted, setWanted] = useState("");
  if (!network.value || !shown.value) return html`<p class="empty">loading …</p>`;
  const all = network.value.outputs.length, cards = chosenOutputs(wanted);
  return html`<div class="page"><h1>How useful each output is</h1>
    ${all > MOST_CARDS && html`<p class="bar"><input type="search" aria-label="find an output" placeholder="find …" value=${wanted} onInput=${e => setWanted(e.target.value)} /> <span class="quiet">${cards.length} of ${count(all)} outputs, the least useful first</span></p>`}
    <div class="cards">${cards.map(o => html`<${OutputCard} key=${o.name} output=${o} />`)}</div>
    ${!network.value.outputs.length && html`<p class="empty">the network has no outputs</p>`}
    <${GiveUp} /><${Contract} /></div>`;
}
