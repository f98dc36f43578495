"""`mainspring models`."""

from __future__ import annotations

from contextlib import aclosing
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct

from mainspring import error_table
from mainspring.capabilities.providers.catalog import Catalog
from mainspring.capabilities.providers.model_registry import ModelRegistry
from mainspring.capabilities.providers.provider_table import PROVIDERS
from mainspring.capabilities.providers.script_file import OFFLINE_MODEL
from mainspring.config import Settings
from mainspring.core.events import Usage
from mainspring.core.lazy_module import LazyModule
from mainspring.core.model_facts import ModelFacts
from mainspring.edges.cli.commands import command, command_group
from mainspring.edges.cli.options import JsonOption, parse_dollars
from mainspring.edges.cli.render.printing import (
    Screen,
    StyledText,
    dollars,
    duration_text,
    pad,
    print_list,
    print_note,
    token_count,
)
from mainspring.harness.limits import prompt_tokens
from mainspring.runtime import model_checks
from mainspring.wiring.providers import open_model_registry

if TYPE_CHECKING:
    from mainspring.edges.cli.evals import suite_drill
else:
    suite_drill = LazyModule("mainspring.edges.cli.evals.suite_drill")  # evals are slow to import

app = command_group()

_WIDE_COLUMNS = 100  # a terminal from which the table has all its columns


class NextPrice(Struct, frozen=True, kw_only=True):
    first_day: str
    input: str
    output: str
    cache_read: str
    cache_write: str


class ModelView(Struct, frozen=True, kw_only=True):
    id: str
    aliases: list[str]
    window: int
    max_output: int
    input: str
    output: str
    cache_read: str
    cache_write: str
    price_date: str
    price_expired: str | None
    """The last day of the price's validity, if it has passed."""
    next_price: NextPrice | None
    """What is known to change."""
    min_cached_tokens: int | None
    """The shortest prefix of a prompt that the provider caches."""
    key: str | None
    """The variable that holds its key."""
    key_is_set: bool


class ModelTestView(Struct, frozen=True, kw_only=True):
    model: str
    text: str
    first_seconds: float
    seconds: float
    usage: Usage
    usage_is_estimated: bool
    cost_usd: str


@command(app)
async def ls(settings: Settings, *, json: JsonOption = False) -> int:
    """List the models of the catalog. Shows window, price, and whether a key is set."""
    async with open_model_registry(settings) as registry:
        views = [_model_view(settings, registry, model) for model in registry.catalog.ids]
    width = Screen(settings).width
    is_wide = width is None or width >= _WIDE_COLUMNS
    heads = ["MODEL", "KEY", "ALIAS", "WINDOW", "$ IN", "$ OUT", "PRICE OF"]
    wide_heads = ["REPLY", "$ CACHED", "$ WRITTEN", "CACHED FROM"] if is_wide else []
    print_list(
        settings,
        views,
        json=json,
        heads=[*heads, *wide_heads],
        row=lambda view: _model_row(view, is_wide=is_wide),
        empty="the catalog has no models",
    )
    if json:
        return 0
    print_note(settings, "in dollars per million tokens; change them in .mainspring/models.toml")
    for view in views:
        if (later := view.next_price) is not None:
            change = f"${later.input} in, ${later.output} out"
            print_note(settings, f"{view.id} costs {change} from {later.first_day} on", "yellow")
    if any(view.price_expired for view in views):
        fix = error_table.PRICE_EXPIRED.fix[0]
        print_note(settings, f"prices `until` a day are out of date: {fix}", "yellow")
    local = ", ".join(name for name, provider in PROVIDERS.items() if provider.key is None)
    print_note(settings, f"and any model of openrouter, {local}, as provider:name")
    return 0


def _model_view(settings: Settings, models: ModelRegistry, model: str) -> ModelView:
    facts: ModelFacts = models.catalog.lookup(model)
    provider = PROVIDERS.get(model.partition(":")[0])
    key = None if provider is None else provider.key
    price = models.catalog.price(model)
    return ModelView(
        id=model,
        aliases=[alias for alias, target in models.catalog.aliases.items() if target == model],
        window=facts.window,
        max_output=facts.max_output,
        input=str(price.input),
        output=str(price.output),
        cache_read=str(price.cache_read),
        cache_write=str(price.cache_write),
        price_date=price.date,
        price_expired=price.expired or None,
        next_price=_next_price(models.catalog, model),
        min_cached_tokens=models.catalog.listing(model).min_cached_tokens or None,
        key=key,
        key_is_set=key is None or key in settings.keys,
    )


