"""`mainspring serve` and `mainspring worker`: arguments and options."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.core.lazy_module import LazyModule
from mainspring.edges.cli.commands import Action

if TYPE_CHECKING:
    from mainspring.edges.cli import serve_command
else:
    serve_command = LazyModule("mainspring.edges.cli.serve_command")

Concurrency = Annotated[
    int, typer.Option(min=1, max=10_000, help="How many sessions this process runs at once.")
]
TenantConcurrency = Annotated[
    int | None,
    typer.Option(
        "--tenant-concurrency",
        min=1,
        help="How many jobs of one tenant run at once: over all workers on PostgreSQL, in this"
        " process on SQLite. [default: no limit]",
    ),
]
DrainSeconds = Annotated[
    float,
    typer.Option(
        "--drain-seconds",
        min=0,
        help="After SIGTERM, how long sessions may take to finish; others resume"
        " later where they were cut off.",
    ),
]
ModelName = Annotated[
    str | None,
    typer.Option("--model", help="Use this model for all agents, for trying things out."),
]
MetricsAddress = Annotated[
    str | None,
    typer.Option(
        "--metrics",
        metavar="HOST:PORT",
        help="Serve /metrics and health here too, without a key: not publicly.",
    ),
]
LogLevel = Annotated[
    str | None,
    typer.Option(
        "--log-level",
        help="debug, info, warning or error. [default: $MAINSPRING_LOG_LEVEL, else info]",
        metavar="LEVEL",
    ),
]
LogFormat = Annotated[str, typer.Option("--log-format", help="auto, json or text.", metavar="FORM")]
AuditDays = Annotated[
    int | None,
    typer.Option(
        "--keep-audit-days",
        min=1,
        metavar="DAYS",
        help="Delete older audit entries. [default: keep all]",
    ),
]
WorkspaceDays = Annotated[
    int,
    typer.Option(
        "--keep-workspaces-days",
        min=0,
        metavar="DAYS",
        help="Remove workspaces unused for this long; 0 keeps them.",
    ),
]
Issuers = Annotated[
    str | None,
    typer.Option(
        "--oidc", metavar="FILE", help="Identity providers whose tokens are accepted: JSON."
    ),
]
Proxies = Annotated[
    list[str] | None,
    typer.Option(
        "--trusted-proxy",
        metavar="ADDRESS",
        help="A trusted proxy that reports the client's address. Can be repeated.",
    ),
]
Networks = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-network",
        metavar="CIDR",
        help="The service itself may call these addresses although they are not public, and over"
        " plain HTTP: for webhooks, repositories and tokens. May be repeated.",
    ),
]
ServiceUser = Annotated[
    str | None,
    typer.Option(
        "--user",
        metavar="NAME|UID",
        help="The user to run as after binding the port as root. Also $MAINSPRING_USER.",
    ),
]
AllowRoot = Annotated[
    bool,
    typer.Option(
        "--allow-root",
        help="Run as root anyway, as in a container of its own. Also $MAINSPRING_ALLOW_ROOT=1.",
    ),
]


def serve(  # noqa: PLR0913, PLR0917 (the options of the command)
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 picks a free port.")] = 8700,
    worker: Annotated[
        bool, typer.Option("--worker/--no-worker", help="Whether to run sessions too.")
    ] = True,
    concurrency: Concurrency = 16,
    tenant_concurrency: TenantConcurrency = None,
    drain_seconds: DrainSeconds = 30.0,
    model: ModelName = None,
    metrics: MetricsAddress = None,
    log_level: LogLevel = None,
    log_format: LogFormat = "auto",
    audit_days: AuditDays = None,
    workspace_days: WorkspaceDays = 30,
    oidc: Issuers = None,
    proxies: Proxies = None,
    networks: Networks = None,
    service_user: ServiceUser = None,
    allow_root: AllowRoot = False,
) -> Action:
    """Serve the Managed Agents API and run its sessions.

    The first start creates an admin key and shows it once. Point any client of the Managed Agents
    API at the address, with that key.
    """
    return partial(
        serve_command.serve,
        options=serve_command.ServeOptions(
            host=host,
            port=port,
            has_worker=worker,
            oidc=oidc,
            proxies=tuple(proxies or ()),
            worker_options=serve_command.WorkerOptions(
                concurrency=concurrency,
                of_tenant=tenant_concurrency,
                drain_seconds=drain_seconds,
                model=model,
                metrics=metrics,
                level=log_level,
                form=log_format,
                audit_days=audit_days,
                workspace_days=workspace_days,
                networks=tuple(networks or ()),
                user=service_user,
                allow_root=allow_root,
            ),
        ),
    )


def worker(  # noqa: PLR0913, PLR0917 (the options of the command)
    concurrency: Concurrency = 16,
    tenant_concurrency: TenantConcurrency = None,
    drain_seconds: DrainSeconds = 30.0,
    model: ModelName = None,
    metrics: MetricsAddress = None,
    log_level: LogLevel = None,
    log_format: LogFormat = "auto",
    audit_days: AuditDays = None,
    workspace_days: WorkspaceDays = 30,
    networks: Networks = None,
    service_user: ServiceUser = None,
    allow_root: AllowRoot = False,
) -> Action:
    """Run sessions of a service on this machine too.

    Needs the store of the service (`--store postgresql://...`), the same MAINSPRING_WORKSPACES on
    a shared disk, and the same vault key.
    """
    return partial(
        serve_command.run_worker,
        options=serve_command.WorkerOptions(
            concurrency=concurrency,
            of_tenant=tenant_concurrency,
            drain_seconds=drain_seconds,
            model=model,
            metrics=metrics,
            level=log_level,
            form=log_format,
            audit_days=audit_days,
            workspace_days=workspace_days,
            networks=tuple(networks or ()),
            user=service_user,
            allow_root=allow_root,
        ),
    )
