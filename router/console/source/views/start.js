// The first minute: ten rows, a schema, a query, and its result.
import { useState } from "preact/hooks";
import { html } from "../html.js";
import { Table, Trouble } from "../parts.js";
import { post } from "../state.js";
import { Editor } from "./editor.js";

const EXAMPLE = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
  .map(i => JSON.stringify({ at: `2026-01-01T12:00:${String(3 * i).padStart(2, "0")}Z`, room: ["kitchen", "attic", "cellar"][i % 3], celsius: 18 + ((i * 7) % 5) + i / 10 }))
  .join("\n");

export function StartView() {
  const [rows, setRows] = useState(EXAMPLE), [file, setFile] = useState(null), [result, setResult] = useState(null);
  const [problems, setProblems] = useState([]), [error, setError] = useState(null), [busy, setBusy] = useState("");
  const work = (what, doing) => async () => {
    setBusy(what); setError(null);
    try { await doing(); } catch (failed) { if (failed.body?.problems) setProblems(failed.body.problems); else setError(failed); }
    setBusy("");
  };
  const stream = text => /^streams:\s*\n(?:\s*#.*\n|\s*\n)*\s+["']?([\w.-]+)["']?:/m.exec(text)?.[1] || "rows";
  const draft = work("draft", async () => { const found = await post("/api/v1/draft", { rows }); setFile(found.file); setResult(null); setProblems([]); });
  const tryIt = work("try", async () => { setProblems([]); setResult(await post("/api/v1/trial", { file, rows: { [stream(file)]: rows } })); });
  const save = () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([file], { type: "text/yaml" }));
    link.download = "network.yaml";
    link.click();
    URL.revokeObjectURL(link.href);
  };
  return html`<div class="page start"><h1>Begin with ten rows</h1>
    <ol class="steps">
      <li><h2>Paste some rows</h2><p>JSON, one object a line, or CSV with a heading.</p>
        <textarea aria-label="rows" rows="7" spellcheck="false" value=${rows} onInput=${e => setRows(e.target.value)}></textarea>
        <p><button class="main" disabled=${busy || !rows.trim()} onClick=${draft}>${busy === "draft" ? "reading …" : "make a network of them"}</button></p></li>
      ${file != null && html`<li><h2>Look at the network</h2><p>The schema is a guess, and there is one window for a start. Change it as you like.</p>
        <${Editor} text=${file} problems=${problems} onChange=${setFile} label="draft of a network file" />
        ${problems.length > 0 && html`<ul class="problems">${problems.map((p, i) => html`<li key=${i}>line ${p.line}: <b>${p.place}</b> ${p.message}</li>`)}</ul>`}
        <p><button class="main" disabled=${Boolean(busy)} onClick=${tryIt}>${busy === "try" ? "running …" : "run my rows through it"}</button></p></li>`}
      ${result && html`<li><h2>The result</h2>${result.outputs.map(o => html`<div key=${o.name}><h3>${o.name}</h3><${Table} head=${o.fields} empty="no rows came out" rows=${o.rows.slice(0, 100).map(r => o.fields.map(f => (r[f] === null ? "NULL" : String(r[f]))))} /></div>`)}
        ${Object.entries(result.refused).map(([s, all]) => html`<p class="bad" key=${s}>${s}: ${all.length} rows refused: ${all[0]?.message}</p>`)}
        <p><button class="main" onClick=${save}>save the file</button> Then <code>aurorad run network.yaml</code> runs it. Or copy its stream, boxes and output into the network of this daemon, under <a href="#change">Change</a>.</p></li>`}
    </ol><${Trouble} error=${error} /></div>`;
}
