// A worker: where to draw each node, by dagre. A thousand boxes take some seconds, and the page stays smooth.
import { Graph, layout } from "@dagrejs/dagre";

const SIMPLE_FROM = 250; // nodes: above this the simpler ranking, and no frames

onmessage = ({ data: { nodes, edges, frames, number } }) => {
  const isSmall = nodes.length <= SIMPLE_FROM;
  const graph = new Graph({ compound: isSmall, multigraph: true });
  graph.setGraph({ rankdir: "LR", nodesep: 18, ranksep: 64, edgesep: 10, ranker: isSmall ? "network-simplex" : "longest-path" });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const { id, width, height } of nodes) graph.setNode(id, { width, height });
  if (isSmall) {
    frames.forEach((members, i) => {
      graph.setNode(`frame:${i}`, {});
      for (const id of members) graph.setParent(id, `frame:${i}`);
    });
  }
  for (const { id, from, to } of edges) graph.setEdge(from, to, {}, id);
  layout(graph);
  postMessage({
    number,
    width: graph.graph().width,
    height: graph.graph().height,
    nodes: nodes.map(({ id }) => { const { x, y } = graph.node(id); return { id, x, y }; }),
    edges: edges.map(({ id, from, to }) => ({ id, points: graph.edge(from, to, id).points })),
    frames: isSmall ? frames.map((_, i) => graph.node(`frame:${i}`)).map(({ x, y, width, height }) => ({ x, y, width, height })) : [],
  });
};
