"""The command `mainspring-container`, with which the image of `deploy/` begins: `mainspring` as the
service's user, in a container that starts as root."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

from mainspring.capabilities.sandbox.backends.service_launcher import Server, run_server
from mainspring.capabilities.sandbox.backends.session_uids import claims_folder
from mainspring.capabilities.sandbox.sandbox_probes import has_user_namespaces
from mainspring.config import Settings, is_postgres, read_settings
from mainspring.core.errors import InvalidInput, SandboxFailed
from mainspring.edges.cli.operate.process_user import (
    PASSABLE,
    PRIVATE,
    ProcessUser,
    find_user,
    make_folder,
)

_NO_COMMANDS = (
    "this container starts as an ordinary user and allows no user namespaces, so agents can run no"
    " commands: start it as root, which this launcher gives up (no --user, no runAsUser);"
    " `Containers` in docs/operations.md lists what else helps"
)
_DEFAULT_USER, _DEFAULT_HOME = "mainspring", "/var/lib/mainspring"


def main() -> None:
    command = (sys.executable, "-m", "mainspring", *sys.argv[1:])
    if sys.platform != "linux" or os.geteuid() != 0:
        if not has_user_namespaces():
            sys.stderr.write(f"mainspring-container: {_NO_COMMANDS}\n")
        os.execv(command[0], command)  # the operator has chosen a user
    settings = read_settings()
    try:
        user = find_user(settings.service_user or _DEFAULT_USER, home=_DEFAULT_HOME)
    except InvalidInput as error:
        sys.exit(f"mainspring-container: {error}: name one in MAINSPRING_USER")
    server = Server(
        command=command,
        environment={
            **settings.environment,
            "HOME": user.home,
            "USER": user.name,
            "LOGNAME": user.name,
        },
        uid=user.uid,
        gid=user.gid,
        groups=user.groups,
        folders=_own_folders(settings, user),
    )
    sys.exit(run_server(server))


def _own_folders(settings: Settings, user: ProcessUser) -> tuple[Path, ...]:
    """Those that the server may change; missing ones are made for its user."""
    variables = settings.environment
    folders = {Path(user.home): PRIVATE, Path(settings.workspaces): PASSABLE}
    if not is_postgres(settings.store):
        folders[Path(settings.store).parent] = PRIVATE
    if vault := variables.get("MAINSPRING_VAULT"):
        folders[Path(vault).parent] = PRIVATE
    for folder, mode in folders.items():
        make_folder(folder, user, mode)
    places = (settings.folder, variables.get("TMPDIR") or settings.folder)
    with suppress(SandboxFailed):  # then the server says so when a session needs it
        folders[claims_folder()] = PRIVATE
    return (*folders, *(Path(place) for place in places if place != "/"))
