import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from tests.abilities import require_bubblewrap
from tests.sandbox.conftest import limited, sh

from mainspring.capabilities.sandbox.backend import MIB, Backend, SandboxLimits, SandboxSpec
from mainspring.capabilities.sandbox.keeper_process.execution import HeadTailBuffer
from mainspring.capabilities.sandbox.sandbox_client import KeeperSandbox
from mainspring.capabilities.sandbox.wire import Frames, frame, pack, unpack
from mainspring.core.ports import ExecRequest, ExecResult

TIGHT = SandboxLimits(
    memory_bytes=128 * MIB,
    processes=40,
    file_bytes=8 * MIB,
    open_files=64,
    disk_bytes=24 * MIB,
    tmp_bytes=4 * MIB,
    output_bytes=2 * MIB,
    cpu_seconds=1,
)
TAKE = "import sys; block = bytearray(b'x') * (int(sys.argv[1]) << 20); input()"


async def run_limited(
    site: SandboxSpec,
    backend: Backend,
    script: str,
    wall_seconds: float = 60,
    limits: SandboxLimits = TIGHT,
) -> ExecResult:
    async with KeeperSandbox(limited(site, limits), backend) as sandbox:
        ran = await sh(sandbox, script, wall_seconds=wall_seconds)
        after = await sh(sandbox, "ps ax -o comm=; echo fine")
    assert after.stdout.head.split()[-1] == b"fine"
    if backend.name == "bubblewrap":  # elsewhere programs see no process, or those of others too
        assert len(after.stdout.head.split()) == 4  # agent, sh, ps: nothing of it is left
    return ran


async def test_wall_time_is_limited(site: SandboxSpec, backend: Backend):
    ran = await run_limited(site, backend, "echo so far; sleep 60 & sleep 60", wall_seconds=0.3)
    assert (ran.status, ran.stop_cause, ran.stdout.head) == (137, "time", b"so far\n")
    assert 300 <= ran.milliseconds < 60_000


async def test_cpu_time_is_limited(site: SandboxSpec, backend: Backend):
    assert (await run_limited(site, backend, "while :; do :; done")).status in (137, 152)


async def test_memory_of_one_process_is_limited(site: SandboxSpec, backend: Backend):
    ran = await run_limited(site, backend, f'python3 -c "{TAKE}" 256')
    assert ran.status == 1
    assert b"MemoryError" in ran.stderr.head


async def test_memory_of_all_processes_together_is_limited(site: SandboxSpec, backend: Backend):
    take = f'python3 -c "{TAKE}" 60'
    ran = await run_limited(
        site,
        backend,
        f"mkfifo wait; for n in 1 2 3 4; do {take} < wait & done; : > wait; exec 3<>wait; wait",
    )
    assert ran.stop_cause == "memory"


async def test_shared_memory_counts_once(site: SandboxSpec, backend: Backend):
    require_bubblewrap("without namespaces, the keeper may not see which memory is shared")
    fork = "import os, time; block = bytearray(b'x') * (60 << 20)\n"
    fork += "for n in range(4): os.fork() or (time.sleep(0.4), os._exit(0))\n"
    fork += "for n in range(4): os.wait()"
    ran = await run_limited(site, backend, f'python3 -c "{fork}"')
    assert (ran.status, ran.stop_cause) == (0, None)


async def test_the_number_of_processes_is_limited(site: SandboxSpec, backend: Backend):
    fork = "import os, time\nfor count in range(400):\n"
    fork += "    try: os.fork() or (time.sleep(60), os._exit(0))\n"
    fork += "    except OSError: break\nprint(count)"
    # without namespaces, what forks share counts as memory of each
    enough = structs.replace(TIGHT, memory_bytes=2048 * MIB)
    ran = await run_limited(site, backend, f'python3 -c "{fork}"', limits=enough)
    # the kernel refuses the next process, or the keeper sees too many and ends the program
    assert ran.stop_cause == "processes" or 0 < int(ran.stdout.head) < TIGHT.processes


async def test_the_size_of_a_file_is_limited(site: SandboxSpec, backend: Backend):
    await run_limited(site, backend, "head -c 64M /dev/zero > big")
    assert (site.workspace / "big").stat().st_size == TIGHT.file_bytes


async def test_the_number_of_open_files_is_limited(site: SandboxSpec, backend: Backend):
    ran = await run_limited(site, backend, "ulimit -n; ulimit -c; ulimit -Hn")
    assert ran.stdout.head.split() == [b"64", b"0", b"64"]


@pytest.mark.usefixtures("bubblewrap")
async def test_temporary_files_are_limited(site: SandboxSpec, backend: Backend):
    fill = (
        "head -c 6M /dev/zero > /tmp/big; head -c 40M /dev/zero > /dev/shm/big; stat -c %s /tmp/big"
    )
    ran = await run_limited(site, backend, fill)
    assert int(ran.stdout.head) <= TIGHT.tmp_bytes
    assert b"No space left" in ran.stderr.head


@pytest.mark.parametrize(
    "fill",
    [
        "n=0; while :; do n=$((n+1)); head -c 512k /dev/zero > f$n; done",
        'for n in {3..60}; do eval "exec $n<>x"; rm x; head -c 1M /dev/zero >&$n; done; sleep 9',
    ],
    ids=["in many files", "in files without a name"],
)
async def test_growth_of_the_workspace_is_limited(site: SandboxSpec, backend: Backend, fill: str):
    if "rm x" in fill:
        require_bubblewrap("without namespaces, files without a name are not counted")
    async with KeeperSandbox(limited(site, TIGHT), backend) as sandbox:
        ran = await sandbox.run(ExecRequest(key="k", argv=("bash", "-c", fill), wall_seconds=20))
    assert ran.stop_cause == "disk"


async def test_output_is_limited(site: SandboxSpec, backend: Backend):
    ran = await run_limited(site, backend, "yes")
    assert ran.stop_cause == "output"
    assert ran.stdout.size > TIGHT.output_bytes


async def test_the_beginning_and_the_end_of_long_output_are_kept(sandbox: KeeperSandbox):
    ran = await sandbox.run(ExecRequest(key="k", argv=("seq", "100000"), max_bytes=100))
    assert ran.stdout.head.startswith(b"1\n2\n3\n")
    assert ran.stdout.tail.endswith(b"99999\n100000\n")
    assert len(ran.stdout.head) == len(ran.stdout.tail) == 50
    assert ran.stdout.left_out == ran.stdout.size - 100


@given(st.lists(st.binary(max_size=300)), st.integers(0, 400))
def test_a_head_tail_buffer_keeps_both_ends(pieces: list[bytes], max_bytes: int):
    tape = HeadTailBuffer(max_bytes)
    for piece in pieces:
        tape.add(piece)
    whole, half = b"".join(pieces), max_bytes // 2
    head, tail, size = tape.fields()
    assert int(size) == len(whole)
    assert head == whole[:half]
    assert tail == whole[max(half, len(whole) - half) :]


@given(st.lists(st.lists(st.binary(max_size=40), max_size=5)), st.integers(1, 50))
def test_messages_are_framed_regardless_of_chunking(messages: list[list[bytes]], size: int):
    sent = b"".join(frame(*message) for message in messages)
    frames = Frames()
    heard = [m for at in range(0, len(sent), size) for m in frames.feed(sent[at : at + size])]
    assert heard == messages
    assert [unpack(pack(message)) for message in messages] == messages
