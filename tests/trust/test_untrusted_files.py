"""Files of a clone that nobody has trusted cause nothing."""

from pathlib import Path

from tests.cli.conftest import environ, mainspring, place, upstream
from tests.cli.upstream import Upstream
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
