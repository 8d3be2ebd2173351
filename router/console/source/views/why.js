// The why view: where late tuples spent their time, what was dropped and by which plan, and what the scheduler chose.
import { useEffect, useState } from "preact/hooks";
import { html } from "../html.js";
import { Choice, Table, Trouble } from "../parts.js";
import { ask, looks, network, shown } from "../state.js";
import { clock, count, percent, time } from "../units.js";

const KINDS = { admit: "on its way in", wait: "waited in a queue", worker: "waited for a worker", service: "being processed", plan: "in the plan of others", held: "held by a window", deliver: "on its way out" };

function Journey({ journey, deadline }) {
  const parts = journey.parts.filter(p => p.ns > 0), total = journey.latency_ns || 1;
  const isLate = deadline && journey.latency_ns > deadline;
  return html`<article class="journey">
    <header><strong class=${isLate ? "bad" : ""}>${time(journey.latency_ns)}</strong> from ${journey.stream}, arrived ${clock(journey.arrival_ns)} ${isLate && html`<span class="bad">later than ${time(deadline)}</span>`}</header>
    <div class="timeline" role="img" aria-label=${`timeline of ${time(total)}: ${parts.map(p => `${KINDS[p.kind] || p.kind} ${p.box} ${time(p.ns)}`).join(", ")}`}>
      ${parts.map((p, i) => html`<span key=${i} class=${`part ${p.kind}`} style=${`flex-grow:${Math.max(p.ns / total, 0.003)}`} title=${`${KINDS[p.kind] || p.kind}${p.box ? ` (${p.box})` : ""}: ${time(p.ns)}`}>${p.ns / total > 0.12 ? `${p.box || KINDS[p.kind] || p.kind} ${time(p.ns)}` : ""}</span>`)}
    </div>
    <p class="row">${Object.entries(journey.row).map(([k, v]) => html`<span key=${k}><b>${k}</b> ${v === null ? "NULL" : String(v).slice(0, 80)}</span>`)}</p>
    <details><summary>hops and decisions</summary><${Table} head=${["arc", "in a train of", "decisions for others", "its priority", "passed over by"]}
      rows=${journey.hops.map(h => [h.arc, `${h.train_tuples} tuples`, h.decisions_in_favour_of_others, h.priority, h.passed_over_by.map(o => `${o.box} ${o.times}×`).join(", ") || "nobody"])} /></details></article>`;
}

function LateTuples() {
  const names = network.value.outputs.map(o => o.name);
  const wanted = sessionStorage.getItem("aurorad.why");
  const [output, setOutput] = useState(names.includes(wanted) ? wanted : names[0]), [where, setWhere] = useState("");
  const [answer, setAnswer] = useState(null), [error, setError] = useState(null), [isBusy, setBusy] = useState(false);
  const look = async follow => {
    setBusy(true); setError(null);
    try {
      const query = new URLSearchParams({ output, where, limit: "3", ...(follow ? { follow: "20" } : {}) });
      setAnswer(await ask(`/api/v1/explain?${query}`));
    } catch (failed) { setError(failed); setAnswer(null); }
    setBusy(false);
  };
  useEffect(() => { if (output) look(false); }, [output]);
  if (!names.length) return html`<p class="empty">the network has no outputs</p>`;
  const deadline = network.value.outputs.find(o => o.name === output)?.qos.deadline_ns;
  return html`<section><h2>Late tuples</h2>
    <form class="bar" onSubmit=${e => { e.preventDefault(); look(false); }}>
      <${Choice} label="output" value=${output} options=${names} onChange=${setOutput} />
      <input aria-label="only tuples for which this expression is true" placeholder="only where, e.g. symbol = 'NVDA'" value=${where} onInput=${e => setWhere(e.target.value)} />
      <button type="submit" disabled=${isBusy}>slowest of the last minute</button><button type="button" disabled=${isBusy} onClick=${() => look(true)}>wait for the next one</button>
    </form><${Trouble} error=${error} />
    ${answer && html`${answer.journeys.length
      ? html`<p>Of ${answer.sampled} sampled tuples. ${answer.blame.slice(0, 3).map(b => html`<span key=${b.box} class="blame"><b>${b.box === "(engine)" ? "outside the boxes" : b.box}</b> ${percent(b.share)}</span>`)} of the time went there, waiting for it included.</p>
        <ul class="legend kinds">${Object.entries(KINDS).map(([k, text]) => html`<li key=${k} class=${`part ${k}`}>${text}</li>`)}</ul>
        ${answer.journeys.map((j, i) => html`<${Journey} key=${i} journey=${j} deadline=${deadline} />`)}`
      : html`<p class="empty">no sampled tuple of the last minute meets this</p>`}`}</section>`;
}

function Drops() {
  const [answer, setAnswer] = useState(null), [error, setError] = useState(null);
  useEffect(() => {
    const look = () => ask("/api/v1/drops?limit=20").then(a => { setAnswer(a); setError(null); }, setError);
    look();
    const timer = setInterval(look, 3000);
    return () => clearInterval(timer);
  }, []);
  if (!answer) return html`<${Trouble} error=${error} />`;
  const WORDS = { shed: "shed by a plan, at random", semantic: "shed by a plan, the least valuable", window: "shed as whole windows", expired: "too late for every output behind it", overdue: "too late before it was decoded" };
  return html`<section><h2>Dropped tuples</h2>
    <${Table} head=${["where", "why", "tuples"]} empty="nothing was dropped since the start" rows=${answer.dropped.slice().sort((a, b) => b.tuples - a.tuples).map(d => [d.arc, WORDS[d.reason] || d.reason, count(d.tuples)])} />
    <h3>Shed plans</h3>
    <ol class="plans">${answer.plans.map(p => html`<li key=${p.plan} class=${p.until_ns ? "" : "active"}><time>${clock(p.since_ns)}</time> <span>${p.why}</span> <span class="quiet">${p.until_ns ? `for ${time(p.until_ns - p.since_ns)}` : "in force"}${p.dropped.length ? `; dropped ${count(p.dropped.reduce((a, d) => a + d.tuples, 0))}` : ""}</span></li>`)}</ol>
    ${!answer.plans.length && html`<p class="empty">no plan yet: the load was never above what the machine can do</p>`}</section>`;
}

function Choices() {
  const s = shown.value.scheduler;
  const spans = [];
  for (const look of looks.value) {
    const last = spans.at(-1);
    if (last && last.policy === look.scheduler.policy && last.reason === look.scheduler.reason) last.until = look.engine.now_ns;
    else spans.push({ policy: look.scheduler.policy, reason: look.scheduler.reason, since: look.engine.now_ns, until: look.engine.now_ns });
  }
  const decided = Object.entries(s.plans_by || {});
  return html`<section><h2>The scheduler's choice</h2>
    <p>Policy <b>${s.policy}</b>${s.asked !== s.policy ? ` (the file says ${s.asked})` : ""}, unit ${s.unit}, trains ${s.train}. ${decided.map(([by, n]) => `${count(n)} plans by ${by === "idle" ? "the idle fast path" : "the scheduler's thread"}`).join(", ")}.</p>
    <${Table} head=${["since", "policy", "why"]} rows=${spans.slice(-20).reverse().map(x => [clock(x.since), x.policy, x.reason])} /></section>`;
}

export function WhyView() {
  if (!network.value || !shown.value) return html`<p class="empty">loading …</p>`;
  return html`<div class="page"><h1>Why</h1><${LateTuples} /><${Drops} /><${Choices} /></div>`;
}
