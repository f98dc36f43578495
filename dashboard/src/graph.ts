// Where the nodes of a workflow are drawn: a column for each step, an edge for each dependency.

import type { WorkflowNode } from "./types";

export const NODE_WIDTH = 190;
export const NODE_HEIGHT = 44;
const GAP_X = 46;
const GAP_Y = 14;
const MARGIN = 8;
/** More are listed below their group only by number: nobody reads a thousand boxes. */
const MAX_DRAWN = 200;

export interface NodePlace {
  node: WorkflowNode;
  x: number;
  y: number;
}

export interface GraphEdge {
  from: string;
  to: string;
  path: string;
  isDone: boolean;
}

export interface GraphLayout {
  places: NodePlace[];
  edges: GraphEdge[];
  width: number;
  height: number;
}

/** The node that contains a node of a group, a loop or a child; null if it is one of the file. */
function parentOf(node: WorkflowNode): string | null {
  const at = node.node.lastIndexOf("/");
  return at < 0 ? null : node.node.slice(0, at);
}

export function layout(nodes: readonly WorkflowNode[]): GraphLayout {
  const drawn = nodes.slice(0, MAX_DRAWN);
  const byName = new Map(drawn.map((node) => [node.node, node]));
  const needs = (node: WorkflowNode): string[] => {
    const parent = parentOf(node);
    const inside = parent !== null && byName.has(parent) ? [parent] : [];
    return [...node.depends_on.filter((name) => byName.has(name)), ...inside];
  };
  const columns = new Map<string, number>();
  const column = (node: WorkflowNode, path: ReadonlySet<string>): number => {
    const known = columns.get(node.node);
    if (known !== undefined) return known;
    if (path.has(node.node)) return 0;
    const within = new Set(path).add(node.node);
    const before = needs(node).map((name) => {
      const other = byName.get(name);
      return other === undefined ? -1 : column(other, within);
    });
    const result = Math.max(-1, ...before) + 1;
    columns.set(node.node, result);
    return result;
  };
  const rows = new Map<number, number>();
  const places = drawn.map((node) => {
    const at = column(node, new Set());
    const row = rows.get(at) ?? 0;
    rows.set(at, row + 1);
    return { node, x: MARGIN + at * (NODE_WIDTH + GAP_X), y: MARGIN + row * (NODE_HEIGHT + GAP_Y) };
  });
  const most = Math.max(1, ...rows.values());
  for (const place of places) {
    // short columns are centered beside long ones
    const own = rows.get(columns.get(place.node.node) ?? 0) ?? 1;
    place.y += ((most - own) * (NODE_HEIGHT + GAP_Y)) / 2;
  }
  const placeOf = new Map(places.map((place) => [place.node.node, place]));
  const edges: GraphEdge[] = [];
  for (const place of places) {
    for (const name of needs(place.node)) {
      const from = placeOf.get(name);
      if (from === undefined) continue;
      const [x1, y1] = [from.x + NODE_WIDTH, from.y + NODE_HEIGHT / 2];
      const [x2, y2] = [place.x, place.y + NODE_HEIGHT / 2];
      const bend = Math.max(20, (x2 - x1) / 2);
      edges.push({
        from: name,
        to: place.node.node,
        path: `M ${x1} ${y1} C ${x1 + bend} ${y1}, ${x2 - bend} ${y2}, ${x2} ${y2}`,
        isDone: from.node.status === "completed",
      });
    }
  }
  const width = Math.max(1, ...[...rows.keys()].map((at) => at + 1)) * (NODE_WIDTH + GAP_X) - GAP_X + 2 * MARGIN;
  const height = most * (NODE_HEIGHT + GAP_Y) - GAP_Y + 2 * MARGIN;
  return { places, edges, width, height };
}
