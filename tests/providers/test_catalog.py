"""What is known of models, what users add, and what they are told when they mistype."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from tests.row_checks import for_each

from mainspring.capabilities.providers import catalog as catalog_module
from mainspring.capabilities.providers.catalog import Catalog, bundled_catalog, lookup
from mainspring.core.errors import InvalidInput
from mainspring.core.events import Usage


@for_each("model", bundled_catalog().ids)
def test_every_listed_model_has_complete_facts(model: str):
    facts, listing = lookup(model), bundled_catalog().listing(model)
    assert 0 < facts.max_output <= facts.window
    assert 2 <= facts.bytes_per_token <= 4
    assert listing.tokenizer != "unknown"
    if not model.startswith("scripted:"):
        assert facts.price.input > 0
        assert facts.price.date >= "2026", "a price without its date cannot be judged"
        assert facts.price.cache_read <= facts.price.input <= facts.price.cache_write


def test_a_model_is_looked_up_by_id():
    facts = lookup("anthropic:claude-sonnet-4-5")
    assert (facts.window, facts.price.input) == (200_000, Decimal(3))


@pytest.mark.parametrize("family", ["opus", "sonnet", "haiku"])
def test_an_alias_is_the_newest_model_of_its_family(family: str):
    prefix = f"anthropic:claude-{family}-"
    versions = [
        [int(part) for part in model.removeprefix(prefix).split("-")]
        for model in bundled_catalog().ids
        if model.startswith(prefix)
    ]
    newest = "-".join(map(str, max(versions)))
    assert lookup(family).id == prefix + newest


def test_every_alias_refers_to_a_listed_model():
    assert set(bundled_catalog().aliases.values()) <= set(bundled_catalog().ids)


def test_a_name_without_provider_is_enough_if_it_is_unique():
    assert lookup("claude-haiku-4-5").id == "anthropic:claude-haiku-4-5"


def test_a_price_is_replaced_by_its_successor_and_the_last_one_expires():
    text = """
        [models."ollama:m"]
        window = 9_000
        max_output = 900
        [models."ollama:m".price]
        input = "1"
        output = "2"
        cache_read = "1"
        cache_write = "1"
        valid_until = 2026-12-31
        [models."ollama:m".price.successor]
        input = "3"
        output = "4"
        cache_read = "3"
        cache_write = "3"
        valid_until = "2027-06-30"
        """
    for day, dollars, expired in (
        ("2026-12-31", "1", ""),
        ("2027-01-01", "3", ""),
        ("2027-07-01", "3", "2027-06-30"),
    ):
        catalog = Catalog(("m.toml", text), clock=lambda day=day: datetime.fromisoformat(day))
        facts = catalog.lookup("ollama:m")
        assert (facts.price.input, facts.price.expired) == (Decimal(dollars), expired)
        assert catalog.cost("ollama:m", Usage(input_tokens=1_000_000)) == Decimal(dollars)


def test_a_dated_snapshot_has_the_facts_of_its_model_and_keeps_its_id():
    facts = lookup("anthropic:claude-sonnet-4-5-20250929")
    assert facts.id == "anthropic:claude-sonnet-4-5-20250929"
    assert facts.price == lookup("anthropic:claude-sonnet-4-5").price


@pytest.mark.parametrize("server", ["ollama", "vllm", "lmstudio", "llamacpp"])
def test_an_unlisted_model_of_a_local_server_gets_safe_defaults(server: str):
    facts = lookup(f"{server}:somebody/own-model:7b")
    assert facts.window <= 32_768
    assert (facts.price.output, facts.efforts) == (0, ())
    assert not facts.vision


def test_an_unlisted_paid_model_is_assumed_to_be_expensive():
    assert lookup("openrouter:some/model").price.output >= 50


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("anthropic:claude-sonet-5-5", "anthropic:claude-sonnet-5-5"),
        ("claude-opus-55", "anthropic:claude-opus-5-5"),
        ("sonet", "sonnet"),
        ("openai:gpt-6-lunar", "openai:gpt-6-luna"),
    ],
)
def test_a_mistyped_name_gets_a_suggestion(typed: str, meant: str):
    with pytest.raises(InvalidInput, match=f"did you mean.*{meant}"):
        lookup(typed)


def test_an_unknown_name_is_answered_with_the_format_of_names():
    with pytest.raises(InvalidInput, match="provider:name"):
        lookup("zzz")


def test_a_long_prompt_has_its_own_price_and_reserves_the_higher_one():
    short, long = Usage(input_tokens=100_000), Usage(input_tokens=100_001)
    catalog = bundled_catalog()
    assert catalog.cost("haiku", short) == Decimal("0.01")
    assert catalog.cost("haiku", long) == Decimal("0.0500005")
    assert catalog.lookup("haiku").price.input == Decimal("0.50")


def test_quirks_come_from_the_catalog():
    quirks = bundled_catalog().quirks("opus")
    assert quirks.thinking == "adaptive"
    assert quirks.efforts == lookup("opus").efforts
    assert quirks.max_output == 128_000


def test_users_can_add_models_correct_prices_and_name_servers(tmp_path: Path):
    file = tmp_path / "models.toml"
    file.write_text(
        """
        [aliases]
        house = "rack:qwen"
        [providers.rack]
        window = 64_000
        max_output = 8_000
        [models."anthropic:claude-opus-5-5"]
        price = { input = 1, output = 0.5, cache_read = "0.1", cache_write = 1 }
        price_date = "2027-01-01"
        """,
        encoding="utf-8",
    )
    catalog = Catalog.load(file)
    assert catalog.lookup("house").window == 64_000
    opus = catalog.lookup("opus")
    assert (opus.price.output, opus.price.date) == (Decimal("0.5"), "2027-01-01")
    assert opus.window == 1_000_000, "what the user did not mention stays"
    assert lookup("opus").price.output == 20, "the shipped one is not touched"


def test_a_missing_file_adds_nothing(tmp_path: Path):
    assert Catalog.load(tmp_path / "models.toml").ids == bundled_catalog().ids


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("models = [", "models.toml"),
        ('[models."a:b"]\nwindow = 1', "a:b.*max_output"),
        ('[models."a:b"]\nwindow = 1\nmax_output = 1\nprise = 1', "a:b.*prise"),
        ("[models.nameless]\nwindow = 1", "provider:name"),
        ('[models."a:b"]\nfamily = "none"', "no family 'none'"),
    ],
)
def test_an_invalid_file_is_refused_with_the_location(tmp_path: Path, text: str, complaint: str):
    file = tmp_path / "models.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInput, match=complaint):
        Catalog.load(file)


def test_the_price_of_sonnet_5_changed_in_september_and_its_change_was_announced():
    package = Path(catalog_module.__file__).with_name("catalog.toml").read_text(encoding="utf-8")
    usage = Usage(input_tokens=1_000_000, output_tokens=1_000_000)
    costs: list[tuple[Decimal, str | None]] = []
    for month in (8, 9):
        made = Catalog(
            ("shipped", package), clock=lambda month=month: datetime(2026, month, 1, tzinfo=UTC)
        )
        later = made.next_price("claude-sonnet-5")
        costs.append((made.cost("claude-sonnet-5", usage), str(later[0]) if later else None))
    assert costs == [(Decimal(12), "2026-09-01"), (Decimal(18), None)]


def test_fable_5_has_the_published_facts():
    listing = bundled_catalog().listing(bundled_catalog().resolve("claude-fable-5"))
    assert (listing.window, listing.max_output, listing.min_cached_tokens) == (
        1_000_000,
        128_000,
        2048,
    )
    assert lookup("claude-fable-5").price.output == Decimal(50)
