"""What `mainspring models` does."""

from __future__ import annotations

from contextlib import aclosing
from datetime import timedelta

import msgspec
from msgspec import Struct

from mainspring.config import Settings
from mainspring.core import error_table
from mainspring.core.events import Usage
from mainspring.core.model_facts import ModelFacts
from mainspring.edges.cli.printing import (
    Screen,
    StyledText,
    dollars,
    duration_text,
    pad,
    token_count,
)
from mainspring.harness.limits import prompt_tokens
from mainspring.runtime import model_checks
from mainspring.wiring.model_registry import OFFLINE_MODEL, PROVIDERS, ModelRegistry
from mainspring.wiring.runtime_assembly import open_model_registry

_WIDE_COLUMNS = 100


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
    """The last day that the price held, if that is over."""
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


async def ls(settings: Settings, *, json: bool) -> int:
    screen = Screen(settings)
    async with open_model_registry(settings) as shelf:
        views = [_model_view(settings, shelf, model) for model in shelf.catalog.ids]
    if json:
        for view in views:
            screen.json(msgspec.json.encode(view))
        return 0
    is_wide = screen.width is None or screen.width >= _WIDE_COLUMNS
    heads = ["MODEL", "KEY", "ALIAS", "WINDOW", "$ IN", "$ OUT", "PRICE OF"]
    more = ["REPLY", "$ CACHED", "$ WRITTEN"] if is_wide else []
    screen.table([*heads, *more], [_model_row(view, is_wide=is_wide) for view in views])
    local = ", ".join(name for name, provider in PROVIDERS.items() if provider.key is None)
    notes = Screen(settings, stderr=True)
    notes.paragraph(("dollars a million tokens; .mainspring/models.toml adds and corrects", "dim"))
    if any(view.price_expired for view in views):
        notes.paragraph(
            (f"prices `until` a day are over: {error_table.PRICE_EXPIRED.fix[0]}", "yellow")
        )
    notes.paragraph((f"and any model of openrouter, {local}, as provider:name", "dim"))
    return 0


def _model_view(settings: Settings, models: ModelRegistry, model: str) -> ModelView:
    facts: ModelFacts = models.catalog.lookup(model)
    provider = PROVIDERS.get(model.partition(":")[0])
    key = None if provider is None else provider.key
    price = models.catalog.price(model)
    return ModelView(
        id=model,
        aliases=[alias for alias, known in models.catalog.aliases.items() if known == model],
        window=facts.window,
        max_output=facts.max_output,
        input=str(price.input),
        output=str(price.output),
        cache_read=str(price.cache_read),
        cache_write=str(price.cache_write),
        price_date=price.date,
        price_expired=price.expired or None,
        key=key,
        key_is_set=key is None or key in settings.keys,
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
    return row


async def test(settings: Settings, *, name: str, json: bool) -> int:
    """Raises: ProviderFailed."""
    screen = Screen(settings)
    async with open_model_registry(settings) as shelf:
        trial = await model_checks.ask_once(shelf.open(name), name)
        cost = shelf.cost(trial.reply.model, trial.reply.usage)
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
        screen.json(msgspec.json.encode(view))
        return 0
    estimated = " (estimated: the provider counted nothing)" * trial.reply.usage_is_estimated
    screen.line(("✓ ", "green"), (trial.reply.model, "bold"), (f"  {text}", ""))
    for what, value in (
        ("first token", duration_text(timedelta(seconds=trial.first_seconds))),
        ("whole reply", duration_text(timedelta(seconds=trial.seconds))),
        ("tokens", f"{prompt_tokens(usage)} in, {usage.output_tokens} out{estimated}"),
        ("cost", dollars(cost)),
    ):
        screen.line(pad((f"  {what}", "dim"), 16), (value, ""))
    if trial.switched is not None:
        screen.paragraph((f"  failed over to {trial.switched}", "yellow"))
    if trial.reply.model == OFFLINE_MODEL:
        screen.paragraph(("  this is the offline demonstration model", "yellow"))
    return 0


async def drill(settings: Settings, *, names: str, json: bool) -> int:
    """Raises: InvalidInput."""
    screen = Screen(settings)
    failed = 0
    async with open_model_registry(settings) as shelf:
        router = shelf.router(names)
        route = router.drill()
        first, *rest = router.candidates()
        if not json:
            screen.line(
                (f"{first} is taken to be down; ", "dim"), (rest[0], "bold"), (" answers", "dim")
            )
        async with aclosing(model_checks.check_model(route, first)) as checks:
            async for check in checks:
                failed += not check.ok
                if json:
                    screen.json(msgspec.json.encode(check))
                    continue
                mark: StyledText = ("✓ ", "green") if check.ok else ("✗ ", "red")
                took = duration_text(timedelta(seconds=check.seconds))
                screen.line(mark, pad((check.what, ""), 22), (f"{took}  {check.detail}", "dim"))
    return 1 if failed else 0
