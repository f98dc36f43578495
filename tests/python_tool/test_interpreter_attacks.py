"""Programs that want out of the interpreter, or to take it down. None may succeed."""

import os
import socket
from collections.abc import AsyncGenerator, Generator
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from mainspring.capabilities.monty.interpreter import Interpreter, InterpreterLimits
from mainspring.capabilities.workspace.folder_workspace import FolderWorkspace

CANARY = "canary-5f1e"
LIMITS = InterpreterLimits(
    seconds=0.5, memory_bytes=20_000_000, sleep_seconds=0.2, output_bytes=20_000
)

READS = (
    "open('{secret}').read()",
    "open('../secret').read()",
    "open('link').read()",
    "open('{secret}', 'rb').read()",
    "open('/proc/self/environ').read()",
    "open('/proc/1/environ').read()",
    "open('/etc/passwd').read()",
    "from pathlib import Path\nPath('{secret}').read_text()",
    "from pathlib import Path\nPath('../secret').read_bytes()",
    "from pathlib import Path\n(Path('.') / '..' / 'secret').resolve().read_text()",
    "from pathlib import Path\n[p.read_text() for p in Path('..').iterdir()]",
    "from pathlib import Path\n[p for p in Path('/').rglob('*')]",
    "from pathlib import Path\nPath.home()",
    "import os\nos.listdir('/')",
    "import os\nos.listdir('..')",
    "import os\nos.environ['CANARY']",
    "import os\nos.environ.get('CANARY')",
    "import os\nos.getenv('CANARY')",
    "import os\nos.open('{secret}', 0)",
    "import os\nlist(os.walk('/'))",
    "import os\nos.readlink('link')",
    "import os\nos.chdir('..')\nopen('secret').read()",
    "import os\nos.stat('{secret}')",
    "open(0).read()",
    "open(3).read()",
    "open(b'{secret}').read()",
    "import io\nio.open('{secret}').read()",
    "import sys\nsys.modules['os'].environ",
    "import linecache\nlinecache.getlines('{secret}')",
)
EFFECTS = (
    "open('{out}', 'w').write('x')",
    "open('made', 'w').write('x')",
    "open('inside', 'a').write('x')",
    "open('inside', 'r+').write('x')",
    "from pathlib import Path\nPath('{out}').write_text('x')",
    "from pathlib import Path\nPath('made').touch()",
    "from pathlib import Path\nPath('made').mkdir()",
    "from pathlib import Path\nPath('inside').unlink()",
    "from pathlib import Path\nPath('inside').rename('made')",
    "from pathlib import Path\nPath('made').symlink_to('{secret}')",
    "import os\nos.remove('inside')",
    "import os\nos.rename('inside', 'made')",
    "import os\nos.mkdir('made')",
    "import os\nos.system('touch {out}')",
    "import os\nos.popen('touch {out}').read()",
    "import os\nos.fork()",
    "import os\nos.execv('/bin/touch', ['touch', '{out}'])",
    "import os\nos.kill(os.getppid(), 9)",
    "import subprocess\nsubprocess.run(['touch', '{out}'])",
    "import asyncio\nasyncio.create_subprocess_shell('touch {out}')",
    "import ctypes\nctypes.CDLL(None).system(b'touch {out}')",
    "import socket\nsocket.create_connection(('127.0.0.1', {port}))",
    "import urllib.request\nurllib.request.urlopen('http://127.0.0.1:{port}')",
    "import asyncio\nawait asyncio.open_connection('127.0.0.1', {port})",
    "import http.client\nhttp.client.HTTPConnection('127.0.0.1', {port}).request('GET', '/')",
    "import multiprocessing\nmultiprocessing.Process(target=print).start()",
    "import threading\nthreading.Thread(target=print).start()",
    "import importlib\nimportlib.import_module('subprocess').run(['touch', '{out}'])",
    "__import__('os').system('touch {out}')",
    "eval(\"__import__('os').system('touch {out}')\")",
    "exec(\"import subprocess; subprocess.run(['touch', '{out}'])\")",
    "import pickle\npickle.loads(b\"cos\\nsystem\\n(S'touch {out}'\\ntR.\")",
    "import sys\nsys.exit(3)",
    "raise SystemExit",
    "raise KeyboardInterrupt",
    "quit()",
)
WALKS = (
    "().__class__.__base__.__subclasses__()",
    "''.__class__.__mro__[1].__subclasses__()",
    "(lambda: 0).__globals__['__builtins__']",
    "(lambda: 0).__code__.replace(co_code=b'')",
    "'{{0.__class__.__init__.__globals__}}'.format(open)",
    "'{{0.__self__}}'.format(print)",
    "f'{{open.__globals__}}'",
    "getattr(getattr((), '__cl' + 'ass__'), '__base__')",
    "type('X', (object,), {{}})().__reduce_ex__(2)",
    "try:\n    1 / 0\nexcept Exception as e:\n    e.__traceback__.tb_frame.f_back.f_globals",
    "async def f(): pass\nf().cr_frame.f_back",
    "print.__self__.__import__('os')",
    "globals()['__builtins__']['__import__']('os').environ",
    "vars(__builtins__)",
    "import json\njson.codecs.builtins.open('{secret}').read()",
    "import typing\ntyping.sys.modules['os'].environ",
    "import re\nre.enum.sys.modules",
    "class A:\n    def __getattr__(self, n): return open\nA().x('{secret}').read()",
)
FLOODS = (
    "while True: pass",
    "def f(): return f()\nf()",
    "f = lambda x: f(x)\nf(1)",
    "[0] * 10**9",
    "'a' * 10**10",
    "b'a' * 10**10",
    "2 ** 10**9",
    "10**10**10",
    "x = []\nwhile True: x.append('a' * 1000)",
    "x = {{}}\nfor i in range(10**9): x[i] = i",
    "x = 'a'\nwhile True: x += x",
    "x = []\nx.append(x)\nrepr(x)",
    "x = []\nfor i in range(100000): x = [x]\nx",
    "while True: print('a' * 1000)",
    "print('a' * 10**7)",
    "import time\ntime.sleep(10**6)",
    "import time\nwhile True: time.sleep(0.1)",
    "import asyncio\nawait asyncio.sleep(10**6)",
    "import asyncio\nawait asyncio.gather(*[asyncio.sleep(100) for _ in range(10000)])",
    "import re\nre.match('(a+)+$', 'a' * 60 + 'b')",
    "import re\nre.match('(a|aa)+$', 'a' * 200 + 'b')",
    "sorted(range(10**8))",
    "sum(range(10**12))",
    "'%0999999999d' % 1",
    "'{{:>999999999}}'.format(1)",
    "f'{{1:0999999999d}}'",
    "'a'.ljust(10**10)",
    "int('1' * 10**6)",
    "str(10**100000)",
    "(" * 50000,
    "-" * 90000 + "1",
    "[" * 20000 + "]" * 20000,
    "not " * 20000 + "True",
    "'a' " * 20000,
    "x" + ".x" * 40000,
    "lambda: " * 20000 + "1",
    "import itertools\nlist(itertools.product(range(100), repeat=9))",
    "import itertools\nfor x in itertools.count(): pass",
    "import math\nmath.factorial(10**7)",
    "import hashlib\nhashlib.pbkdf2_hmac('sha256', b'a', b'b', 10**9)",
    "import json\njson.loads('[' * 10**5)",
    "import random\nrandom.getrandbits(10**10)",
    "\x00\x01\udcff",
)


