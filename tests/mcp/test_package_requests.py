"""What `npx` and `uvx` commands of real configurations load."""

from pathlib import Path

import pytest
from tests.row_checks import for_each

from mainspring.capabilities.mcp.programs.package_cache import find_toolchain
from mainspring.capabilities.mcp.programs.package_request import package_request
from mainspring.capabilities.network.addresses import resolve_allowed
from mainspring.capabilities.network.rules import parse_rules
from mainspring.core.errors import NetworkRefused


@for_each(
    ("command", "installer", "packages", "program", "args"),
    [
        ("npx -y @acme/notes /data", "npm", ("@acme/notes",), None, ("/data",)),
        ("npx notes@1.2.3", "npm", ("notes@1.2.3",), None, ()),
        ("npx --yes --package=@acme/notes run -y", "npm", ("@acme/notes",), "run", ("-y",)),
        ("/usr/bin/npx -p a -p b@^2 go", "npm", ("a", "b@^2"), "go", ()),
        ("npm exec -- notes --x", "npm", ("notes",), None, ("--x",)),
        (
            "uvx mcp-server-git --repository .",
            "uv",
            ("mcp-server-git",),
            "mcp-server-git",
            ("--repository", "."),
        ),
        ("uvx acme-notes@1.0", "uv", ("acme-notes==1.0",), "acme-notes", ()),
        ("uvx acme-notes@latest", "uv", ("acme-notes",), "acme-notes", ()),
        ("uvx --from acme[cli]>=1,<2 notes", "uv", ("acme[cli]>=1,<2",), "notes", ()),
        ("uv tool run --with extra --python 3.12 notes", "uv", ("notes", "extra"), "notes", ()),
    ],
)
def test_npx_and_uvx_commands_are_parsed(
    command: str, installer: str, packages: tuple[str, ...], program: str | None,
    args: tuple[str, ...],
) -> None:  # fmt: skip
    first, *rest = command.split()
    request = package_request(first, rest)
    assert request is not None
    assert (request.installer, request.packages) == (installer, packages)
    assert (request.program, request.args) == (program, args)


@for_each(
    "command",
    [
        "node server.js",
        "npx",
        "npx -y",
        "npx ./local",
        "npx ../up",
        "npx git+https://x/y",
        "npx https://x/y.tgz",
        "npx -c 'rm -rf x'",
        "npx --registry=http://x notes",
        "npx a;b",
        "npx -p ok ../../bin/sh",
        "uvx --from git+https://x/y notes",
        "uvx ./local",
        "uvx --index-url http://x notes",
        "uvx --from ok ../sh",
        "uvx notes@",
        "npm install notes",
        "uv run notes",
        "uvx --python ../py notes",
        "npx -p",
        "uvx --from",
    ],
)
def test_other_commands_run_unchanged(command: str) -> None:
    first, *rest = command.split()
    assert package_request(first, rest) is None


@pytest.mark.parametrize("host", ["packages.example.com", "10.1.2.3"])
async def test_a_registry_may_be_at_any_address_but_those_of_a_platform(host: str):
    environment = {"UV_DEFAULT_INDEX": f"https://{host}:8443/simple"}
    python, home = Path("/usr/bin/python3"), Path("/root")
    toolchain = find_toolchain(environment, python, ("/usr",), home=home)
    rules = parse_rules(toolchain.networking)
    besides = rules.addresses(host, 8443, "https")
    for address in ("93.184.216.34", "10.1.2.3", "100.64.0.9", "198.18.0.5", "203.0.113.80"):
        assert await resolve_allowed(host, lambda _, to=address: _at(to), besides=besides)
    for address in ("169.254.169.254", "168.63.129.16", "0.0.0.0", "224.0.0.1"):
        with pytest.raises(NetworkRefused):
            await resolve_allowed(host, lambda _, to=address: _at(to), besides=besides)


async def _at(address: str) -> list[str]:
    return [address]
