"""The errors that users see: message, cause and fix of each, in one table.

An error raised from an entry carries its message. The command line shows `fix`; in Python the
traceback shows `in_python` as notes. `make errors-page` writes `docs/errors.md` from this table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from msgspec import Struct


class _Explained(Protocol):
    """An error that an entry explains: one of `core/errors.py`, which is above this layer."""

    entry: ErrorEntry | None
    fix: tuple[str, ...]
    fix_in_python: tuple[str, ...]

    def add_note(self, note: str, /) -> None: ...


E = TypeVar("E", bound=_Explained)


class ErrorEntry(Struct, frozen=True, kw_only=True):
    """One error. The raising code fills in the words in braces."""

    message: str
    """What is wrong, and why."""
    cause: str
    """Why it happens; only `docs/errors.md` shows it."""
    fix: tuple[str, ...]
    """How to fix it at the command line."""
    in_python: tuple[str, ...] = ()
    """How to fix it in Python, if that differs."""

    def error(self, kind: Callable[[str], E], /, **values: object) -> E:
        """An error of this kind with the entry's message and fixes."""
        return self.explain(kind(self.message.format(**values)), **values)

    def explain(self, error: E, /, **values: object) -> E:
        """Add the fixes to an error and return it."""
        error.entry = self
        error.fix = tuple(entry.format(**values) for entry in self.fix)
        error.fix_in_python = tuple(entry.format(**values) for entry in self.in_python or self.fix)
        for item in error.fix_in_python:
            error.add_note(item)
        return error


def with_hints(error: E, *hints: str) -> E:
    """Add hints to an error that has no entry."""
    for hint in hints:
        error.add_note(hint)
    return error