def _next_price(catalog: Catalog, model: str) -> NextPrice | None:
    if (later := catalog.next_price(model)) is None:
        return None
    first_day, price = later
    return NextPrice(
        first_day=str(first_day),
        input=str(price.input),
        output=str(price.output),
        cache_read=str(price.cache_read),
        cache_write=str(price.cache_write),
    )


def _model_row(view: ModelView, *, is_wide: bool) -> list[StyledText]:
    key: StyledText = ("set", "green") if view.key_is_set else ("no", "dim")
    row: list[StyledText] = [
        (view.id, "bold" if view.key_is_set else ""),
        ("-", "dim") if view.key is None else key,
        (", ".join(view.aliases), "cyan"),
        (f"{token_count(view.window):>6}", ""),
        (f"{view.input:>5}", ""),
        (f"{view.output:>5}", ""),
        (f"until {view.price_expired}", "yellow")
        if view.price_expired
        else (view.price_date, "dim"),
    ]
    if is_wide:
        row.append((f"{token_count(view.max_output):>5}", ""))
        row += [(f"{view.cache_read:>8}", ""), (f"{view.cache_write:>9}", "")]
        shortest = view.min_cached_tokens
        row.append((f"{'' if shortest is None else shortest:>11}", ""))
    return row


@command(app, "test")
async def call_model(
    settings: Settings,
    *,
    name: Annotated[str, typer.Argument(metavar="NAME", help="provider:name, or an alias.")],
    json: JsonOption = False,
) -> int:
    """Make one small call, and show its duration and cost."""
    screen = Screen(settings)
    async with open_model_registry(settings) as registry:
        trial = await model_checks.ask_once(registry.open(name), name)
        cost = registry.cost(trial.reply.model, trial.reply.usage)
    usage = trial.reply.usage
    text = " ".join(getattr(part, "text", "") for part in trial.reply.content).strip()
    if json:
        view = ModelTestView(
            model=trial.reply.model,
            text=text,
            first_seconds=round(trial.first_seconds, 4),
            seconds=round(trial.seconds, 4),
            usage=usage,
            usage_is_estimated=trial.reply.usage_is_estimated,
            cost_usd=str(cost),
        )
        screen.json(view)
        return 0
    estimated = " (estimated: the provider counted nothing)" * trial.reply.usage_is_estimated
    screen.line(("✓ ", "green"), (trial.reply.model, "bold"), (f"  {text}", ""))
    for label, value in (
        ("first token", duration_text(timedelta(seconds=trial.first_seconds))),
        ("whole reply", duration_text(timedelta(seconds=trial.seconds))),
        ("tokens", f"{prompt_tokens(usage)} in, {usage.output_tokens} out{estimated}"),
        ("cost", dollars(cost)),
    ):
        screen.line(pad((f"  {label}", "dim"), 16), (value, ""))
    if trial.switched is not None:
        screen.paragraph((f"  failed over to {trial.switched}", "yellow"))
    if trial.reply.model == OFFLINE_MODEL:
        screen.paragraph(("  this is the offline demonstration model", "yellow"))
    return 0


@command(app)
async def drill(
    settings: Settings,
    *,
    names: Annotated[
        str, typer.Argument(metavar="NAMES", help="Two or more models, separated by commas.")
    ],
    suite: Annotated[
        str | None,
        typer.Option("--suite", metavar="NAME", help="Run this suite of the agent in this folder."),
    ] = None,
    budget: Annotated[
        Decimal | None,
        typer.Option(
            "--budget", parser=parse_dollars, metavar="USD", help="With --suite: the cost limit."
        ),
    ] = None,
    json: JsonOption = False,
) -> int:
    """Rehearse an outage of the first model. Tests the next one with three small calls, or with a
    suite that is compared with its newest run. Exit status 1 if it fails."""
    if suite is not None:
        return await suite_drill.drill_suite(settings, names, suite, budget=budget, json=json)
    if budget is not None:
        raise typer.BadParameter("--budget needs --suite: three small calls have no limit")
    screen = Screen(settings)
    failed = 0
    async with open_model_registry(settings) as registry:
        router = registry.router(names)
        route = router.drill()
        first, second, *_ = router.candidates()
        if not json:
            down = f"{first} is treated as down; "
            screen.line((down, "dim"), (second, "bold"), (" answers", "dim"))
        async with aclosing(model_checks.check_model(route, first)) as checks:
            async for check in checks:
                failed += not check.ok
                if json:
                    screen.json(check)
                    continue
                mark: StyledText = ("✓ ", "green") if check.ok else ("✗ ", "red")
                took = duration_text(timedelta(seconds=check.seconds))
                screen.line(mark, pad((check.what, ""), 22), (f"{took}  {check.detail}", "dim"))
    return 1 if failed else 0
