// The change view: edit the network file, see what is wrong and what a change would do, deploy it, roll back; bills.
import { useEffect, useRef, useState } from "preact/hooks";
import { html } from "../html.js";
import { Table, Trouble } from "../parts.js";
import { ask, network } from "../state.js";
import { bytes, clock, count, percent, rate, time, utility } from "../units.js";
import { Editor } from "./editor.js";

const SETTLE_MS = 400;
const FATES = { kept: "kept", changed: "changed", rebuilt: "rebuilt", added: "added", removed: "removed", restart: "needs a restart" };

// The line of `name:` under the section of this kind.
export function lineOf(text, kind, name) {
  const section = { stream: "streams", box: "boxes", output: "outputs" }[kind], lines = text.split("\n");
  const from = lines.findIndex(l => l.startsWith(`${section}:`));
  const plain = name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  const at = lines.findIndex((l, i) => i > from && new RegExp(`^\\s+["']?${plain}["']?\\s*:`).test(l));
  return from < 0 || at < 0 ? null : at + 1;
}

export function Diff({ plan }) {
  if (!plan) return null;
  if (plan.same) return html`<p class="quiet">The text is what runs now. Edit it: errors appear at their place, and here you see what stays, what begins anew and what is dropped before you deploy. Ctrl Space completes names, functions and keys.</p>`;
  const told = plan.parts.filter(p => p.fate !== "kept" || p.was);
  return html`<div class="diff"><p>${Object.keys(FATES).map(fate => [fate, plan.parts.filter(p => p.fate === fate).length]).filter(([, n]) => n).map(([fate, n]) => html`<span key=${fate} class=${`fate ${fate}`}>${n} ${FATES[fate]}</span>`)}</p>
    <${Table} head=${["what", "name", "fate", "why"]} empty="every part is kept" rows=${told.map(p => [p.kind, p.name, html`<span class=${`fate ${p.fate}`}>${p.fate}</span>`, [p.was ? `was ${p.was}` : "", p.why || ""].filter(Boolean).join("; ")])} />
    ${plan.drops_state?.length > 0 && html`<p class="fair">The state of ${plan.drops_state.map(p => p.name || p).join(", ")} will be dropped.</p>`}
    ${plan.needs_restart?.length > 0 && html`<p class="bad">A restart is needed for ${plan.needs_restart.map(p => p.name || p).join(", ")}.</p>`}</div>`;
}

function Forecast({ text, isSame }) {
  const [found, setFound] = useState(null), [error, setError] = useState(null), [isBusy, setBusy] = useState(false);
  useEffect(() => { setFound(null); setError(null); }, [text]);
  if (isSame) return null;
  const look = async () => {
    setBusy(true); setError(null);
    try { setFound((await ask("/api/v1/network?dry_run=true", { method: "PUT", body: text })).forecast || { outputs: [] }); } catch (failed) { setError(failed); }
    setBusy(false);
  };
  return html`<p><button disabled=${isBusy} onClick=${look}>${isBusy ? "simulating …" : "what would it do to the outputs?"}</button></p><${Trouble} error=${error} />
    ${found && html`${found.load && html`<p>Load of the workers: ${percent(found.load[0])} now, ${percent(found.load[1])} then.</p>`}
      <${Table} head=${["output", "utility: now", "then", "p99: now", "then"]} empty="too large to simulate here: only the load is known" rows=${found.outputs.map(o => [o.name, ...o.utility.map(utility), ...o.p99_ns.map(time)])} />`}`;
}

function summary(parts) {
  const told = parts.filter(p => p.fate !== "kept" || p.was).map(p => `${p.fate} ${p.name}`);
  return told.length > 4 ? `${told.slice(0, 4).join(", ")} and ${told.length - 4} more` : told.join(", ") || "the whole network";
}

function Revisions({ onRoll, version }) {
  const [found, setFound] = useState(null);
  useEffect(() => { ask("/api/v1/revisions").then(a => setFound(a.revisions), () => setFound([])); }, [version]);
  if (!found?.length) return null;
  return html`<section><h2>Revisions</h2><${Table} head=${["number", "when", "who", "what", "roll back"]} rows=${found.map((r, i) => [r.number, new Date(r.time).toLocaleString(), r.author || "–", `${r.door}: ${summary(r.parts)}`, i === 0 ? "runs now" : html`<button onClick=${() => onRoll(r.number)}>roll back to ${r.number}</button>`])} /></section>`;
}

function Bills() {
  const [found, setFound] = useState(null);
  useEffect(() => {
    const look = () => ask("/api/v1/bills").then(setFound, () => {});
    look();
    const timer = setInterval(look, 3000);
    return () => clearInterval(timer);
  }, []);
  if (!found?.bills?.length) return null;
  return html`<section><h2>Bills</h2><p>What each query costs. The cost of a shared box is split by the tuples that each query takes from it.</p>
    <${Table} head=${["query", "CPU", "share of busy time", "tuples", "in queues", "state", "dropped"]} rows=${found.bills.map(b => [b.query, time(b.cpu_ns), percent(b.cpu_ns / Math.max(1, found.busy_ns), 1), count(b.tuples), bytes(b.queue_bytes), bytes(b.state_bytes), count(b.dropped)])} /></section>`;
}

