"""Settings, read once from the environment and the working folder; values are passed down."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

if sys.platform != "win32":
    import pwd

FOLDER = ".mainspring"
DATABASE = "mainspring.db"
VAULT = "vault.json"
VERSIONS = "versions"
"""The folder of an agent's earlier versions, below `FOLDER`."""
API_KEY_VARIABLES = (
    "ANTHROPIC_API_KEY",
    "OPENAI_API_KEY",
    "GEMINI_API_KEY",
    "OPENROUTER_API_KEY",
)
"""Variables that hold the key of a model provider."""
SEARCH_KEY_VARIABLES = ("BRAVE_API_KEY", "TAVILY_API_KEY")
"""Variables that hold the key of a search provider."""
ADDRESS_VARIABLES = tuple(
    f"{name}_BASE_URL"
    for name in (
        "ANTHROPIC",
        "OPENAI",
        "GEMINI",
        "OPENROUTER",
        "OLLAMA",
        "VLLM",
        "LMSTUDIO",
        "LLAMACPP",
    )
)
"""Variables that hold another address of a model provider."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    store: str = field(repr=False)
    """The path of a SQLite file, or a `postgresql://` URL. May contain a password: print
    `store_label`."""
    keys: frozenset[str]
    """Which of `API_KEY_VARIABLES` are set."""
    secrets: Mapping[str, str] = field(repr=False)
    """The values of the variables for keys and addresses of providers; only for their clients."""
    model: str | None
    """The value of MAINSPRING_MODEL."""
    folder: str
    """The working folder."""
    color: bool
    debug: bool
    read_api_key: Callable[[], Awaitable[str]] | None = field(default=None, repr=False)
    """Runs `apiKeyHelper` of the settings files, if the environment has no key."""
    environment: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """The whole environment. Hooks get only variables that locate things, and those allowed by
    name."""
    home: str = ""
    """The user's home folder, with settings for all projects."""
    vault: str = ""
    """The file of secrets; its key is in the same folder unless one of the next two fields is
    set."""
    vault_key: str | None = field(default=None, repr=False)
    """The value of MAINSPRING_VAULT_KEY."""
    vault_in_keyring: bool = False
    """Whether the key is in the system's keyring: MAINSPRING_VAULT_KEYRING."""
    workspaces: str = ""
    """The folder of the service's workspaces, one per session. Workers on several machines must
    share it."""
    admin_key: str | None = field(default=None, repr=False)
    """The value of MAINSPRING_ADMIN_KEY: the first key of the service, if it has none yet."""
    service_user: str | None = None
    """The value of MAINSPRING_USER: the user that `serve` and `worker` become when root starts
    them."""
    allow_root: bool = False
    """Whether `serve` and `worker` may run as root: MAINSPRING_ALLOW_ROOT."""
    container_is_boundary: bool = False
    """Whether the operator declares that the container around this process may isolate programs:
    MAINSPRING_CONTAINER_IS_BOUNDARY."""

    is_light: bool = False
    """Whether the terminal's background is bright: MAINSPRING_THEME, or what the terminal
    reports."""
    is_for_screen_reader: bool = False
    """Whether nothing on the terminal is redrawn: MAINSPRING_SCREEN_READER."""
    has_notices: bool = True
    """Whether the terminal rings and shows a notice when a long run ends or waits:
    MAINSPRING_NOTICES."""
    model_retry_seconds: str | None = None
    """The value of MAINSPRING_MODEL_RETRY_SECONDS: how long to wait for a model that does not
    answer."""
    user: str = ""
    """The login name of the user who runs this process."""

    @property
    def store_label(self) -> str:
        """The store without its password, for display."""
        return without_password(self.store) if is_postgres(self.store) else self.store


CONTAINER_IS_BOUNDARY = "MAINSPRING_CONTAINER_IS_BOUNDARY"


