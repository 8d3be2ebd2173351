// A line over the last two minutes, by uPlot.
import { effect } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { html } from "./html.js";
import { looks } from "./state.js";

const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// `value` takes a look and the one before it. `unit` formats a number for the axis and for the label.
export function Trend({ label, value, unit, height = 92, tone = "--accent" }) {
  const place = useRef(null);
  useEffect(() => {
    const plot = new uPlot(
      {
        width: place.current.clientWidth || 300, height, legend: { show: false }, cursor: { show: false },
        scales: { x: { time: true }, y: { range: (_, low, high) => [0, high > 0 ? high * 1.1 : 1] } },
        axes: [
          { stroke: colour("--quiet"), grid: { show: false }, ticks: { show: false }, size: 20, font: "10px system-ui", values: (_, at) => at.map(s => new Date(s * 1e3).toLocaleTimeString([], { hour12: false, minute: "2-digit", second: "2-digit" })) },
          { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, size: 54, font: "10px system-ui", values: (_, at) => at.map(v => unit(v)) },
        ],
        series: [{}, { stroke: colour(tone), width: 1.6, fill: colour(tone) + "1c", points: { show: false } }],
      },
      [[], []],
      place.current,
    );
    const stop = effect(() => {
      const all = looks.value;
      plot.setData([all.map(l => l.engine.now_ns / 1e9), all.map((l, i) => value(l, all[i - 1]) ?? null)]);
    });
    const watch = new ResizeObserver(([{ contentRect }]) => plot.setSize({ width: contentRect.width, height }));
    watch.observe(place.current);
    return () => { stop(); watch.disconnect(); plot.destroy(); };
  }, [label]);
  return html`<figure class="trend"><figcaption>${label}</figcaption><div ref=${place}></div></figure>`;
}