export function ChangeView() {
  const [text, setText] = useState(null), [running, setRunning] = useState("");
  const [problems, setProblems] = useState([]), [plan, setPlan] = useState(null), [error, setError] = useState(null);
  const [said, setSaid] = useState(""), [isBusy, setBusy] = useState(false), [mustConfirm, setConfirm] = useState(null), [rolling, setRolling] = useState(null);
  const editor = useRef(null), number = useRef(0);
  const load = () => ask("/api/v1/network/file").then(a => { setText(a.text); setRunning(a.text); }, setError);
  useEffect(() => { load(); }, []);
  useEffect(() => {
    if (text == null) return;
    const mine = ++number.current;
    const timer = setTimeout(async () => {
      try {
        const found = await ask("/api/v1/network?dry_run=true&force=true", { method: "PUT", body: text }); // without a forecast
        if (mine === number.current) { setPlan(found); setProblems([]); setError(null); }
      } catch (failed) {
        if (mine !== number.current) return;
        setPlan(failed.body?.plan || null);
        setProblems(failed.body?.problems || []);
        setError(failed.body?.problems ? null : failed);
      }
    }, SETTLE_MS);
    return () => clearTimeout(timer);
  }, [text]);
  const deploy = async dropState => {
    setBusy(true); setError(null); setSaid(""); setConfirm(null);
    try {
      const done = await ask(`/api/v1/network?drop_state=${dropState}`, { method: "PUT", body: text });
      setSaid(done.applied ? `deployed: version ${done.version}, after ${Math.round(1e3 * done.seconds)} ms` : "nothing to change");
      setRunning(text);
      setPlan({ ...done, same: true });
    } catch (failed) {
      if (failed.status === 409 && /drops the state/.test(failed.message)) setConfirm(failed.message);
      else if (failed.body?.problems) setProblems(failed.body.problems);
      else setError(failed);
    }
    setBusy(false);
  };
  const look = async to => { // what a roll back would do, before it is done
    setError(null); setSaid("");
    try { setRolling({ number: to, plan: await ask(`/api/v1/revisions/${to}/rollback?dry_run=true&force=true`, { method: "POST" }) }); } catch (failed) { setError(failed); }
  };
  const roll = async to => {
    setBusy(true); setError(null); setSaid(""); setRolling(null);
    try { const done = await ask(`/api/v1/revisions/${to}/rollback?drop_state=true`, { method: "POST" }); setSaid(`rolled back to ${to}: version ${done.version}`); await load(); } catch (failed) { setError(failed); }
    setBusy(false);
  };
  const ready = made => {
    editor.current = made;
    const wanted = sessionStorage.getItem("aurorad.goTo");
    if (!wanted) return;
    sessionStorage.removeItem("aurorad.goTo");
    const [kind, ...name] = wanted.split("/"), line = lineOf(made.text(), kind, name.join("/"));
    if (line) made.goTo(line);
  };
  if (text == null) return html`<div class="page"><h1>Change</h1>${error ? html`<${Trouble} error=${error} />` : html`<p class="empty">loading …</p>`}</div>`;
  const isSame = text === running;
  return html`<div class="page change"><h1>Change</h1>
    <div class="sides"><div class="left"><${Editor} text=${text} problems=${problems} onChange=${setText} onReady=${ready} /></div>
      <div class="right" aria-live="polite">
        <p class="actions"><button class="main" disabled=${isBusy || problems.length || isSame} onClick=${() => deploy(false)}>${isBusy ? "deploying …" : "deploy"}</button>
          <button disabled=${isBusy || isSame} onClick=${() => setText(running)}>undo all</button></p>
        ${said && html`<p class="good" role="status">${said}</p>`}<${Trouble} error=${error} />
        ${mustConfirm && html`<div class="confirm" role="alertdialog" aria-label="confirm"><p>${mustConfirm}.</p><button class="main" onClick=${() => deploy(true)}>deploy and drop it</button> <button onClick=${() => setConfirm(null)}>not now</button></div>`}
        ${rolling && html`<div class="confirm" role="alertdialog" aria-label="roll back"><p>Roll back to revision ${rolling.number}. State of what is rebuilt or removed is dropped.</p><${Diff} plan=${rolling.plan} /><button class="main" disabled=${isBusy} onClick=${() => roll(rolling.number)}>roll back</button> <button onClick=${() => setRolling(null)}>not now</button></div>`}
        ${problems.length > 0 && html`<h2>${problems.length} ${problems.length === 1 ? "error" : "errors"}</h2><ul class="problems">${problems.map((p, i) => html`<li key=${i}><button class="link" onClick=${() => editor.current?.goTo(p.line)}>line ${p.line}</button> <b>${p.place}</b> ${p.message} ${p.hint && html`<span class="hint">${p.hint}</span>`}</li>`)}</ul>`}
        ${!problems.length && html`<h2>What it does</h2><${Diff} plan=${plan} /><${Forecast} text=${text} isSame=${isSame} />`}
      </div></div>
    <${Revisions} onRoll=${look} version=${network.value?.version} /><${Bills} /></div>`;
}