NO_KEY = ErrorEntry(
    message="{model}: {variable} is not set",
    cause="The model's provider needs an API key, and its environment variable is empty.",
    fix=(
        "export {variable}=... with an API key from the provider",
        "without a key: --model ollama:NAME for a local model, or --model scripted:demo for a"
        " demonstration",
    ),
    in_python=(
        "set {variable} in the environment before open_runtime() or run(), or pass"
        " model=Scripted(...) to run()",
    ),
)
UNKNOWN_MODEL = ErrorEntry(
    message="unknown model {name!r}; {near}",
    cause="No alias or model in the catalogue has this name, and the name has no provider prefix.",
    fix=("`mainspring models ls` lists the models; .mainspring/models.toml adds others",),
)
NO_SCRIPT = ErrorEntry(
    message="{path}: there is no such script in {folder}",
    cause="`scripted:FILE` names a file in the agent's folder, and that file does not exist.",
    fix=("name a file in the agent's folder, or use --model scripted:demo",),
    in_python=("name a file in the agent's folder, or register your own model: models.put()",),
)
UNKNOWN_PROVIDER = ErrorEntry(
    message="{model}: unknown provider {provider!r}; the providers are {providers}",
    cause="The part of the model name before the colon is not a provider that Mainspring knows.",
    fix=("write provider:name with one of these; openrouter: offers most other models",),
)
MODEL_FROM_PYTHON = ErrorEntry(
    message="session {session} used a model object from a Python program, {model!r}, which cannot"
    " be opened by name",
    cause="The session was started with `run(..., model=...)` or `runtime.models.put(...)`. The log"
    " stores only the model's name; the object ended with its program.",
    fix=(
        "continue with another model: --model NAME",
        "or continue in Python: runtime.models.put({model!r}, model), then runtime.resume(agent,"
        " {session!r})",
    ),
    in_python=("runtime.models.put({model!r}, model) before runtime.resume(agent, {session!r})",),
)
PRICE_EXPIRED = ErrorEntry(
    message="{model}: the catalogue price expired on {date}; displayed costs may be wrong",
    cause="The model's price was valid until a date that has passed; it may have changed.",
    fix=("update Mainspring, or set the current price in .mainspring/models.toml",),
)
PROVIDER_UNREACHABLE = ErrorEntry(
    message="{provider}: {what}",
    cause="The provider's address does not answer (`cannot connect to ...`): no network, a proxy"
    " that is not configured, a local server that is not running, or an unknown certificate"
    " authority.",
    fix=(
        "check the network; HTTPS_PROXY, NO_PROXY and SSL_CERT_FILE are honoured",
        "`mainspring models test NAME` sends a model a test request",
    ),
    in_python=("check the network; HTTPS_PROXY, NO_PROXY and SSL_CERT_FILE are honoured",),
)
KEY_REFUSED = ErrorEntry(
    message="{provider}: {what}",
    cause="The provider rejected the key (HTTP 401 or 403): it is wrong, revoked, or not valid for"
    " this model.",
    fix=("check the key in the environment; `mainspring models ls` names the variable",),
    in_python=("check the key in the environment of this process",),
)
MODEL_REFUSED = ErrorEntry(
    message="{provider}: {what}",
    cause="The provider has no such model (HTTP 404), or this account may not use it.",
    fix=("`mainspring models ls` lists the models; a local server must have the model loaded",),
)
NO_CREDIT = ErrorEntry(
    message="{provider}: {what}",
    cause="The account at the provider has no credit left (HTTP 402).",
    fix=("add credit at the provider, or choose another model with --model",),
    in_python=("add credit at the provider, or choose another model: Agent(model=...)",),
)
PROVIDER_BUSY = ErrorEntry(
    message="{provider}: {what}",
    cause="The provider is overloaded, failed, or limits this account's requests (HTTP 429, 500 and"
    " above). Mainspring has retried several times.",
    fix=("try again later, or give a second model as a fallback: --model sonnet,gpt",),
    in_python=('try again later, or give a fallback model: Agent(model="sonnet,gpt")',),
)
PROMPT_TOO_LONG = ErrorEntry(
    message="{provider}: {what}",
    cause="The request is longer than the model's context window, even after compaction.",
    fix=("use a model with a larger context window, or start a new session",),
)
REQUEST_REFUSED = ErrorEntry(
    message="{provider}: {what}",
    cause="The provider does not understand the request, or rejects it. A retry does not help.",
    fix=("`mainspring models test NAME` sends the model a small request",),
    in_python=("send the model a small request to see whether it answers at all",),
)
SCRIPT_ENDED = ErrorEntry(
    message="{provider}: {what}",
    cause="A scripted model or a recording has no reply for this request.",
    fix=("send a prompt that the script covers, or choose another model with --model",),
    in_python=("give Scripted(...) another step, or `otherwise=`",),
)
ROOT_REFUSED = ErrorEntry(
    message="the service does not run as root: a program that escaped an agent's sandbox would"
    " control the whole machine",
    cause="`mainspring serve` or `mainspring worker` was started by root.",
    fix=(
        "start it as a dedicated user, or with --user NAME to switch to that user",
        "--allow-root (MAINSPRING_ALLOW_ROOT=1) if this is a dedicated container",
    ),
    in_python=("start the program as a dedicated user, or pass user=NAME or allow_root=True",),
)
NO_SANDBOX = ErrorEntry(
    message="{reasons}",
    cause="No sandbox works on this machine, so no command is run.",
    fix=(
        "`mainspring doctor` shows what this machine can do; docs/sandbox.md says how to change it",
        "--dangerously-run-unsandboxed runs commands with all your permissions",
    ),
    in_python=("follow the message, or give the agent no tools that run programs",),
)
CONTAINER_TENANTS = ErrorEntry(
    message="the container is declared to be the boundary of agents' programs, so there can be only"
    " one tenant, and not {tenant!r}",
    cause="MAINSPRING_CONTAINER_IS_BOUNDARY is set. Programs of different tenants would share the"
    " container, in which only owners and modes of files keep them apart.",
    fix=(
        "give each tenant a service in a container of its own, with a store of its own",
        "or give the container what a sandbox needs, and remove the variable:"
        " docs/operations.md, `Containers`",
    ),
    in_python=("run the service without MAINSPRING_CONTAINER_IS_BOUNDARY",),
)
SESSION_HELD = ErrorEntry(
    message="session {session} is held by {owner} for another {seconds:.1f} s",
    cause="Another process is running the session, and only one may at a time. If that process has"
    " died, its lease expires and the session becomes available.",
    fix=("`mainspring log follow` shows its progress, `mainspring sessions cancel` interrupts it",),
    in_python=("wait until it has finished, or interrupt it: session.interrupt()",),
)
UNKNOWN_SESSION = ErrorEntry(
    message="no session {session}",
    cause="The store has no session whose id is or starts with this. Each folder has its own store"
    " unless --store names one.",
    fix=("`mainspring log ls` lists the sessions",),
    in_python=("await runtime.log.sessions() lists them; open_runtime(store=...) names a store",),
)
FOREIGN_SESSION = ErrorEntry(
    message="session {session} was not written by this installation, so it cannot go on by itself",
    cause="Each session is bound to the installation that wrote it, by a key that is not in the"
    " store. This one came with a repository, a copied store, an imported log or a backup, an"
    " earlier version wrote it, or the key is another one. Its rules, hooks, mode, workspace"
    " and waiting messages have no effect; it can be read.",
    fix=(
        "`mainspring adopt {session}` shows what it brings, asks, and continues its conversation"
        " under the rules of this folder",
        "`mainspring adopt --all` accepts everything in the store as yours",
    ),
    in_python=("`mainspring adopt {session}` shows what it brings, and asks",),
)
FOREIGN_RECORD = ErrorEntry(
    message="the {kind} {id} in the store was not written by this installation",
    cause="Keys, deployments, webhooks, grants and all other records are bound to the installation"
    " that wrote them, by a key that is not in the store. This store came with a repository, is a"
    " copy or a restored backup, an earlier version wrote it, or the key is another one.",
    fix=(
        "`mainspring adopt --all` shows what the store brings, asks, and accepts it as yours",
        "if another user serves this store, use it as that user: sudo -u NAME mainspring ...",
        "workers and servers of one installation need the same key: MAINSPRING_VAULT_KEY",
    ),
    in_python=("`mainspring adopt` shows what the store brings, and how to accept it",),
)
NO_STORE = ErrorEntry(
    message="there are no sessions yet: {store} does not exist",
    cause="No session has run here. The first session in a folder creates its store.",
    fix=("--store or MAINSPRING_STORE names another store",),
    in_python=("open_runtime(store=...) names another store",),
)
NO_LAST_SESSION = ErrorEntry(
    message="there is no conversation of yours here",
    cause="`last` is the last session that you began with run or chat, and whose time is not in the"
    " future. Evals, dreams, workflows and sessions of others do not count.",
    fix=("`mainspring sessions ls --all` lists all sessions: name one by its id",),
    in_python=("await runtime.log.sessions() lists all sessions",),
)
SESSION_HAS_FORKS = ErrorEntry(
    message="session {session} was forked into {forks}; delete those first",
    cause="Sessions were forked from this one, and its events are their history.",
    fix=("--cascade deletes the forks as well",),
    in_python=("delete the forks first",),
)
LIMIT_REACHED = ErrorEntry(
    message="{reason}: {detail}",
    cause="The session has used up its turns, time, tokens or money, as limited by agent.yaml or by"
    " --max-turns and --max-cost.",
    fix=(
        "raise the limit and continue: --resume {session} with a higher --max-cost or --max-turns",
    ),
    in_python=("continue with an Agent that has higher limits: Agent(limits=Limits(...))",),
)
UNTRUSTED_FOLDER = ErrorEntry(
    message="{file}: this folder is not trusted, so only its deny rules apply; `mainspring policy"
    " trust` applies all of it",
    cause="A project's settings file grants permissions, and nobody has confirmed having read it,"
    " or it has changed since.",
    fix=("read the file, then `mainspring policy trust`",),
)
BAD_AGENT_FILE = ErrorEntry(
    message="{finding}",
    cause="agent.yaml has an unknown field or an invalid value.",
    fix=("`mainspring validate` lists every problem with its file and line",),
    in_python=("docs/agents.md describes every field",),
)
NO_AGENT_FOLDER = ErrorEntry(
    message="{folder}: there is no such folder",
    cause="--agent names a folder that does not exist, or a session's agent was moved.",
    fix=("name a folder that exists; `mainspring init` creates a new one",),
    in_python=("give the path of a folder that exists",),
)
NO_WORKSPACE = ErrorEntry(
    message="{folder}: the workspace folder does not exist",
    cause="The folder that the agent should work in does not exist.",
    fix=("create it, or name another with --workspace DIR",),
    in_python=("create it, or pass another as RunOptions(workspace=...)",),
)
NOT_A_PROJECT = ErrorEntry(
    message="{folder} is not a project folder: an agent could change everything in it",
    cause="The folder is your home folder or one above it: an agent there could change all your"
    " files.",
    fix=("change to your project's folder, or name it with --workspace",),
    in_python=("change to your project's folder, or name it: RunOptions(workspace=...)",),
)
PORT_IN_USE = ErrorEntry(
    message="{host}:{port}: the port is in use by another program",
    cause="Another program listens on this port, perhaps another `mainspring serve`.",
    fix=("stop that program, or use another port: --port {other}; --port 0 picks a free one",),
    in_python=("use another port; 0 picks a free one",),
)
STORE_LOCKED = ErrorEntry(
    message="{path}: another process kept it locked for {seconds:.0f} s",
    cause="A backup, a migration or another program has locked the SQLite file.",
    fix=("try again; `mainspring doctor` checks the store",),
    in_python=("try again when the other process has finished",),
)
STORE_NEWER = ErrorEntry(
    message="{place}: written by a newer Mainspring (schema {current}; this version supports"
    " {newest}); upgrade Mainspring; nothing was changed",
    cause="A later version has used the store and changed its tables.",
    fix=(
        "upgrade Mainspring, or downgrade the store with the newer version: `mainspring migrate"
        " --to {newest}`",
        "--store or MAINSPRING_STORE names another store",
    ),
    in_python=("upgrade Mainspring, or name another store: open_runtime(store=...)",),
)
STORE_FOREIGN = ErrorEntry(
    message="{path}: this SQLite database does not belong to Mainspring",
    cause="--store or MAINSPRING_STORE names another program's database.",
    fix=("--store or MAINSPRING_STORE names another store",),
    in_python=("name another store: open_runtime(store=...)",),
)
STORE_UNWRITABLE = ErrorEntry(
    message="{path}: {what} cannot be written ({error})",
    cause="The file or its folder belongs to another user, or the disk is mounted read-only.",
    fix=("`mainspring doctor` shows owners and permissions",),
    in_python=("change its owner, or name another store: open_runtime(store=...)",),
)
STORE_NOT_CLOSED = ErrorEntry(
    message="{path}: the disk is read-only, and the newest entries are in {path}-wal",
    cause="The process that wrote the store was killed. SQLite cannot read them on such a disk.",
    fix=("copy the store's folder to a disk that can be written, and name it with --store",),
    in_python=("copy its folder to a disk that can be written: open_runtime(store=...)",),
)
STORE_NOT_MIGRATED = ErrorEntry(
    message="{path}: the disk is read-only, and the store is of another version of Mainspring",
    cause="A store of an older version is migrated when it is opened, which changes the file.",
    fix=("copy the store's folder to a disk that can be written, and name it with --store",),
    in_python=("copy its folder to a disk that can be written: open_runtime(store=...)",),
)
STORE_FULL = ErrorEntry(
    message="{path}: the disk is full; nothing was written ({error})",
    cause="The store's disk has no free space. Everything acknowledged earlier is still there.",
    fix=("free some space, then continue; `mainspring sessions rm` deletes sessions",),
    in_python=("free some space, then continue",),
)
STORE_DAMAGED = ErrorEntry(
    message="{path}: the file is damaged ({error}); see docs/log.md, 'When a file is damaged'",
    cause="The disk failed, or another program has written to the file.",
    fix=("copy the file before anything else; docs/log.md explains how to recover its contents",),
)
NO_POSTGRES_DRIVER = ErrorEntry(
    message="the PostgreSQL driver is not installed",
    cause="A PostgreSQL store needs an extra that the default installation does not include.",
    fix=("pip install 'mainspring[postgres]'",),
)
NOTHING_ASKED = ErrorEntry(
    message="no prompt: standard input is empty",
    cause="`mainspring run` received no prompt, neither as an argument nor on standard input.",
    fix=("mainspring run 'your prompt'",),
)
