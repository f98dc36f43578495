"""The options of `mainspring serve` and `mainspring worker`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    concurrency: Annotated[
        int, typer.Option(min=1, max=10_000, help="How many sessions this process runs at once.")
    ] = 16
    of_tenant: Annotated[
        int | None,
        typer.Option(
            "--tenant-concurrency",
            min=1,
            help="How many jobs of one tenant run at once: over all workers on PostgreSQL, in this"
            " process on SQLite. [default: no limit]",
        ),
    ] = None
    drain_seconds: Annotated[
        float,
        typer.Option(
            "--drain-seconds",
            min=0,
            help="After SIGTERM, how long sessions may take to finish; unfinished ones resume"
            " later.",
        ),
    ] = 30.0
    model: Annotated[
        str | None,
        typer.Option("--model", help="Use this model for all agents, for experiments."),
    ] = None
    metrics: Annotated[
        str | None,
        typer.Option(
            "--metrics",
            metavar="HOST:PORT",
            help="Also serve /metrics and health here, without a key; do not make it public.",
        ),
    ] = None
    level: Annotated[
        str | None,
        typer.Option(
            "--log-level",
            help="debug, info, warning or error. [default: $MAINSPRING_LOG_LEVEL, else info]",
            metavar="LEVEL",
        ),
    ] = None
    form: Annotated[
        str, typer.Option("--log-format", help="auto, json or text.", metavar="FORM")
    ] = "auto"
    audit_days: Annotated[
        int | None,
        typer.Option(
            "--keep-audit-days",
            min=1,
            metavar="DAYS",
            help="Delete older audit entries. [default: keep all]",
        ),
    ] = None
    workspace_days: Annotated[
        int,
        typer.Option(
            "--keep-workspaces-days",
            min=0,
            metavar="DAYS",
            help="Remove workspaces that were unused for this long; 0 keeps them.",
        ),
    ] = 30
    networks: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-network",
            metavar="CIDR",
            help="Private addresses that the service may call, also over plain HTTP: for"
            " webhooks, repositories, tokens and MCP servers. Can be repeated.",
        ),
    ] = None
    user: Annotated[
        str | None,
        typer.Option(
            "--user",
            metavar="NAME|UID",
            help="The user to run as after binding the port as root. Also $MAINSPRING_USER.",
        ),
    ] = None
    allow_root: Annotated[
        bool,
        typer.Option(
            "--allow-root",
            help="Run as root, for example in a separate container. Also $MAINSPRING_ALLOW_ROOT=1.",
        ),
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1"
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 picks a free port.")] = 8700
    has_worker: Annotated[
        bool, typer.Option("--worker/--no-worker", help="Whether to run sessions in this process.")
    ] = True
    oidc: Annotated[
        str | None,
        typer.Option(
            "--oidc",
            metavar="FILE",
            help="A JSON file of the identity providers whose tokens are accepted.",
        ),
    ] = None
    proxies: Annotated[
        list[str] | None,
        typer.Option(
            "--trusted-proxy",
            metavar="ADDRESS",
            help="A trusted proxy that reports the client's address. Can be repeated.",
        ),
    ] = None
