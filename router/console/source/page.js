// The page: a heading with the main figures, the views, the panel of what is chosen.
import { render } from "preact";
import { useEffect } from "preact/hooks";
import "uplot/dist/uPlot.min.css";
import "./page.css";
import { html } from "./html.js";
import { totals } from "./numbers.js";
import { Panel } from "./panel.js";
import { Word } from "./parts.js";
import { connect, followAddress, isConnected, loadNetwork, looks, network, past, restartedAt, shown, stopped, view } from "./state.js";
import { Tour, offerTour, startTour } from "./tour.js";
import { bytes, clock, count, percent, time, utility } from "./units.js";
import { ChangeView } from "./views/change.js";
import { NetworkView } from "./views/network.js";
import { QosView } from "./views/qos.js";
import { StartView } from "./views/start.js";
import { WhatIfView } from "./views/what-if.js";
import { WhyView } from "./views/why.js";

const VIEWS = { network: ["Network", NetworkView], qos: ["QoS", QosView], why: ["Why", WhyView], "what-if": ["What if", WhatIfView], change: ["Change", ChangeView], start: ["Begin", StartView] };

function Figures() {
  const look = shown.value, all = totals.value;
  if (!look) return null;
  const { engine, scheduler } = look;
  const load = engine.load_ratio;
  const figures = [
    ["utility", all.outputs ? `${utility(all.utility)} of ${all.outputs}` : "–", all.outputs && all.utility / all.outputs < 0.9 ? "fair" : ""],
    ["load", percent(load), load > 1 ? "bad" : load > 0.8 ? "fair" : ""],
    ["dropped", all.dropped ? `${count(all.dropped)} tuples` : "none", all.dropped ? "fair" : ""],
    ["memory", `${bytes(engine.memory_used)} of ${bytes(engine.memory_budget)}`],
    ["policy", scheduler.asked === scheduler.policy ? scheduler.policy : `${scheduler.asked}: ${scheduler.policy}`],
    ["up", time(engine.uptime_ns)],
    ...(all.residual ? [["unaccounted for", all.residual, "bad"]] : []),
  ];
  return html`<section aria-label="main figures"><dl class="figures">${figures.map(([word, value, tone]) => html`<div key=${word}><dt><${Word} word=${word} /></dt><dd class=${tone || ""}>${value}</dd></div>`)}</dl></section>`;
}

function Connection() {
  const text = stopped.value ? "the daemon has stopped; waiting for it" : isConnected.value ? (past.value ? "the past" : "live") : looks.value.length ? "connection lost; trying again" : "connecting";
  return html`<span class=${`connection ${isConnected.value && !stopped.value ? (past.value ? "past" : "on") : "off"}`} role="status">${text}</span>`;
}

// Said until the user has read it: every counter began anew.
function Restarted() {
  if (!restartedAt.value) return null;
  return html`<div class="notice" role="status">The daemon has restarted at ${clock(restartedAt.value)}: its counters begin anew. <button class="link" onClick=${() => { restartedAt.value = null; }}>understood</button></div>`;
}

function Page() {
  useEffect(() => { connect(); followAddress(); loadNetwork().then(() => { if (!network.value.streams.length && !network.value.outputs.length) view.value = "start"; else if (!location.hash || location.hash === "#network") offerTour(); }, () => {}); }, []);
  const [, View] = VIEWS[view.value];
  return html`
    <a class="skip" href="#main" onClick=${e => { e.preventDefault(); document.getElementById("main").focus(); }}>to the content</a>
    <header class="top"><span class="brand"><svg viewBox="0 0 16 16" width="20" height="20" aria-hidden="true"><path d="M1 12c3-9 4 1 7-5s4-4 7-4" fill="none" stroke="var(--good)" stroke-width="2.2" stroke-linecap="round" /></svg> aurorad</span>
      <nav aria-label="views">${Object.entries(VIEWS).map(([name, [title]]) => html`<a key=${name} href=${`#${name}`} aria-current=${view.value === name ? "page" : null}>${title}</a>`)}</nav>
      <${Connection} /><button class="link" onClick=${startTour}>tour</button></header>
    <${Restarted} /><${Figures} />
    <div class="body"><main id="main" tabindex="0"><${View} /></main>${view.value === "network" && html`<${Panel} />`}</div><${Tour} />`;
}

render(html`<${Page} />`, document.getElementById("app"));
