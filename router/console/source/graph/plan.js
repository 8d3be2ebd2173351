// From the network to what is drawn: nodes, edges, frames; superboxes collapsed to one node each where the user wants it.
const WIDTH = 196, HEIGHT = 48;

export function drawPlan(network, superboxes, isCollapsed) {
  const unitOf = new Map();
  const units = superboxes.filter(members => members.length > 1);
  units.forEach((members, i) => members.forEach(name => unitOf.set(name, i)));
  const home = name => (isCollapsed && unitOf.has(name) ? `unit:${unitOf.get(name)}` : name);
  const nodes = [];
  const add = (kind, name, title, subtitle, members) =>
    nodes.push({ id: name, kind, title, subtitle, members, width: WIDTH, height: HEIGHT });
  for (const s of network.streams) add("stream", s.name, s.name, "stream", [s.name]);
  for (const b of network.boxes) if (home(b.name) === b.name) add("box", b.name, b.name, b.kind, [b.name]);
  if (isCollapsed) units.forEach((members, i) => add("unit", `unit:${i}`, members.at(-1), `${members.length} boxes`, members));
  for (const o of network.outputs) add("output", o.name, o.name, "output", [o.name]);
  const edges = network.arcs
    .map(arc => ({ id: arc.name, arc, from: home(arc.from.split(".")[0]), to: home(arc.to) }))
    .filter(edge => edge.from !== edge.to);
  return { nodes, edges, frames: isCollapsed ? [] : units.map(members => members.map(home)) };
}

export function path(points) {
  const [first, ...rest] = points;
  let d = `M${first.x.toFixed(1)} ${first.y.toFixed(1)}`;
  for (let i = 0; i < rest.length; i++) {
    const from = i ? rest[i - 1] : first, to = rest[i], middle = (from.x + to.x) / 2;
    d += `C${middle.toFixed(1)} ${from.y.toFixed(1)} ${middle.toFixed(1)} ${to.y.toFixed(1)} ${to.x.toFixed(1)} ${to.y.toFixed(1)}`;
  }
  return d;
}
