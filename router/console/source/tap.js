// A tap: the rows that pass a place, live in a table, with an expression that they must meet.
import { useEffect, useRef, useState } from "preact/hooks";
import { html } from "./html.js";
import { Trouble } from "./parts.js";

const KEPT_ROWS = 50, SHOW_EVERY_MS = 250;

export async function* lines(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    for (const line of parts) if (line) yield JSON.parse(line);
  }
}

export const shownValue = value => {
  const text = value === null ? "NULL" : typeof value === "object" ? JSON.stringify(value) : String(value).replace(/^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d*?)0*Z$/, (_, moment, rest) => `${moment}${rest === "." ? "" : rest}Z`);
  return text.length > 80 ? text.slice(0, 79) + "…" : text;
};

export function Tap({ name, isWatching = false }) {
  const [where, setWhere] = useState(""), [asked, setAsked] = useState("");
  const [rows, setRows] = useState([]), [error, setError] = useState(null), [isOn, setOn] = useState(isWatching);
  const [missed, setMissed] = useState(0);
  const kept = useRef([]);
  useEffect(() => { setOn(isWatching); setRows([]); kept.current = []; setError(null); }, [name]);
  useEffect(() => {
    if (!isOn) return;
    const stop = new AbortController();
    let lost = 0, isFresh = false;
    kept.current = [];
    const timer = setInterval(() => { if (isFresh) { isFresh = false; setRows([...kept.current]); setMissed(lost); } }, SHOW_EVERY_MS);
    (async () => {
      try {
        const query = new URLSearchParams({ name, limit: "0", every: "1", ...(asked ? { where: asked } : {}) });
        const answer = await fetch(`/api/v1/tap?${query}`, { signal: stop.signal });
        if (!answer.ok) { const body = await answer.json(); throw Object.assign(new Error(body.error), { hint: body.hint }); }
        for await (const row of lines(answer.body)) {
          if (row._gap) lost += row._gap;
          else kept.current = [row, ...kept.current].slice(0, KEPT_ROWS);
          isFresh = true;
        }
        setRows([...kept.current]);
      } catch (failed) {
        if (failed.name !== "AbortError") { setError(failed); setOn(false); }
      }
    })();
    return () => { clearInterval(timer); stop.abort(); };
  }, [isOn, name, asked]);
  const fields = rows.length ? Object.keys(rows[0]) : [];
  const start = event => { event?.preventDefault(); setError(null); setAsked(where.trim()); setOn(true); };
  return html`<section class="tap" aria-label="tap">
    <form onSubmit=${start}>
      <input aria-label="only rows for which this expression is true" placeholder="only where, e.g. price > 100" value=${where} onInput=${e => setWhere(e.target.value)} />
      <button type="submit">${isOn ? "filter" : "watch rows"}</button>
      ${isOn && html`<button type="button" onClick=${() => setOn(false)}>stop</button>`}
    </form>
    <${Trouble} error=${error} />
    ${isOn && !rows.length && html`<p class="empty">waiting for a row …</p>`}
    ${rows.length > 0 && html`<div class="scroll rows" tabindex="0" role="region" aria-label="rows of the tap"><table><thead><tr>${fields.map(f => html`<th key=${f} scope="col">${f}</th>`)}</tr></thead>
      <tbody>${rows.map((row, i) => html`<tr key=${i}>${fields.map(f => html`<td key=${f} class=${typeof row[f] === "number" ? "number" : ""}>${shownValue(row[f])}</td>`)}</tr>`)}</tbody></table></div>
      <p class="quiet">the newest ${rows.length} rows${missed ? `; ${missed.toLocaleString("en")} more passed faster than this page reads` : ""}</p>`}
  </section>`;
}
