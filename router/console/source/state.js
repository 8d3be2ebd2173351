// What the page knows: the network, the looks of the last two minutes, and what the user has chosen.
//
// A look is the answer of /api/v1/stats. Looks come once a second over one connection (/api/v1/live). `shown` is the look
// on the screen: the newest one, or one of the last hour.
import { batch, computed, effect, signal } from "@preact/signals";

const KEPT_LOOKS = 120;
const GAP_MS = 25_000; // looks come at least every 10 s

export const network = signal(null);
export const superboxes = signal([]);
export const looks = signal([]);
export const isConnected = signal(false);
export const stopped = signal(false);
export const restartedAt = signal(null); // ns, until the user has read it
export const past = signal(null); // {at, records} while the scrubber is not at the present
export const failure = signal("");
export const words = signal(null);

export const view = signal("network");
export const selected = signal(null); // {kind: stream | box | arc | output, name}

export const shown = computed(() => (past.value ? past.value.records.at(-1) : looks.value.at(-1)) || null);
export const before = computed(() => (past.value ? past.value.records.at(-2) : looks.value.at(-2)) || null);
export const seconds = computed(() => {
  const [now, then] = [shown.value, before.value];
  return now && then ? (now.engine.now_ns - then.engine.now_ns) / 1e9 : 0;
});

export async function ask(path, options = {}) {
  const answer = await fetch(path, { cache: "no-store", ...options });
  let body = null;
  try { body = await answer.json(); } catch { /* an answer without a body */ }
  if (!answer.ok) {
    const error = new Error((body && body.error) || `${answer.status} ${answer.statusText}`);
    error.status = answer.status;
    error.hint = (body && body.hint) || "";
    error.body = body;
    throw error;
  }
  return body;
}
export const post = (path, data) =>
  ask(path, { method: "POST", body: JSON.stringify(data), headers: { "Content-Type": "application/json" } });

export async function loadNetwork() {
  const [found, units] = await Promise.all([ask("/api/v1/network"), ask("/api/v1/superboxes").catch(() => ({ superboxes: [] }))]);
  batch(() => { network.value = found; superboxes.value = units.superboxes; });
}
export async function loadWords() {
  if (!words.value) words.value = await ask("/api/v1/words");
  return words.value;
}

function take(look) {
  const last = looks.value.at(-1), same = last && last.engine.uptime_ns <= look.engine.uptime_ns;
  const hasSlept = same && look.engine.now_ns - last.engine.now_ns > GAP_MS * 1e6; // a rate over the gap says nothing
  batch(() => {
    if (last && !same) restartedAt.value = look.engine.now_ns - look.engine.uptime_ns; // counts from 0 again
    looks.value = [...(same && !hasSlept ? looks.value : []), look].slice(-KEPT_LOOKS);
    isConnected.value = true;
    stopped.value = false;
    lookedAt = Date.now();
  });
  const version = network.value && network.value.version;
  if (version !== look.engine.network_version || !same) loadNetwork().catch(error => { failure.value = error.message; });
}

let events = null, lookedAt = 0, again = 0;
export function connect() {
  events?.close();
  clearTimeout(again);
  lookedAt = Date.now();
  events = new EventSource("/api/v1/live");
  events.addEventListener("stats", event => take(JSON.parse(event.data)));
  events.addEventListener("stop", () => { stopped.value = true; isConnected.value = false; });
  events.onerror = () => {
    isConnected.value = false;
    if (events.readyState === EventSource.CLOSED) again = setTimeout(connect, 2000);
  };
}
// A machine that slept may leave a connection that is dead and does not know it.
function wake() {
  if (!document.hidden && Date.now() - lookedAt > GAP_MS) connect();
}
addEventListener("visibilitychange", wake);
addEventListener("online", wake);
setInterval(wake, 5000);

export async function goTo(at) {
  if (at == null) { past.value = null; return; }
  const { records } = await ask(`/api/v1/past?at=${at}`);
  if (records.length) past.value = { at, records };
}

// The address names the view and what is selected, so that a link can be sent.
const VIEWS = ["network", "qos", "why", "what-if", "change", "start"];
function fromAddress() {
  const [wanted, kind, ...name] = decodeURIComponent(location.hash.slice(1)).split("/");
  batch(() => {
    view.value = VIEWS.includes(wanted) ? wanted : "network";
    selected.value = kind && name.length ? { kind, name: name.join("/") } : null;
  });
}
export function followAddress() {
  fromAddress();
  addEventListener("hashchange", fromAddress);
  effect(() => {
    const chosen = selected.value ? `/${selected.value.kind}/${encodeURIComponent(selected.value.name)}` : "";
    const wanted = `#${view.value}${chosen}`;
    if (location.hash !== wanted) history.replaceState(null, "", wanted);
  });
}
