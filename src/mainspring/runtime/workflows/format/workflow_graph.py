"""Drawings of a workflow: text for a terminal, Mermaid, SVG."""

from __future__ import annotations

from xml.sax.saxutils import escape

from mainspring.runtime.workflows.format.definition import Node, Workflow
from mainspring.runtime.workflows.format.structure import execution_layers

_BOX = (150, 40)
"""Width and height of a node in SVG, in pixels."""
_GAP = (40, 30)
"""Space between layers and between nodes, in pixels."""
_MARGIN = 20  # pixels


def text_graph(workflow: Workflow) -> str:
    """The layers of the graph, each node with what it needs."""
    by_id = {node.id: node for node in workflow.nodes}
    lines: list[str] = []
    for number, layer in enumerate(execution_layers(workflow.nodes), 1):
        lines.append(f"layer {number}")
        for name in layer:
            lines += _node_lines(by_id[name], "  ")
    return "\n".join(lines) + "\n"


def _node_lines(node: Node, indent: str) -> list[str]:
    needs = f"  <- {', '.join(node.depends_on)}" if node.depends_on else ""
    when = f"  when {node.when}" if node.when else ""
    lines = [f"{indent}{node.id}  [{node.kind}]{needs}{when}"]
    for child in node.loop.nodes if node.loop else ():
        lines += _node_lines(child, indent + "    ")
    return lines


def mermaid(workflow: Workflow) -> str:
    names = {node.id: f"n{index}" for index, node in enumerate(workflow.nodes)}
    lines = ["flowchart TD"]
    for node in workflow.nodes:
        label = _mermaid_text(f"{node.id} ({node.kind})")
        shape = f'{{"{label}"}}' if node.kind == "approval" else f'["{label}"]'
        lines.append(f"  {names[node.id]}{shape}")
    for node in workflow.nodes:
        for dependency in node.depends_on:
            edge = f'-- "{_mermaid_text(node.when)}" -->' if node.when else "-->"
            lines.append(f"  {names[dependency]} {edge} {names[node.id]}")
    return "\n".join(lines) + "\n"


def _mermaid_text(text: str) -> str:
    safe = text.replace("&", "&amp;").replace('"', "&quot;")
    return safe.replace("<", "&lt;").replace(">", "&gt;").replace("\n", " ")


def svg(workflow: Workflow) -> str:
    width, height = _BOX
    gap_x, gap_y = _GAP
    layers = execution_layers(workflow.nodes)
    places: dict[str, tuple[int, int]] = {}
    for column, layer in enumerate(layers):
        for row, name in enumerate(layer):
            places[name] = (
                _MARGIN + column * (width + gap_x),
                _MARGIN + row * (height + gap_y),
            )
    total_x = 2 * _MARGIN + len(layers) * (width + gap_x)
    total_y = 2 * _MARGIN + max(map(len, layers), default=1) * (height + gap_y)
    shapes: list[str] = []
    for node in workflow.nodes:
        x, y = places[node.id]
        for dependency in node.depends_on:
            from_x, from_y = places[dependency]
            shapes.append(
                f'<line x1="{from_x + width}" y1="{from_y + height // 2}" x2="{x}"'
                f' y2="{y + height // 2}" stroke="#888"/>'
            )
        fill = "#fff4d6" if node.kind == "approval" else "#eef2ff"
        shapes.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" fill="{fill}"'
            f' stroke="#556"/><text x="{x + 8}" y="{y + 17}" font-size="12">{escape(node.id)}'
            f'</text><text x="{x + 8}" y="{y + 33}" font-size="10" fill="#666">'
            f"{escape(node.kind)}</text>"
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{total_x}" height="{total_y}"'
        ' font-family="sans-serif">\n' + "\n".join(shapes) + "\n</svg>\n"
    )
