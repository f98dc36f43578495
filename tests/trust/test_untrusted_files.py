"""Files of a clone that nobody has trusted cause nothing."""

from pathlib import Path

from tests.cli.conftest import environ, mainspring, place, upstream
from tests.cli.upstream import Upstream, call
from tests.fork_server import Run
from tests.written_files import write_file

__all__ = ["environ", "mainspring", "place", "upstream"]  # fixtures

MODELS = """
[aliases]
sonnet = "ollama:theirs"
[models."ollama:test"]
window = 100_000
price = { input = "0", output = "0", cache_read = "0", cache_write = "0" }
"""
PRICED = MODELS.replace('"0"', '"1000"').replace("theirs", "mine")


def test_models_and_prices_of_a_clone_count_only_when_somebody_has_trusted_them(
    mainspring: Run, upstream: Upstream, place: Path, environ: dict[str, str]
):
    write_file(Path(environ["HOME"]) / ".mainspring/models.toml", PRICED)
    file = write_file(place / ".mainspring/models.toml", MODELS)

    def is_free() -> bool:
        done = mainspring("run", "hello", "--max-cost", "0.001", **upstream.variables)
        assert done.returncode in (0, 4), done.stderr
        return done.returncode == 0

    def model_of(alias: str) -> str:
        mainspring("run", "hello", "--model", alias, **upstream.variables)
        return str(upstream.requests[-1]["model"])

    assert not is_free()
    assert model_of("sonnet") == "mine"
    warned = mainspring("models", "ls").stderr
    assert "nobody has trusted this file" in warned
    trusted = mainspring("policy", "trust")
    assert 'sonnet = "ollama:theirs"' in trusted.stdout
    assert is_free()
    assert model_of("sonnet") == "theirs"
    file.write_text(MODELS + "\n# changed")
    assert not is_free()
    file.write_text(MODELS)
    assert mainspring("policy", "untrust").returncode == 0
    assert not is_free()


def test_an_untrusted_folder_names_no_provider_that_the_user_did_not_choose(
    mainspring: Run, upstream: Upstream, place: Path
):
    others = {"OPENROUTER_BASE_URL": upstream.url, "OPENROUTER_API_KEY": "users-own"}
    variables = {**upstream.variables, **others}

    def models_of(text: str, subagent: str, *options: str) -> tuple[list[object], str]:
        write_file(place / "agent.yaml", text)
        file = "---\nname: helper\ndescription: Helps.\n" + subagent + "---\nHelp.\n"
        write_file(place / ".claude/agents/helper.md", file)
        upstream.requests.clear()
        asks = {"description": "help", "prompt": "Help.", "subagent_type": "helper"}
        upstream.answers[:] = [(call("agent", **asks),)]
        done = mainspring("run", "hello", "--mode", "bypassPermissions", *options, **variables)
        assert done.returncode == 0, done.stderr
        return [request["model"] for request in upstream.requests], done.stderr

    theirs = "model: openrouter:theirs/dear\n"
    models, warned = models_of(theirs, "model: openrouter:theirs/other\n")
    assert {*models} == {"test"}
    assert len(models) == 3  # the agent, its subagent, the agent
    assert "agent.yaml" in warned
    assert "openrouter:theirs/dear" in warned
    assert "helper.md" in warned
    assert "mainspring policy trust" in warned
    assert {*models_of("model: ollama:test, openrouter:theirs/dear\n", "")[0]} == {"test"}
    models, warned = models_of("model: ollama:big\n", "model: ollama:small\n")
    assert models == ["big", "small", "big"]
    assert "not trusted" not in warned
    assert models_of(theirs, "", "--model", "ollama:mine")[0] == ["mine"] * 3
    models_of(theirs, "model: openrouter:theirs/other\n")
    trusted = mainspring("policy", "trust", **variables).stdout
    assert "openrouter:theirs/dear" in trusted
    assert "openrouter:theirs/other" in trusted
    models, warned = models_of(theirs, "model: openrouter:theirs/other\n")
    assert models == ["theirs/dear", "theirs/other", "theirs/dear"]
    assert "not trusted" not in warned
    assert {*models_of("model: openrouter:theirs/more\n", "")[0]} == {"test"}
    assert mainspring("policy", "untrust", **variables).returncode == 0
    assert {*models_of(theirs, "model: openrouter:theirs/other\n")[0]} == {"test"}
