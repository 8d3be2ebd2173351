// The what-if view: another load, policy or number of workers, and the simulator's answer beside the present.
import { useEffect, useRef, useState } from "preact/hooks";
import { html } from "../html.js";
import { outputs } from "../numbers.js";
import { Choice, Table, Trouble } from "../parts.js";
import { loadWords, network, post, shown, words } from "../state.js";
import { bytes, delivered, percent, rate, time, utility, utilityOf } from "../units.js";

const SETTLE_MS = 600;

export function WhatIfView() {
  const [load, setLoad] = useState(0), [workers, setWorkers] = useState(null), [policy, setPolicy] = useState(null);
  const [answer, setAnswer] = useState(null), [error, setError] = useState(null), [isBusy, setBusy] = useState(false);
  const number = useRef(0);
  useEffect(() => { loadWords().catch(setError); }, []);
  const look = shown.value, factor = 2 ** load;
  const asked = { factor, ...(workers ? { workers } : {}), ...(policy ? { policy } : {}) };
  const run = async () => {
    const mine = ++number.current;
    setBusy(true); setError(null);
    try { const found = await post("/api/v1/what_if", asked); if (mine === number.current) setAnswer(found); } catch (failed) { if (mine === number.current) setError(failed); }
    if (mine === number.current) setBusy(false);
  };
  useEffect(() => {
    if (load === 0 && !workers && !policy) return;
    const timer = setTimeout(run, SETTLE_MS);
    return () => clearTimeout(timer);
  }, [load, workers, policy]);
  if (!network.value || !look) return html`<p class="empty">loading …</p>`;
  const now = look.streams.reduce((a, s) => a + s.rate_per_s, 0);
  return html`<div class="page"><h1>What if</h1>
    <p>The simulator runs the same scheduler and load shedder on the costs that are measured now. Nothing changes in the daemon.</p>
    <form class="sliders" onSubmit=${e => { e.preventDefault(); run(); }}>
      <label>load <input type="range" min="-2" max="3" step="0.25" value=${load} onInput=${e => setLoad(Number(e.target.value))} aria-valuetext=${`${factor.toFixed(2)} times the present rates`} /> <output>${factor < 10 ? factor.toFixed(2) : factor.toFixed(0)} × now = ${rate(factor * now)}</output></label>
      <label>workers <input type="range" min="1" max="8" step="1" value=${workers ?? look.engine.workers} onInput=${e => setWorkers(Number(e.target.value))} /> <output>${workers ?? look.engine.workers}</output></label>
      <${Choice} label="policy" value=${policy ?? look.scheduler.asked} options=${words.value ? words.value.policies : [look.scheduler.asked]} onChange=${setPolicy} />
      <button type="submit" disabled=${isBusy}>${isBusy ? "simulating …" : "simulate"}</button>
    </form><${Trouble} error=${error} />
    ${answer && html`<section aria-live="polite"><p>At ${rate(answer.rate_per_s)} with ${answer.workers} workers under <b>${answer.policy}</b>: ${answer.load.toFixed(2)} times the knee, which is at ${rate(answer.rate_per_s / answer.load)}. Utility in all <b>${utility(answer.utility)}</b> of ${answer.outputs.length}, now ${utility(look.outputs.reduce((a, o) => a + utilityOf(o), 0))}.</p>
      <${Table} head=${["output", "utility: now", "then", "delivered: now", "then", "p50: now", "then", "p99: now", "then"]} rows=${answer.outputs.map(o => {
        const present = outputs.value.get(o.name);
        return [o.name, present ? utility(utilityOf(present)) : "–", utility(o.utility), present ? delivered(present.share_delivered) : "–", delivered(o.share), time(present?.latency.p50_ns), time(o.p50_ns), time(present?.latency.p99_ns), time(o.p99_ns)];
      })} />
      ${answer.peak_bytes != null && html`<p class="quiet">queues of at most ${bytes(answer.peak_bytes)}</p>`}
      ${answer.drops.length > 0 && html`<h2>What would be dropped</h2><${Table} head=${["arc", "share", "why"]} rows=${answer.drops.map(d => [d.arc, percent(d.share, 1), d.reason === "shed" ? "shed by a plan" : "too late for every output"])} />`}</section>`}
  </div>`;
}
