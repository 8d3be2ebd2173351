// Small parts that several views use.
import { html } from "./html.js";
import { loadWords, words } from "./state.js";
import { useEffect } from "preact/hooks";

export function Facts({ rows }) {
  return html`<dl class="facts">${rows.filter(r => r && r[1] != null && r[1] !== "").map(([word, value, tone]) => html`<div key=${word}><dt><${Word} word=${word} /></dt><dd class=${tone || ""}>${value}</dd></div>`)}</dl>`;
}

// A word of the legend, with its meaning.
export function Word({ word }) {
  useEffect(() => { loadWords().catch(() => {}); }, []);
  const term = words.value?.legend.find(t => t.word.split(", ").includes(word));
  return term ? html`<abbr title=${term.meaning}>${word}</abbr>` : word;
}

export function Table({ head, rows, empty = "none", label }) {
  if (!rows.length) return html`<p class="empty">${empty}</p>`;
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${label || head.join(", ")}><table>
    <thead><tr>${head.map((h, i) => html`<th key=${i} scope="col">${h}</th>`)}</tr></thead>
    <tbody>${rows.map((row, i) => html`<tr key=${row.key ?? i} class=${row.tone || ""}>${(row.cells || row).map((cell, j) => html`<td key=${j}>${cell}</td>`)}</tr>`)}</tbody></table></div>`;
}

export function Trouble({ error }) {
  if (!error) return null;
  return html`<p class="trouble" role="alert">${error.message || String(error)}${error.hint ? html` <span class="hint">${error.hint}</span>` : ""}</p>`;
}

export const Choice = ({ label, value, options, onChange }) =>
  html`<label class="choice">${label} <select value=${value} onChange=${event => onChange(event.target.value)}>${options.map(o => html`<option key=${o} value=${o}>${o}</option>`)}</select></label>`;
