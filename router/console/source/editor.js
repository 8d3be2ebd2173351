// The editor of network files: CodeMirror with YAML, SQL inside it by completion, and errors at their place.
// Loaded only when an editor is opened: it is the largest part of the page.
import { autocompletion, completionKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { yaml } from "@codemirror/lang-yaml";
import { HighlightStyle, bracketMatching, foldGutter, indentOnInput, syntaxHighlighting } from "@codemirror/language";
import { linter, lintGutter, setDiagnostics } from "@codemirror/lint";
import { EditorState } from "@codemirror/state";
import { EditorView, highlightActiveLine, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";

const colours = HighlightStyle.define([
  { tag: tags.propertyName, color: "var(--accent)" },
  { tag: [tags.string, tags.content], color: "var(--ink)" },
  { tag: tags.comment, color: "var(--quiet)", fontStyle: "italic" },
  { tag: [tags.number, tags.bool], color: "var(--good)" },
  { tag: [tags.punctuation, tags.separator], color: "var(--quiet)" },
]);
const look = EditorView.theme({
  "&": { backgroundColor: "var(--sheet)", color: "var(--ink)", fontSize: "13px", height: "100%" },
  ".cm-content": { caretColor: "var(--ink)", fontFamily: "var(--mono)" },
  ".cm-gutters": { backgroundColor: "var(--fill)", color: "var(--quiet)", border: "none" },
  ".cm-activeLine": { backgroundColor: "color-mix(in srgb, var(--accent) 6%, transparent)" },
  "&.cm-focused": { outline: "2px solid var(--accent)", outlineOffset: "-2px" },
  ".cm-tooltip": { backgroundColor: "var(--sheet)", color: "var(--ink)", border: "1px solid var(--line)" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--accent)", color: "var(--sheet)" },
});

function completions(words, names) {
  const kinds = words.boxes.map(b => ({ label: b.name, type: "class", detail: "box", info: b.summary }));
  const functions = words.functions.map(f => ({ label: f.name, type: "function", detail: f.signature, info: f.description }));
  const keys = [...new Set([...Object.values(words.keys).flat(), ...words.boxes.flatMap(b => b.keys)])];
  const all = [
    ...kinds,
    ...functions,
    ...keys.filter(k => !kinds.some(b => b.label === k)).map(k => ({ label: k, type: "property", detail: "key" })),
    ...words.policies.map(p => ({ label: p, type: "enum", detail: "policy" })),
  ];
  return context => {
    const word = context.matchBefore(/[\w.]+/);
    if (!word && !context.explicit) return null;
    const own = names().map(n => ({ label: n.name, type: "variable", detail: n.kind, boost: 10 }));
    return { from: word ? word.from : context.pos, options: [...own, ...all], validFor: /^[\w.]*$/ };
  };
}

// Make an editor. `change` is called with the text after each edit; `names` lists what the file may refer to.
export function makeEditor(parent, text, { change, words, names, label }) {
  const view = new EditorView({
    parent,
    state: EditorState.create({
      doc: text,
      extensions: [
        lineNumbers(), foldGutter(), history(), bracketMatching(), indentOnInput(), highlightActiveLine(),
        yaml(), syntaxHighlighting(colours), look, lintGutter(), linter(null),
        autocompletion({ override: [completions(words, names)] }),
        keymap.of([...defaultKeymap, ...historyKeymap, ...completionKeymap]),
        EditorView.contentAttributes.of({ "aria-label": label, spellcheck: "false" }),
        EditorView.updateListener.of(update => { if (update.docChanged) change(update.state.doc.toString()); }),
      ],
    }),
  });
  view.scrollDOM.tabIndex = 0; // a keyboard scrolls it too
  return {
    view,
    text: () => view.state.doc.toString(),
    set: fresh => view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: fresh } }),
    showProblems(problems) {
      const { doc } = view.state;
      const found = problems.map(p => {
        const line = doc.line(Math.min(Math.max(p.line || 1, 1), doc.lines));
        const from = Math.min(line.from + Math.max((p.column || 1) - 1, 0), line.to);
        return { from, to: Math.max(from, line.to), severity: "error", message: p.hint ? `${p.message} (${p.hint})` : p.message };
      });
      view.dispatch(setDiagnostics(view.state, found.sort((a, b) => a.from - b.from)));
    },
    goTo(line) {
      const at = view.state.doc.line(Math.min(line, view.state.doc.lines));
      view.dispatch({ selection: { anchor: at.from }, effects: EditorView.scrollIntoView(at.from, { y: "center" }) });
      view.focus();
    },
    destroy: () => view.destroy(),
  };
}
