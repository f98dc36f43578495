"""The errors that people meet: message, cause and fix of each, in one table.

An error raised from an entry has its message. The command line shows its `fix`; a caller in Python
reads what to do there in the traceback. `docs/errors.md` is made from this table
(`python tools/errors_page.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from mainspring.core.errors import MainspringError

    E = TypeVar("E", bound=MainspringError)
else:
    E = TypeVar("E")


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorEntry:
    """One error. Words in braces are filled in where it is raised."""

    message: str
    """What is wrong, and why."""
    cause: str
    """Why it happens, for the page."""
    fix: tuple[str, ...]
    """What to do about it at the command line."""
    in_python: tuple[str, ...] = ()
    """What to do about it in Python, if that differs."""

    def error(self, kind: type[E], /, **values: object) -> E:
        """An error of this kind with the entry's message and what to do about it."""
        return self.explain(kind(self.message.format(**values)), **values)

    def explain(self, error: E, /, **values: object) -> E:
        """The same error, with what to do about it."""
        error.entry = self
        error.fix = tuple(entry.format(**values) for entry in self.fix)
        error.fix_in_python = tuple(entry.format(**values) for entry in self.in_python or self.fix)
        for item in error.fix_in_python:
            error.add_note(item)
        return error


NO_KEY = ErrorEntry(
    message="{model}: {variable} is not set",
    cause="The provider of the model needs a key, and the environment variable for it is empty.",
    fix=(
        "export {variable}=... with a key of the provider's",
        "without a key: --model ollama:NAME for a model on this machine, or --model scripted:demo"
        " for a demonstration",
    ),
    in_python=(
        "set {variable} in the environment before open_runtime() or run(), or pass"
        " model=Scripted(...) to run()",
    ),
)
UNKNOWN_MODEL = ErrorEntry(
    message="no model {name!r}; {near}",
    cause="No alias and no model of the catalogue has this name, and no provider stands before it.",
    fix=("`mainspring models ls` lists the models; .mainspring/models.toml adds others",),
)
NO_SCRIPT = ErrorEntry(
    message="{path}: there is no such script in {folder}",
    cause="`scripted:FILE` names a file in the agent's folder, and it is not there.",
    fix=("name a file of the agent's folder, or --model scripted:demo",),
    in_python=("name a file of the agent's folder, or put a model of your own: models.put()",),
)
UNKNOWN_PROVIDER = ErrorEntry(
    message="{model}: no provider {provider!r}; there are {providers}",
    cause="What stands before the colon of a model's name is not a provider that Mainspring knows.",
    fix=("write provider:name with one of these; openrouter: reaches most other models",),
)
MODEL_FROM_PYTHON = ErrorEntry(
    message="session {session} was run with a model that a Python program had made, {model!r}: it"
    " cannot be opened by name",
    cause="The session was begun with `run(..., model=...)` or `runtime.models.put(...)`. The log"
    " has the model's name; the object is gone with its program.",
    fix=(
        "go on with another model: --model NAME",
        "or go on in Python: runtime.models.put({model!r}, model), then runtime.resume(agent,"
        " {session!r})",
    ),
    in_python=("runtime.models.put({model!r}, model) before runtime.resume(agent, {session!r})",),
)
PRICE_EXPIRED = ErrorEntry(
    message="{model}: the price in the catalogue held until {date}; costs that are shown may be"
    " wrong",
    cause="The price of the model has an end that has passed: the provider may ask another by now.",
    fix=("update Mainspring, or write today's price into .mainspring/models.toml",),
)
PROVIDER_UNREACHABLE = ErrorEntry(
    message="{provider}: {what}",
    cause="The provider's address does not answer (`cannot connect to ...`): no network, a proxy"
    " that is not set, a local server that does not run, or another certificate authority.",
    fix=(
        "check the network; HTTPS_PROXY, NO_PROXY and SSL_CERT_FILE are honoured",
        "`mainspring models test NAME` asks a model",
    ),
    in_python=("check the network; HTTPS_PROXY, NO_PROXY and SSL_CERT_FILE are honoured",),
)
KEY_REFUSED = ErrorEntry(
    message="{provider}: {what}",
    cause="The provider does not accept the key (HTTP 401, 403): it is wrong, revoked, or not for"
    " this model.",
    fix=("check the key in the environment; `mainspring models ls` says which variable it is",),
    in_python=("check the key in the environment of this process",),
)
MODEL_REFUSED = ErrorEntry(
    message="{provider}: {what}",
    cause="The provider has no such model (HTTP 404), or not for this account.",
    fix=("`mainspring models ls` lists what is known; a local server must have the model loaded",),
)
NO_CREDIT = ErrorEntry(
    message="{provider}: {what}",
    cause="The account at the provider has no credit left (HTTP 402).",
    fix=("add credit at the provider, or name another model with --model",),
    in_python=("add credit at the provider, or name another model: Agent(model=...)",),
)
PROVIDER_BUSY = ErrorEntry(
    message="{provider}: {what}",
    cause="The provider is overloaded, failed, or limits how much this account may ask (HTTP 429,"
    " 500 and above). It was asked several times.",
    fix=("try again later, or give a second model that stands in: --model sonnet,gpt",),
    in_python=('try again later, or give a second model: Agent(model="sonnet,gpt")',),
)
PROMPT_TOO_LONG = ErrorEntry(
    message="{provider}: {what}",
    cause="What the model would be sent is longer than its window, after everything was shortened.",
    fix=("take a model with a larger window, or begin a new session",),
)
REQUEST_REFUSED = ErrorEntry(
    message="{provider}: {what}",
    cause="The provider does not understand the request, or refuses it. Asking again is no help.",
    fix=("`mainspring models test NAME` asks the model something small",),
    in_python=("ask the model something small to see whether it answers at all",),
)
SCRIPT_ENDED = ErrorEntry(
    message="{provider}: {what}",
    cause="A scripted model or a recording has no answer to what it was asked.",
    fix=("ask what the script is for, or name another model with --model",),
    in_python=("give Scripted(...) another step, or `otherwise=`",),
)
ROOT_REFUSED = ErrorEntry(
    message="the service does not run as root: an agent's program that got out of its sandbox would"
    " have the whole machine",
    cause="`mainspring serve` or `mainspring worker` was started by root.",
    fix=(
        "start it as a user of its own, or with --user NAME, which root becomes",
        "--allow-root (MAINSPRING_ALLOW_ROOT=1) if this is a container of its own",
    ),
    in_python=("start the program as a user of its own, or pass user=NAME or allow_root=True",),
)
NO_SANDBOX = ErrorEntry(
    message="{reasons}",
    cause="None of the sandboxes works on this machine, so no command is run.",
    fix=(
        "`mainspring doctor` shows what this machine can do; docs/sandbox.md says how to change it",
        "--dangerously-run-unsandboxed runs commands with all that you may do",
    ),
    in_python=("do what the message says, or give the agent no tools that run programs",),
)
SESSION_HELD = ErrorEntry(
    message="session {session} is held by {owner} for another {seconds:.1f} s",
    cause="Another process runs the session. One at a time may; a process that died is replaced"
    " when its lease ends.",
    fix=("`mainspring log follow` shows what it does, `mainspring sessions cancel` interrupts it",),
    in_python=("wait until it is done, or interrupt it: session.interrupt()",),
)
UNKNOWN_SESSION = ErrorEntry(
    message="no session {session}",
    cause="The store has no session with this id or part of an id. Each folder has a store of its"
    " own unless --store names one.",
    fix=("`mainspring log ls` lists the sessions",),
    in_python=("await runtime.log.sessions() lists them; open_runtime(store=...) names a store",),
)
NO_STORE = ErrorEntry(
    message="there are no sessions yet: {store} does not exist",
    cause="Nothing was run here. A store is made by the first session of a folder.",
    fix=("--store or MAINSPRING_STORE names another store",),
    in_python=("open_runtime(store=...) names another store",),
)
SESSION_HAS_FORKS = ErrorEntry(
    message="session {session} is the beginning of {forks}; delete those first",
    cause="Sessions were forked from this one, and its events are their history.",
    fix=("--cascade deletes those too",),
    in_python=("delete the forks first",),
)
LIMIT_REACHED = ErrorEntry(
    message="{reason}: {detail}",
    cause="The session has used up its turns, its time, its tokens or its money, by agent.yaml or"
    " by --max-turns and --max-cost.",
    fix=("raise it and go on: --resume {session} with a higher --max-cost or --max-turns",),
    in_python=("go on with an Agent of higher limits: Agent(limits=Limits(...))",),
)
UNTRUSTED_FOLDER = ErrorEntry(
    message="{file}: this folder is not trusted, so only what it forbids holds; `mainspring policy"
    " trust` lets all of it hold",
    cause="A settings file of a project gives permissions, and nobody has said that they have read"
    " it; or it has changed since.",
    fix=("read the file, then `mainspring policy trust`",),
)
BAD_AGENT_FILE = ErrorEntry(
    message="{finding}",
    cause="agent.yaml has a field or a value that is not understood.",
    fix=("`mainspring validate` shows all that is wrong, with file and line",),
    in_python=("docs/agents.md says what each field takes",),
)
NO_AGENT_FOLDER = ErrorEntry(
    message="{folder}: there is no such folder",
    cause="--agent names a folder that does not exist, or a session's agent was moved.",
    fix=("name the folder with --agent DIR; `mainspring init` begins a new one",),
    in_python=("give the path of a folder that exists",),
)
NO_WORKSPACE = ErrorEntry(
    message="{folder}: there is no such folder to work in",
    cause="The folder that the agent is to work in does not exist.",
    fix=("make it, or name another with --workspace DIR",),
    in_python=("make it, or give Wish(workspace=...) another",),
)
NOT_A_PROJECT = ErrorEntry(
    message="{folder} is not a project: an agent would have all of it",
    cause="The folder is your home folder or one above it: an agent there could change everything"
    " that is yours.",
    fix=("go to the folder to work in, or name it with --workspace",),
    in_python=("go to the folder to work in, or name it: Wish(workspace=...)",),
)
PORT_IN_USE = ErrorEntry(
    message="{host}:{port}: the port is in use by another program",
    cause="Another program listens there, perhaps another `mainspring serve`.",
    fix=("stop that one, or take another port: --port {other}; --port 0 takes any free one",),
    in_python=("take another port; 0 is any free one",),
)
STORE_LOCKED = ErrorEntry(
    message="{path}: another process kept it locked for {seconds:.0f} s",
    cause="A backup or a migration holds the SQLite file, or a program that is not ours.",
    fix=("try again; `mainspring doctor` looks closer",),
    in_python=("try again when the other process is done",),
)
STORE_NEWER = ErrorEntry(
    message="{place}: was written by a newer Mainspring (tables {current}, this one knows"
    " {newest}); upgrade Mainspring, nothing was changed",
    cause="The store was used with a later version, which has changed its tables.",
    fix=(
        "upgrade Mainspring, or let the newer one go back: `mainspring migrate --to {newest}`",
        "--store or MAINSPRING_STORE names another store",
    ),
    in_python=("upgrade Mainspring, or name another store: open_runtime(store=...)",),
)
STORE_FOREIGN = ErrorEntry(
    message="{path}: is a SQLite database, but not one of Mainspring's",
    cause="--store or MAINSPRING_STORE names a database of another program.",
    fix=("--store or MAINSPRING_STORE names another store",),
    in_python=("name another store: open_runtime(store=...)",),
)
STORE_UNWRITABLE = ErrorEntry(
    message="{path}: {what} cannot be written ({error})",
    cause="The file or its folder belongs to another user, or the disk is mounted read-only.",
    fix=("`mainspring doctor` says who may write where",),
    in_python=("change who owns it, or name another store: open_runtime(store=...)",),
)
STORE_FULL = ErrorEntry(
    message="{path}: the disk is full; nothing was written ({error})",
    cause="There is no room where the store is. What was acknowledged before is there.",
    fix=("make room, then go on; `mainspring sessions rm` deletes sessions",),
    in_python=("make room, then go on",),
)
STORE_DAMAGED = ErrorEntry(
    message="{path}: is damaged ({error}); see docs/log.md, 'When a file is damaged'",
    cause="The disk failed, or another program has written into the file.",
    fix=("copy the file before anything else; docs/log.md says how to save what is in it",),
)
NO_POSTGRES_DRIVER = ErrorEntry(
    message="the PostgreSQL driver is not installed",
    cause="A PostgreSQL store needs an extra that a plain installation does not have.",
    fix=("pip install 'mainspring[postgres]'",),
)
NOTHING_ASKED = ErrorEntry(
    message="nothing was asked: standard input is empty",
    cause="`mainspring run` was given no prompt and nothing was piped into it.",
    fix=("mainspring run 'what to do'",),
)
