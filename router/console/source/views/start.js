// The first minute: ten rows, a schema, a query, its result, and the same live in this daemon.
import { batch, signal } from "@preact/signals";
import { html } from "../html.js";
import { Table, Trouble } from "../parts.js";
import { ask, network, post, selected, view } from "../state.js";
import { Tap, shownValue } from "../tap.js";
import { Diff } from "./change.js";
import { Editor } from "./editor.js";

const EXAMPLE = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
  .map(i => JSON.stringify({ at: `2026-01-01T12:00:${String(3 * i).padStart(2, "0")}Z`, room: ["kitchen", "attic", "cellar"][i % 3], celsius: 18 + ((i * 7) % 5) + i / 10 }))
  .join("\n");

// Kept while the user looks at another view.
const rows = signal(EXAMPLE), name = signal("rooms"), file = signal(null), result = signal(null), plan = signal(null), sent = signal(null);
const problems = signal([]), error = signal(null), busy = signal(""), deployed = signal(null);

const work = (what, doing) => async () => {
  batch(() => { busy.value = what; error.value = null; problems.value = []; });
  try { await doing(); } catch (failed) { if (failed.body?.problems) problems.value = failed.body.problems; else error.value = failed; }
  busy.value = "";
};
// The streams of the draft that is in the editor.
const streamsOf = text => {
  const section = /^streams:[ \t]*(?:#.*)?\n((?:[ \t]+.*\n|[ \t]*\n|#.*\n)*)/m.exec(`${text}\n`)?.[1] || "";
  const depth = /^([ \t]+)[^\s#]/m.exec(section)?.[1];
  return section.split("\n").filter(line => depth && line.startsWith(depth) && /[^\s#]/.test(line[depth.length] || " ")).map(line => /["']?([\w.-]+)["']?\s*:/.exec(line)?.[1]).filter(Boolean);
};

const draft = work("draft", async () => {
  const found = await post("/api/v1/draft", { rows: rows.value, name: name.value.trim() || "rows" });
  batch(() => { file.value = found.file; result.value = plan.value = deployed.value = sent.value = null; });
});
const tryIt = work("try", async () => {
  const stream = streamsOf(file.value)[0] || "rows";
  result.value = await post("/api/v1/trial", { file: file.value, rows: { [stream]: rows.value } });
  const whole = (await post("/api/v1/merge", { file: file.value })).file;
  plan.value = { whole, ...(await ask("/api/v1/network?dry_run=true&force=true", { method: "PUT", body: whole })) };
});
const deploy = work("deploy", async () => {
  const done = await ask("/api/v1/network", { method: "PUT", body: plan.value.whole });
  const found = await ask("/api/v1/network"), before = new Set((network.value?.outputs || []).map(o => o.name));
  const output = result.value.outputs.map(o => o.name).find(o => !before.has(o)) || result.value.outputs[0]?.name;
  batch(() => { network.value = found; deployed.value = { version: done.version, stream: streamsOf(file.value)[0], output, ms: Math.round(1e3 * (done.seconds || 0)) }; });
});
const send = work("send", async () => { sent.value = await post("/api/v1/feed", { stream: deployed.value.stream, rows: rows.value }); });

function save() {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([file.value], { type: "text/yaml" }));
  link.download = "network.yaml";
  link.click();
  URL.revokeObjectURL(link.href);
}
const edit = text => {
  if (text === file.value) return;
  batch(() => { file.value = text; result.value = plan.value = null; });
};
const toNetwork = () => batch(() => { selected.value = { kind: "output", name: deployed.value.output }; view.value = "network"; });

function Rows() {
  return html`<li><h2>Paste some rows</h2><p>JSON, one object a line, or CSV with a heading. Ten are enough.</p>
    <textarea aria-label="rows" rows="8" spellcheck="false" value=${rows.value} onInput=${e => { rows.value = e.target.value; }}></textarea>
    <p class="actions"><label class="choice">called <input size="16" value=${name.value} onInput=${e => { name.value = e.target.value; }} /></label>
      <button class="main" disabled=${busy.value || !rows.value.trim()} onClick=${draft}>${busy.value === "draft" ? "reading …" : "make a network of them"}</button></p></li>`;
}

function Draft() {
  return html`<li><h2>Look at the network</h2><p>The schema is a guess, and there is one window for a start. Change it as you like: <kbd>Ctrl</kbd> <kbd>Space</kbd> completes.</p>
    <${Editor} text=${file.value} problems=${problems.value} onChange=${edit} label="draft of a network file" />
    ${problems.value.length > 0 && html`<ul class="problems" role="alert">${problems.value.map((p, i) => html`<li key=${i}>line ${p.line}: <b>${p.place}</b> ${p.message} ${p.hint && html`<span class="hint">${p.hint}</span>`}</li>`)}</ul>`}
    <p class="actions"><button class="main" disabled=${Boolean(busy.value)} onClick=${tryIt}>${busy.value === "try" ? "running …" : "run my rows through it"}</button><button onClick=${save}>save the file</button></p></li>`;
}

function Result() {
  const { outputs, refused, late, dead } = result.value;
  return html`<li><h2>The result</h2>
    ${outputs.map(o => html`<div key=${o.name}><h3>${o.name}: ${o.rows.length} ${o.rows.length === 1 ? "row" : "rows"}</h3><${Table} label=${`rows of ${o.name}`} head=${o.fields} empty="no rows came out" rows=${o.rows.slice(0, 100).map(r => o.fields.map(f => shownValue(r[f])))} /></div>`)}
    ${Object.entries(refused).map(([s, all]) => html`<p class="bad" key=${s}>${s}: ${all.length} ${all.length === 1 ? "row" : "rows"} refused: ${all[0]?.message}</p>`)}
    ${Object.entries({ ...late }).map(([box, n]) => html`<p class="fair" key=${box}>${box}: ${n} rows came too late for their window</p>`)}
    ${Object.entries({ ...dead }).map(([box, n]) => html`<p class="bad" key=${box}>${box}: ${n} rows could not be computed with</p>`)}</li>`;
}

function Deploy() {
  const runs = network.value?.streams.length > 0;
  return html`<li><h2>Let it run</h2>
    ${!deployed.value && html`<p>${runs ? "This daemon takes it in beside what runs already." : "This daemon runs nothing yet."} Nobody has to restart it.</p>
      ${plan.value.applied === false && html`<${Diff} plan=${plan.value} />`}
      <p class="actions"><button class="main" disabled=${Boolean(busy.value)} onClick=${deploy}>${busy.value === "deploy" ? "deploying …" : "deploy it"}</button></p>`}
    ${deployed.value && html`<p class="good" role="status">It runs: version ${deployed.value.version}, after ${deployed.value.ms} ms.</p>
      <p>Its results, live. Send your rows to see some; they go through the port of the stream, as those of any client.</p>
      <${Tap} name=${deployed.value.output} isWatching=${true} />
      <p class="actions"><button class="main" disabled=${Boolean(busy.value)} onClick=${send}>${busy.value === "send" ? "sending …" : "send my rows"}</button><button onClick=${toNetwork}>see it in the network</button></p>
      ${sent.value && html`<p class="quiet" role="status">${sent.value.lines} lines sent to ${sent.value.stream}.</p>`}`}</li>`;
}

export function StartView() {
  return html`<div class="page start"><h1>Begin with ten rows</h1>
    <ol class="steps"><${Rows} />${file.value != null && html`<${Draft} />`}${result.value && html`<${Result} />`}${(plan.value || deployed.value) && html`<${Deploy} />`}</ol>
    <${Trouble} error=${error.value} /></div>`;
}