@dataclass
class AttackField:
    folder: Path
    listener: socket.socket

    def armed(self, snippet: str) -> str:
        if "{" not in snippet:
            return snippet
        return snippet.format(
            secret=self.folder / "secret",
            out=self.folder / "out",
            port=self.listener.getsockname()[1],
        )

    def is_untouched(self) -> bool:
        try:
            self.listener.accept()
        except BlockingIOError:
            names = sorted(path.name for path in self.folder.iterdir())
            inside = sorted(path.name for path in (self.folder / "ws").iterdir())
            content = (self.folder / "ws" / "inside").read_text()
            return (names, inside, content) == (["secret", "ws"], ["inside", "link"], "mine")
        return False


@pytest.fixture(scope="module")
def field(tmp_path_factory: pytest.TempPathFactory) -> Generator[AttackField]:
    folder = tmp_path_factory.mktemp("field")
    (folder / "secret").write_text(CANARY)
    (folder / "ws").mkdir()
    (folder / "ws" / "inside").write_text("mine")
    (folder / "ws" / "link").symlink_to(folder / "secret")
    with pytest.MonkeyPatch.context() as patch, socket.create_server(("127.0.0.1", 0)) as listener:
        patch.setenv("CANARY", CANARY)
        listener.setblocking(False)
        yield AttackField(folder, listener)


@pytest.fixture(scope="module")
async def interpreter() -> AsyncGenerator[Interpreter]:
    async with Interpreter(limits=LIMITS) as made:
        yield made


@pytest.mark.parametrize("snippet", READS + WALKS)
async def test_no_program_reads_anything_of_the_host(
    interpreter: Interpreter, field: AttackField, snippet: str
):
    with anyio.fail_after(60):
        finished = await interpreter.run(field.armed(snippet), FolderWorkspace(field.folder / "ws"))
    shown = finished.output + finished.value + finished.message
    lines = [line for line in shown.splitlines() if "secret" not in line]  # the program's own
    assert CANARY not in shown
    assert "root:" not in shown
    assert not any(os.sep + "usr" in line for line in lines)
    assert finished.run_end != "crashed"
    assert field.is_untouched()


@pytest.mark.parametrize("snippet", EFFECTS)
async def test_no_program_changes_anything_on_the_host(
    interpreter: Interpreter, field: AttackField, snippet: str
):
    with anyio.fail_after(60):
        finished = await interpreter.run(field.armed(snippet), FolderWorkspace(field.folder / "ws"))
    assert finished.run_end != "done"
    assert field.is_untouched()


@pytest.mark.parametrize("snippet", FLOODS, ids=lambda snippet: ascii(snippet[:30]))
async def test_no_program_exceeds_its_limits(
    interpreter: Interpreter, field: AttackField, snippet: str
):
    with anyio.fail_after(60):
        finished = await interpreter.run(field.armed(snippet), FolderWorkspace(field.folder / "ws"))
        assert len(finished.output) <= LIMITS.output_bytes
        assert len(finished.value) + len(finished.message) <= 60_000
        assert (await interpreter.run("1 + 1")).value == "2"


def test_there_are_at_least_120_attacks():
    assert len({*READS, *EFFECTS, *WALKS, *FLOODS}) >= 120
