"""Checks of a workflow before it runs: the file, and everything that it names. Nothing is run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct

from mainspring.core.errors import InvalidInput, NotFound
from mainspring.runtime.agent_folder.validation import FolderReport, PartReport
from mainspring.runtime.definition_files.finding import Finding
from mainspring.runtime.workflows.format.definition import Node, Workflow, all_nodes
from mainspring.runtime.workflows.format.program_text import bash_program
from mainspring.runtime.workflows.format.structure import execution_layers, missing_dependencies
from mainspring.runtime.workflows.workflow_files import (
    WorkflowFile,
    WorkflowFiles,
    command_names,
    script_name,
)

Level: TypeAlias = Literal["error", "warning", "note"]
TIERS = ("small", "medium", "large")
"""Names that stand for a model of the runner's provider."""
_DOUBLE_QUOTED = re.compile(r'(?:^|[=\s])"[^"\n]*\$[a-zA-Z_][a-zA-Z0-9_-]*\.output', re.MULTILINE)


class WorkflowIssue(Struct, frozen=True, kw_only=True, rename="camel"):
    level: Level
    """`note`: our own, about fields without effect here; errors and warnings are Archon's too."""
    message: str
    node_id: str | None = None
    line: int | None = None


class WorkflowReport(Struct, frozen=True, kw_only=True, rename="camel"):
    name: str
    file: str
    valid: bool
    node_count: int
    missing_dependencies: tuple[str, ...]
    execution_layers: tuple[tuple[str, ...], ...]
    issues: tuple[WorkflowIssue, ...]


def with_workflows(report: FolderReport, folder: Path) -> FolderReport:
    """The report about an agent's folder, with its workflows. Blocks."""
    files = WorkflowFiles(root=folder, home=folder)
    supported: list[str] = []
    findings: list[Finding] = []
    for item in files.all():
        checked = check_workflow(files, item)
        if checked.valid:
            supported.append(f"{checked.name} ({checked.node_count} nodes)")
        findings += [
            Finding(level=issue.level, file=checked.file, line=issue.line, what=issue.message)
            for issue in checked.issues
        ]
    part = PartReport(name="workflows", supported=tuple(supported), findings=tuple(findings))
    return FolderReport(parts=(*report.parts, part))


def check_workflow(files: WorkflowFiles, item: WorkflowFile) -> WorkflowReport:
    """Check a workflow and the files that it names. Blocks."""
    read = item.read
    if read.workflow is None:
        issues = [WorkflowIssue(level="error", message=read.error or "", line=read.line)]
        return _report(item, issues)
    issues = [WorkflowIssue(level="warning", message=text, line=n) for n, text in read.warnings]
    issues += [WorkflowIssue(level="note", message=text, line=n) for n, text in read.notes]
    issues += _model_issues(None, read.workflow.model)
    for node in all_nodes(read.workflow.nodes):
        issues += _file_issues(files, item, node)
        issues += _model_issues(node, node.model)
        issues += _program_issues(node)
    return _report(item, issues)


def graph_summary(workflow: Workflow) -> dict[str, object]:
    """The three facts that Archon prints about a graph."""
    return {
        "nodeCount": len(workflow.nodes),
        "missingDependencies": [name for _, name in missing_dependencies(workflow.nodes)],
        "executionLayers": execution_layers(workflow.nodes),
    }


def _report(item: WorkflowFile, issues: list[WorkflowIssue]) -> WorkflowReport:
    nodes = () if item.read.workflow is None else item.read.workflow.nodes
    return WorkflowReport(
        name=item.name,
        file=item.read.file,
        valid=all(issue.level != "error" for issue in issues),
        node_count=len(nodes),
        missing_dependencies=tuple(name for _, name in missing_dependencies(nodes)),
        execution_layers=tuple(map(tuple, execution_layers(nodes))),
        issues=tuple(issues),
    )


def _issue(level: Level, node: Node, message: str) -> WorkflowIssue:
    return WorkflowIssue(level=level, message=message, node_id=node.id, line=node.line)


def _file_issues(files: WorkflowFiles, item: WorkflowFile, node: Node) -> Iterator[WorkflowIssue]:
    for name in command_names(node):
        if files.command_file(name, item.pack) is None:
            yield _issue("error", node, f"Command '{name}' not found")
    name = script_name(node)
    if name is not None and files.script_file(name, node.runtime or "bun", item.pack) is None:
        yield _issue("error", node, f"Named script '{name}' not found in .archon/scripts/")
    if node.kind in ("include", "workflow"):
        yield from _target_issues(files, node)
    if node.mcp is not None:
        try:
            files.server_names(node.mcp)
        except InvalidInput as error:
            yield _issue("error", node, str(error))
    if node.runtime == "bun" and node.deps:
        text = "'deps' is ignored for bun runtime (bun auto-installs packages at runtime)"
        yield _issue("warning", node, text)


def _target_issues(files: WorkflowFiles, node: Node) -> Iterator[WorkflowIssue]:
    try:
        files.find(node.text)
    except NotFound:
        yield _issue("note", node, f"there is no workflow {node.text} here")
    except InvalidInput as error:
        yield _issue("error", node, f"workflow {node.text}: {error}")


def _model_issues(node: Node | None, model: str | None) -> Iterator[WorkflowIssue]:
    if model is not None and model.startswith("@"):
        known = ", ".join(TIERS)
        text = f"Unknown alias '{model}'. Defined aliases: {known}"
        yield (
            WorkflowIssue(level="error", message=text)
            if node is None
            else _issue("error", node, text)
        )


def _program_issues(node: Node) -> Iterator[WorkflowIssue]:
    texts = [node.text] if node.kind == "bash" else []
    if node.loop is not None and node.loop.until_bash is not None:
        texts.append(node.loop.until_bash)
    for text in texts:
        if _DOUBLE_QUOTED.search(text):
            yield _issue(
                "warning",
                node,
                '`"$nodeId.output"` — double-quoting a substitution that is already shell-quoted'
                " by Archon produces the wrong value",
            )
        try:
            bash_program(text, lambda _: "0")
        except InvalidInput as error:
            yield _issue("note", node, f"fails when it runs: {error}")
