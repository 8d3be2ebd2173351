// The drawing of the network. Preact draws it once for each layout; every look only changes attributes and texts.
import { effect, signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { html } from "../html.js";
import { arcDropRate, arcRate, boxes, outputs, queued, streams, utilityBehind } from "../numbers.js";
import { network, selected, shown, superboxes } from "../state.js";
import { count, percent, rate, utility, utilityOf } from "../units.js";
import { Camera } from "./camera.js";
import { drawPlan, path } from "./plan.js";

export const colourBy = signal("utility");
export const isCollapsed = signal(false);
export const search = signal("");
const FULL_QUEUE = 100_000; // tuples: a queue bar that is full, on a scale of roots

let worker = null, asked = 0;
function placed(plan) {
  worker ??= new Worker("/console/layout.js", { type: "module" });
  const number = ++asked;
  return new Promise((resolve, reject) => {
    const take = ({ data }) => {
      if (data.number !== number) return;
      worker.removeEventListener("message", take);
      resolve(data);
    };
    worker.addEventListener("message", take);
    worker.addEventListener("error", reject, { once: true });
    const { nodes, edges, frames } = plan;
    worker.postMessage({
      number, frames,
      nodes: nodes.map(({ id, width, height }) => ({ id, width, height })),
      edges: edges.map(({ id, from, to }) => ({ id, from, to })),
    });
  });
}

const shade = (good, how) => (how === "utility" ? (good > 0.9 ? "good" : good > 0.5 ? "fair" : "bad") : good < 0.6 ? "good" : good < 0.9 ? "fair" : "bad");

function nodeFacts(node) {
  if (node.kind === "stream") {
    const s = streams.value.get(node.id);
    return s && { text: rate(s.rate_per_s), busy: 0, waiting: 0, lost: 1 - utilityBehind(node.id), more: s.paused ? "paused" : "" };
  }
  if (node.kind === "output") {
    const o = outputs.value.get(node.id);
    return o && { text: `${rate(o.rate_per_s)} · utility ${utility(utilityOf(o))}`, busy: 0, waiting: o.queue_tuples, lost: 1 - utilityOf(o) };
  }
  const members = node.members.map(name => boxes.value.get(name)).filter(Boolean);
  if (!members.length) return null;
  const busy = members.reduce((a, b) => a + b.busy_ratio, 0), waiting = members.reduce((a, b) => a + b.queue_tuples, 0);
  return { text: `${rate(members[0].rate_per_s)} · ${percent(busy)} busy`, busy, waiting, lost: 1 - utilityBehind(node.members[0]) };
}

const inset = node => (node.kind === "output" || node.kind === "stream" ? 20 : 8); // of the bar, so that it ends before round corners

function paint(root, plan) {
  for (const node of plan.nodes) {
    const g = root.nodes.get(node.id), facts = g && nodeFacts(node);
    if (!facts) continue;
    const how = colourBy.value;
    g.dataset.shade = node.kind === "stream" ? "plain" : how === "utility" ? shade(1 - facts.lost, how) : shade(facts.busy, how);
    const text = g.querySelector(".facts");
    const words = `${node.subtitle} · ${facts.text}`;
    if (text.textContent !== words) text.textContent = words;
    const full = Math.min(1, Math.sqrt(facts.waiting / FULL_QUEUE));
    const bar = g.querySelector(".queue");
    bar.setAttribute("width", (full * (node.width - 2 * inset(node))).toFixed(1));
    g.setAttribute("aria-label", `${node.kind} ${node.title}: ${facts.text}, ${count(facts.waiting)} waiting`);
  }
  for (const edge of plan.edges) {
    const g = root.edges.get(edge.id);
    if (!g) continue;
    const flow = edge.arc.to && outputs.value.has(edge.arc.to) ? outputs.value.get(edge.arc.to).rate_per_s : arcRate(edge.arc);
    g.firstChild.style.strokeWidth = `${(flow > 0 ? 1 + 1.1 * Math.log10(1 + flow) : 1).toFixed(2)}px`;
    g.classList.toggle("still", flow <= 0);
    const drops = arcDropRate(edge.id), badge = g.querySelector(".drops");
    badge.classList.toggle("shown", drops > 0);
    if (drops > 0) badge.querySelector("text").textContent = `✕ ${rate(drops)}`;
    g.dataset.waiting = queued(edge.id);
  }
}

export function Graph() {
  const svg = useRef(null), scene = useRef(null), camera = useRef(null);
  const [drawn, setDrawn] = useState(null);
  const [trouble, setTrouble] = useState("");
  const elements = useRef({ nodes: new Map(), edges: new Map() });

  useEffect(() => {
    camera.current = new Camera(svg.current, scene.current);
    return () => camera.current.close();
  }, []);
  useEffect(() => effect(() => {
    if (!network.value) return;
    const plan = drawPlan(network.value, superboxes.value, isCollapsed.value);
    placed(plan).then(places => setDrawn({ plan, places }), error => setTrouble(String(error.message || error)));
  }), []);
  useEffect(() => {
    if (!drawn) return;
    const root = { nodes: new Map(), edges: new Map() };
    for (const g of scene.current.querySelectorAll("[data-node]")) root.nodes.set(g.dataset.node, g);
    for (const g of scene.current.querySelectorAll("[data-edge]")) root.edges.set(g.dataset.edge, g);
    elements.current = root;
    camera.current.fit(drawn.places);
    return effect(() => { if (shown.value && colourBy.value) paint(root, drawn.plan); });
  }, [drawn]);
  useEffect(() => effect(() => {
    const text = search.value.trim().toLowerCase();
    const { nodes } = elements.current;
    let first = null;
    for (const [id, g] of nodes) {
      const isFound = text && (id.toLowerCase().includes(text) || g.dataset.members.toLowerCase().includes(text));
      g.classList.toggle("found", Boolean(isFound));
      if (isFound && !first) first = g;
    }
    svg.current.classList.toggle("searching", Boolean(text));
    if (first && drawn) {
      const at = drawn.places.nodes.find(n => n.id === first.dataset.node);
      camera.current.show(at.x, at.y);
    }
  }), [drawn]);
  useEffect(() => effect(() => {
    const chosen = selected.value;
    for (const [id, g] of elements.current.nodes) g.classList.toggle("selected", Boolean(chosen && chosen.kind !== "arc" && chosen.name === id));
    for (const [id, g] of elements.current.edges) g.classList.toggle("selected", Boolean(chosen && chosen.kind === "arc" && chosen.name === id));
  }), [drawn]);

  const choose = (kind, name) => { if (!camera.current.isDrag) selected.value = { kind, name }; };
  const onKey = (event, kind, name) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); camera.current.moved = 0; choose(kind, name); } };
  const at = new Map(drawn ? drawn.places.nodes.map(n => [n.id, n]) : []);
  const lines = new Map(drawn ? drawn.places.edges.map(e => [e.id, e.points]) : []);
  return html`
    <div class="drawing">
      <svg ref=${svg} tabindex="0" role="group" aria-label="The network: streams, boxes and outputs. Arrow keys move, + and - zoom, 0 fits.">
        <g ref=${scene}>
          ${drawn && drawn.places.frames.map((f, i) => html`<rect class="frame" key=${i} x=${f.x - f.width / 2} y=${f.y - f.height / 2} width=${f.width} height=${f.height} rx="10"><title>superbox: boxes that are scheduled together</title></rect>`)}
          ${drawn && drawn.plan.edges.map(({ id, arc }) => {
            const points = lines.get(id);
            const middle = points[Math.floor(points.length / 2)];
            return html`<g class="edge" key=${id} data-edge=${id} onClick=${() => choose("arc", id)}><path class="line" d=${path(points)} /><path class="touch" d=${path(points)}><title>${arc.from} → ${arc.to}</title></path>
              <g class="drops" transform=${`translate(${middle.x} ${middle.y})`}><rect x="-34" y="-10" width="68" height="18" rx="9" /><text y="3"></text></g></g>`;
          })}
          ${drawn && drawn.plan.nodes.map(node => {
            const { x, y } = at.get(node.id);
            const kind = node.kind === "unit" ? "box" : node.kind;
            const name = node.kind === "unit" ? node.members.at(-1) : node.id;
            return html`<g class=${`node ${node.kind}`} key=${node.id} data-node=${node.id} data-members=${node.members.join(" ")} transform=${`translate(${x - node.width / 2} ${y - node.height / 2})`}
                tabindex="0" role="button" onClick=${() => choose(kind, name)} onKeyDown=${event => onKey(event, kind, name)}>
              <rect class="body" width=${node.width} height=${node.height} rx=${node.kind === "box" || node.kind === "unit" ? 7 : 22} />
              <text class="name" x="14" y="20">${node.title.length > 21 ? node.title.slice(0, 20) + "…" : node.title}</text>
              <text class="facts" x="14" y="35">${node.subtitle}</text>
              ${node.kind !== "stream" && html`<rect class="track" x=${inset(node)} y=${node.height - 7} width=${node.width - 2 * inset(node)} height="3" rx="1.5" />`}<rect class="queue" x=${inset(node)} y=${node.height - 7} width="0" height="3" rx="1.5" />
              <title>${node.title}</title></g>`;
          })}
        </g>
      </svg>
      ${!drawn && html`<p class="waiting">${trouble || (network.value ? "drawing …" : "loading the network …")}</p>`}
      <div class="zoom" role="group" aria-label="zoom">
        <button title="zoom in (+)" aria-label="zoom in" onClick=${() => camera.current.zoom(1.25)}>+</button>
        <button title="zoom out (-)" aria-label="zoom out" onClick=${() => camera.current.zoom(0.8)}>−</button>
        <button title="show all (0)" aria-label="show all" onClick=${() => camera.current.fit()}>⤢</button>
      </div>
    </div>`;
}
