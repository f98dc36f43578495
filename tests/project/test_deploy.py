"""What is in deploy/ cannot be run here; that it fits the code can be told."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import typer
import yaml

import mainspring
from mainspring import config
from mainspring.edges.api.routes.operate.health import HEALTHZ, METRICS, READYZ
from mainspring.edges.cli.app import LazyGroup, app
from mainspring.files.session_owner import CAPABILITIES_FOR_UIDS

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
MANIFESTS: list[dict[str, Any]] = [
    manifest
    for path in sorted(KUBERNETES.glob("*.yaml"))
    for manifest in yaml.safe_load_all(path.read_text(encoding="utf-8"))
]
PODS: dict[str, dict[str, Any]] = {
    item["metadata"]["name"]: item["spec"]["template"]["spec"]
    for item in MANIFESTS
    if item["kind"] == "Deployment"
}
COMMANDS = cast("LazyGroup", typer.main.get_command(app))
OURS = f"mainspring:{mainspring.__version__}"
API, OPERATIONS = 8700, 9700


def containers() -> dict[str, dict[str, Any]]:
    return {item["name"]: item for pod in PODS.values() for item in pod["containers"]}


def command_lines() -> Iterator[tuple[str, list[str]]]:
    yield "Dockerfile", json.loads(re.findall(r"^CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)[-1])
    for name in ("api", "worker"):
        yield f"compose {name}", SERVICES[name]["command"]
        yield f"kubernetes {name}", containers()[name]["args"]


LINES = dict(command_lines())


@pytest.mark.parametrize("where", LINES)
def test_every_command_line_is_accepted_by_mainspring(where: str):
    name, *arguments = LINES[where]
    COMMANDS.load(name).make_context(name, list(arguments))


@pytest.mark.parametrize("where", LINES)
def test_ports_are_the_same_everywhere(where: str):
    line = LINES[where]
    if line[0] == "serve":
        assert line[line.index("--port") + 1] == str(API)
    if "--metrics" in line:
        assert line[line.index("--metrics") + 1] == f"0.0.0.0:{OPERATIONS}"


def variables() -> Iterator[str]:
    yield from re.findall(r"\b(MAINSPRING_\w+)=", DOCKERFILE)
    for service in SERVICES.values():
        yield from service.get("environment", {})
    for container in containers().values():
        yield from (item["name"] for item in container["env"])
    for path in (DEPLOY / "env.example", KUBERNETES / "secret.example.env"):
        yield from re.findall(r"^(\w+)=", path.read_text(encoding="utf-8"), re.MULTILINE)


def test_every_variable_is_read_by_a_program():
    read = (ROOT / "src/mainspring/config.py").read_text(encoding="utf-8")
    ours = {
        *re.findall(r'"(MAINSPRING_\w+)"', read),
        *config.API_KEY_VARIABLES,
        "MAINSPRING_LOG_LEVEL",
    }
    theirs = {"POSTGRES_USER", "POSTGRES_DB", "POSTGRES_PASSWORD"}
    assert set(variables()) - ours - theirs == set()


def test_no_secret_is_in_the_files():
    for path in (DEPLOY / "env.example", KUBERNETES / "secret.example.env"):
        given = re.findall(r"^(\w+)=(.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
        assert [name for name, value in given if "PASSWORD" not in value] == []
    for service in SERVICES.values():
        for name, value in service.get("environment", {}).items():
            if re.search("KEY|PASSWORD|STORE", name):
                assert "${" in value


def images() -> Iterator[str]:
    yield from re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    yield from (item["image"] for item in SERVICES.values())
    yield from (container["image"] for container in containers().values())


@pytest.mark.parametrize("image", sorted(set(images())))
def test_every_image_has_a_fixed_tag_and_no_host(image: str):
    name, _, tag = image.partition(":")
    assert re.match(r"\d", tag), image
    assert "/" not in name
    assert name != "mainspring" or image == OURS


def test_kustomize_and_the_dockerfile_name_the_current_version():
    [kustomization] = [item for item in MANIFESTS if item["kind"] == "Kustomization"]
    assert kustomization["images"] == [{"name": "mainspring", "newTag": mainspring.__version__}]
    assert f"-t {OURS} " in DOCKERFILE
    named = {*kustomization["resources"], "kustomization.yaml"}
    assert named == {path.name for path in KUBERNETES.glob("*.yaml")}


def test_no_server_of_ours_runs_as_root():
    """The image begins as root, with the launcher, which makes the server another user."""
    assert re.findall(r"^USER (.*)$", DOCKERFILE, re.MULTILINE) == []
    assert 'ENTRYPOINT ["mainspring-container"]' in DOCKERFILE
    assert "MAINSPRING_USER=mainspring" in DOCKERFILE
    assert "--uid 10001 --gid 10001" in DOCKERFILE
    for pod in PODS.values():
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] == 10001
        for container in pod["containers"]:
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["readOnlyRootFilesystem"] is True
            assert context["capabilities"] == {"drop": ["ALL"]}
    for name in ("api", "worker"):
        assert SERVICES[name]["cap_drop"] == ["ALL"]
        assert SERVICES[name]["security_opt"] == ["no-new-privileges:true"]
        assert "privileged" not in SERVICES[name]
    assert SERVICES["api"]["user"] == "10001:10001"
    needed = sorted(name.upper() for name in CAPABILITIES_FOR_UIDS)
    assert sorted(SERVICES["worker"]["cap_add"]) == needed


def probed_address(container: dict[str, Any], probe: str) -> tuple[str, int]:
    ports = {item["name"]: item["containerPort"] for item in container["ports"]}
    get = container[probe]["httpGet"]
    return get["path"], ports[get["port"]]


@pytest.mark.parametrize(("name", "port"), [("api", API), ("worker", OPERATIONS)])
def test_probes_use_existing_endpoints(name: str, port: int):
    container = containers()[name]
    assert (
        probed_address(container, "livenessProbe")
        == probed_address(container, "startupProbe")
        == (HEALTHZ, port)
    )
    assert probed_address(container, "readinessProbe") == (READYZ, port)
    assert f"http://127.0.0.1:{port}{READYZ}" in SERVICES[name]["healthcheck"]["test"][-1]
    assert f"http://127.0.0.1:{API}{HEALTHZ}" in DOCKERFILE


def test_metrics_are_scraped_at_the_right_address():
    for item in MANIFESTS:
        if item["kind"] == "Deployment":
            notes = item["spec"]["template"]["metadata"]["annotations"]
            assert notes["prometheus.io/path"] == METRICS
            assert notes["prometheus.io/port"] == str(OPERATIONS)


@pytest.mark.parametrize("name", ["api", "worker"])
def test_grace_periods_exceed_the_drain_time(name: str):
    line = LINES[f"kubernetes {name}"]
    drain = int(line[line.index("--drain-seconds") + 1])
    assert PODS[f"mainspring-{name}"]["terminationGracePeriodSeconds"] >= drain + 15
    line = LINES[f"compose {name}"]
    drain = int(line[line.index("--drain-seconds") + 1])
    assert int(SERVICES[name]["stop_grace_period"].removesuffix("s")) >= drain + 10


def test_every_selector_and_claim_has_its_target():
    labels = [
        e["spec"]["template"]["metadata"]["labels"] for e in MANIFESTS if e["kind"] == "Deployment"
    ]
    for item in MANIFESTS:
        spec = item.get("spec", {})
        selector: dict[str, Any] = spec.get("podSelector") or spec.get("selector") or {}
        wanted = selector.get("matchLabels", selector)
        assert not wanted or wanted in labels, item["metadata"]["name"]
        if item["kind"] == "HorizontalPodAutoscaler":
            assert spec["scaleTargetRef"]["name"] in PODS
    claims = {item["metadata"]["name"] for item in MANIFESTS if "Claim" in item["kind"]}
    for pod in PODS.values():
        volumes = {item["name"]: item for item in pod["volumes"]}
        for mount in pod["containers"][0]["volumeMounts"]:
            volume = volumes[mount["name"]]
            assert volume.get("persistentVolumeClaim", {}).get("claimName") in {None, *claims}


def test_workers_share_their_workspaces():
    [place] = {
        re.findall(r"MAINSPRING_WORKSPACES=(\S+)", DOCKERFILE)[0],
        SERVICES["worker"]["environment"]["MAINSPRING_WORKSPACES"],
        *(
            container["value"]
            for container in containers()["worker"]["env"]
            if container["name"] == "MAINSPRING_WORKSPACES"
        ),
    }
    assert f"workspaces:{place}" in SERVICES["worker"]["volumes"]
    mounts = {c["name"]: c["mountPath"] for c in containers()["worker"]["volumeMounts"]}
    assert mounts["workspaces"] == place


def test_files_copied_into_the_image_exist_and_packages_are_pinned():
    for source in re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE):
        assert [name for name in source.split() if not (ROOT / name).exists()] == []
    for lock in re.findall(r"-r (\S+\.txt)", DOCKERFILE):
        text = (ROOT / lock).read_text(encoding="utf-8")
        assert re.findall(r"^\S+==\S+[^\\]*$", text, re.MULTILINE) == []
        assert re.findall(r"://|index-url|find-links|(?:^|\s)/\S+|@ ", text) == []
    assert len(re.findall(r"pip install (?!--require-hashes|--no-deps)", DOCKERFILE)) == 0


def pinned_packages(path: Path) -> set[str]:
    return set(re.findall(r"^(\S+==\S+)", path.read_text(encoding="utf-8"), re.MULTILINE))


def test_the_image_has_the_tested_versions():
    tested = pinned_packages(ROOT / "requirements/dev.txt")
    assert (
        pinned_packages(DEPLOY / "requirements.txt") | pinned_packages(DEPLOY / "build.txt")
        <= tested
    )
    assert pinned_packages(ROOT / "requirements/runtime.txt") <= pinned_packages(
        DEPLOY / "requirements.txt"
    )
