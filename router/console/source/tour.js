// The guided tour: five sentences, shown once.
import { signal } from "@preact/signals";
import { html } from "./html.js";
import { view } from "./state.js";

const STEPS = [
  ["network", "This is the network", "Tuples come in on the left, pass boxes, and leave at outputs on the right. Wide arrows carry more. Choose a box to see its figures and watch its rows."],
  ["network", "✕ marks what is dropped", "When more arrives than the machine can do, the load shedder drops what costs the least utility. The mark is where it happens."],
  ["qos", "How useful is each output?", "You say with graphs how late and how lossy an output may be. The dot is where the output is now, its trail the last minute."],
  ["why", "Ask why", "Where did a late tuple wait, and for whom? What was dropped, and by which plan?"],
  ["what-if", "Ask what if", "Twice the load, another policy: the simulator answers in seconds. Under Change you edit the network while it runs."],
];
const KEY = "aurorad.toured";
const step = signal(-1);
const isNew = () => { try { return !localStorage.getItem(KEY); } catch { return false; } };
export const startTour = () => { step.value = 0; view.value = STEPS[0][0]; };
export const offerTour = () => { if (isNew()) startTour(); };
function end() { step.value = -1; try { localStorage.setItem(KEY, "yes"); } catch { /* a browser that keeps nothing */ } }
function next() {
  if (step.value + 1 >= STEPS.length) { end(); return; }
  step.value += 1;
  view.value = STEPS[step.value][0];
}
export function Tour() {
  if (step.value < 0) return null;
  const [, title, text] = STEPS[step.value];
  return html`<div class="tour" role="dialog" aria-label="guided tour" onKeyDown=${e => e.key === "Escape" && end()}><p class="quiet">${step.value + 1} of ${STEPS.length}</p><h2>${title}</h2><p>${text}</p>
    <p class="actions"><button onClick=${end}>skip</button> <button class="main" onClick=${next}>${step.value + 1 < STEPS.length ? "next" : "done"}</button></p></div>`;
}