def read_settings(
    *,
    store: str | None = None,
    debug: bool = False,
    environ: Mapping[str, str] = os.environ,
    folder: Path | None = None,
) -> Settings:
    """Values from the command line first, then the environment, then defaults."""
    working_folder = folder or Path.cwd()
    store_path = _store_path(store or environ.get("MAINSPRING_STORE") or "", working_folder)
    return Settings(
        store=store_path,
        keys=frozenset(name for name in API_KEY_VARIABLES if environ.get(name)),
        secrets={
            name: environ[name]
            for name in (*API_KEY_VARIABLES, *SEARCH_KEY_VARIABLES, *ADDRESS_VARIABLES)
            if environ.get(name)
        },
        model=environ.get("MAINSPRING_MODEL") or None,
        folder=str(working_folder),
        color=not environ.get("NO_COLOR"),
        is_light=_is_light(environ),
        debug=debug or environ.get("MAINSPRING_DEBUG", "0") not in ("", "0"),
        environment=dict(environ),
        home=str(Path.home()),
        vault=environ.get("MAINSPRING_VAULT") or os.path.expanduser(f"~/{FOLDER}/{VAULT}"),
        vault_key=environ.get("MAINSPRING_VAULT_KEY") or None,
        vault_in_keyring=environ.get("MAINSPRING_VAULT_KEYRING", "0") not in ("", "0"),
        workspaces=environ.get("MAINSPRING_WORKSPACES") or _workspaces(store_path, working_folder),
        admin_key=environ.get("MAINSPRING_ADMIN_KEY") or None,
        user=_user(),
        service_user=environ.get("MAINSPRING_USER") or None,
        allow_root=environ.get("MAINSPRING_ALLOW_ROOT", "0") not in ("", "0"),
        is_for_screen_reader=environ.get("MAINSPRING_SCREEN_READER", "0") not in ("", "0"),
        has_notices=environ.get("MAINSPRING_NOTICES", "1") not in ("", "0"),
        model_retry_seconds=environ.get("MAINSPRING_MODEL_RETRY_SECONDS") or None,
        container_is_boundary=environ.get(CONTAINER_IS_BOUNDARY, "0") not in ("", "0"),
    )


def _is_light(environ: Mapping[str, str]) -> bool:
    """MAINSPRING_THEME decides; without it, the background that some terminals report."""
    theme = environ.get("MAINSPRING_THEME", "")
    return theme == "light" or (not theme and environ.get("COLORFGBG", "").endswith((";7", ";15")))


def _user() -> str:
    """Taken from the uid of the process if possible: variables can be set to anything."""
    if sys.platform == "win32" or not hasattr(os, "getuid"):
        return os.environ.get("USERNAME", "")
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def settings_of_user(settings: Settings, name: str, home: str) -> Settings:
    """The settings after this process has become another user, with that user's home."""
    os.environ.update({"HOME": home, "USER": name, "LOGNAME": name})
    return read_settings(store=settings.store, debug=settings.debug, folder=Path(settings.folder))


def is_postgres(store: str) -> bool:
    return store.startswith(("postgresql://", "postgres://"))


def without_password(url: str) -> str:
    """The URL for display: a password may be before the host or among the parameters."""
    parts = urlsplit(url)
    login, at, host = parts.netloc.rpartition("@")
    user, colon, _ = login.partition(":")
    parameters = [item for item in parts.query.split("&") if "pass" not in item.lower()]
    return urlunsplit(
        parts._replace(netloc=f"{user}{colon and ':***'}{at}{host}", query="&".join(parameters))
    )


def _store_path(store: str, working_folder: Path) -> str:
    if not store:
        return str(_home_of(working_folder) / DATABASE)
    return store if "://" in store else str(working_folder / Path(store).expanduser())


def _workspaces(store: str, working_folder: Path) -> str:
    """In the folder of the store, if that is a file."""
    parent = working_folder / FOLDER if "://" in store else Path(store).parent
    return str(parent / "workspaces")


def _home_of(working_folder: Path) -> Path:
    """The nearest `.mainspring` at or above the working folder; above, only one that the user owns.

    Anybody could create a folder in /tmp and read the logs that others then write there."""
    for folder in (working_folder, *working_folder.parents):
        home = folder / FOLDER
        is_there = _has_store_files(home) if folder == working_folder else _has_our_log(home)
        if is_there:
            return home
    return working_folder / FOLDER


def _has_store_files(home: Path) -> bool:
    """A folder that contains only an agent's versions is not a store: sessions in other folders
    may run the agent and have their own."""
    return os.path.isdir(home) and os.listdir(home) != [VERSIONS]


def _has_our_log(home: Path) -> bool:
    """A folder with settings only, such as the one in the user's home, is not the store of projects
    below it."""
    return (home / DATABASE).is_file() and _is_ours(home)


def _is_ours(home: Path) -> bool:
    if not hasattr(os, "getuid"):  # Windows, where anybody may add a folder to the root of a disk
        return home.is_relative_to(Path.home())
    return home.stat().st_uid == os.getuid()
