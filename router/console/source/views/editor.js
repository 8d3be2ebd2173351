// The editor as a part of a view. Its code is loaded when it is needed first.
import { useEffect, useRef } from "preact/hooks";
import { html } from "../html.js";
import { loadWords, network } from "../state.js";

const names = () => {
  const n = network.value;
  return n ? [...n.streams.map(s => ({ name: s.name, kind: "stream" })), ...n.boxes.map(b => ({ name: b.name, kind: b.kind })), ...n.outputs.map(o => ({ name: o.name, kind: "output" })),
    ...[...new Set([...n.streams.flatMap(s => s.schema), ...n.boxes.flatMap(b => b.ports.flatMap(p => p.schema))].map(f => f.name))].map(f => ({ name: f, kind: "field" }))] : [];
};

export function Editor({ text, problems, onChange, onReady, label = "network file" }) {
  const place = useRef(null), editor = useRef(null);
  useEffect(() => {
    let isGone = false;
    Promise.all([import("/console/editor.js"), loadWords()]).then(([{ makeEditor }, words]) => {
      if (isGone) return;
      editor.current = makeEditor(place.current, text, { change: onChange, words, names, label });
      onReady?.(editor.current);
    });
    return () => { isGone = true; editor.current?.destroy(); };
  }, []);
  useEffect(() => { if (editor.current && editor.current.text() !== text) editor.current.set(text); }, [text]);
  useEffect(() => { editor.current?.showProblems(problems); }, [problems]);
  return html`<div class="editor" ref=${place}></div>`;
}
