"""A program in a real sandbox: the proxy is its only way out, and it never sees a secret."""

from pathlib import Path

import anyio
from tests.abilities import require_network
from tests.network.internet import SECRET, internet, ok

from mainspring.capabilities.sandbox.backend import SandboxSpec, find_agent_interpreter
from mainspring.capabilities.sandbox.sandbox_client import KeeperSandbox
from mainspring.core.ports import ExecRequest

PROGRAM = """
import glob, os, socket, sys, urllib.request
key = os.environ["TOKEN"]
request = urllib.request.Request(sys.argv[1], headers={"Authorization": "Bearer " + key})
print(urllib.request.urlopen(request, timeout=60).read().decode())
try:
    urllib.request.urlopen(sys.argv[2], timeout=60)
except OSError as error:
    print("refused:", error)
try:
    socket.create_connection(("127.0.0.1", int(sys.argv[3])), 5)
except OSError:
    print("no way around")
for name in glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline"):
    try:
        print(open(name, "rb").read())
    except OSError:
        pass
for folder in ("/tmp", "/dev/shm", os.getcwd(), os.path.dirname(os.environ["SSL_CERT_FILE"])):
    for place, _, names in os.walk(folder):
        for name in names:
            print(name, open(os.path.join(place, name), errors="replace").read()[:300_000][-2000:])
print(dict(os.environ))
"""


async def test_a_sandboxed_program_uses_a_secret_without_seeing_it(tmp_path: Path):
    backend = require_network()
    for name in ("workspace", "share"):
        (tmp_path / name).mkdir()
    site = SandboxSpec(
        session_id="test",
        workspace=tmp_path / "workspace",
        state=tmp_path / "state",
        share=tmp_path / "share",
        network=True,
    )
    (site.workspace / "program.py").write_text(PROGRAM)
    bundle = tmp_path / "share" / "bundle.pem"
    async with internet() as net, KeeperSandbox(site, backend) as sandbox:
        net.secure.pieces = [ok(f"you sent {SECRET}".encode())]
        net.proxy.certificate_authority.write_bundle(bundle)
        listening = await sandbox.listener()
        assert listening is not None
        variables = net.proxy.environment(["TOKEN"], address="127.0.0.1:3128", bundle=bundle)
        urls = (f"https://api.test:{net.secure.port}/", f"https://evil.test:{net.secure.port}/")
        argv = (str(find_agent_interpreter().path), "program.py", *urls, str(net.port))
        async with anyio.create_task_group() as group:
            group.start_soon(net.proxy.serve, listening)
            with anyio.fail_after(60):
                ran = await sandbox.run(ExecRequest(key="k", argv=argv, env=variables))
            assert ran.status == 0, ran.stderr
            said = (ran.stdout.head + ran.stdout.tail).decode()
            assert f"you sent {net.placeholder}" in said
            assert "403" in said.partition("refused:")[2].partition("\n")[0]
            assert "no way around" in said
            assert SECRET not in said
            assert "PRIVATE KEY" not in said
            group.cancel_scope.cancel()
        assert f"Bearer {SECRET}".encode() in net.secure.asked[0]
        assert [fact.decision for fact in net.audit] == ["allow", "deny"]
