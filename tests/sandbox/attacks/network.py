"""Attempts to speak with anything outside. Only loopback listeners of our own are spoken to."""

from tests.sandbox.attacks.attack import Attack, heard, says_so

NETWORK = (
    Attack(
        name="tcp",
        tries="connect to a listener on the host's loopback",
        python="""
with socket.create_connection(("127.0.0.1", int(E["TCP"])), 2) as far: print(far.recv(99))
""",
        won=heard,
        harmless=True,
    ),
    Attack(
        name="tcp-by-bash",
        tries="the same without any program",
        bash='exec 9<> "/dev/tcp/127.0.0.1/$TCP"; cat <&9',
        won=heard,
        harmless=True,
    ),
    Attack(
        name="tcp-by-any-address",
        tries="the same by 0.0.0.0 and by a mapped IPv6 address",
        python="""
port = int(E["TCP"])
each(lambda: socket.create_connection(("0.0.0.0", port), 2),
     lambda: socket.create_connection(("::ffff:127.0.0.1", port), 2))
""",
        won=heard,
        harmless=True,
    ),
    Attack(
        name="tcp-v6",
        tries="connect by IPv6",
        python='socket.create_connection(("::1", int(E["TCP6"])), 2)',
        won=heard,
    ),
    Attack(
        name="tcp-fast-open",
        tries="send with the first packet, past whatever watches connect()",
        python="""
far = socket.socket()
far.sendto(b"hello", 0x20000000, ("127.0.0.1", int(E["TCP"])))
""",
        won=heard,
        harmless=True,
    ),
    Attack(
        name="tcp-by-another-protocol",
        tries="MPTCP and SCTP, which rules for TCP do not cover",
        python="""
for protocol in (262, 132):
    each(lambda: socket.socket(proto=protocol).connect(("127.0.0.1", int(E["TCP"]))))
""",
        won=heard,
    ),
    Attack(
        name="udp",
        tries="send a datagram to the host's loopback",
        python="""
socket.socket(type=socket.SOCK_DGRAM).sendto(b"hello", ("127.0.0.1", int(E["UDP"])))
""",
        won=heard,
        harmless=True,
    ),
    Attack(
        name="dns",
        tries="carry data off as a question to a resolver",
        python="""
question = bytes.fromhex("000101000001000000000000") + b"\\6secret\\4test\\0\\0\\1\\0\\1"
resolver = socket.socket(type=socket.SOCK_DGRAM)
resolver.connect(("127.0.0.1", int(E["UDP"])))
resolver.send(question)
""",
        won=heard,
        harmless=True,
    ),
    Attack(
        name="route-to-the-metadata-service",
        tries="find a way to the cloud's credentials; connecting a UDP socket sends nothing",
        python="""
probe = socket.socket(type=socket.SOCK_DGRAM)
for address in ("169.254.169.254", "100.100.100.200", "10.0.0.1", "192.0.2.1"):
    each(lambda: (probe.connect((address, 80)), win()))
""",
        won=says_so,
    ),
    Attack(
        name="listen-for-the-host",
        tries="open a port that the host can connect to",
        python="""
with socket.create_server(("127.0.0.1", int(E["FREE_PORT"]))) as mine:
    mine.settimeout(1.5); mine.accept()
""",
        won=heard,
        harmless=True,
    ),
    Attack(
        name="unix-socket",
        tries="a socket of the host's in the file system",
        python="""
far = socket.socket(socket.AF_UNIX); far.connect(E["UNIX"]); print(far.recv(99))
""",
        won=heard,
        harmless=True,
    ),
    Attack(
        name="unix-socket-by-link",
        tries="the same by a link in the workspace",
        python="""
os.symlink(E["UNIX"], "s"); far = socket.socket(socket.AF_UNIX); far.connect("s")
print(far.recv(99))
""",
        won=heard,
        harmless=True,
    ),
    Attack(
        name="unix-datagram",
        tries="a datagram socket of the host's in the file system",
        python="""
socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"hello", E["UNIX_DATAGRAM"])
""",
        won=heard,
        harmless=True,
    ),
    Attack(
        name="unix-datagram-by-pair",
        tries="send from one end of a socket pair to an address of the host's",
        python="""
mine, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
mine.sendto(b"hello", E["UNIX_DATAGRAM"])
""",
        won=heard,
        harmless=True,
    ),
    Attack(
        name="abstract-socket",
        tries="a socket of the host's that has no file",
        python="""
far = socket.socket(socket.AF_UNIX); far.connect("\\0" + E["ABSTRACT"]); print(far.recv(99))
""",
        won=heard,
        harmless=True,
    ),
    Attack(
        name="vsock",
        tries="a socket to the hypervisor",
        python="each(lambda: win_if(socket.socket(40, socket.SOCK_STREAM)))",
        won=says_so,
    ),
    Attack(
        name="kernel-crypto",
        tries="AF_ALG, a large part of the kernel without any need",
        python="""
each(lambda: (socket.socket(38, socket.SOCK_SEQPACKET).bind(("hash", "sha256")), win()))
""",
        won=says_so,
    ),
    Attack(
        name="packet-socket",
        tries="read the wire",
        python="each(lambda: win_if(socket.socket(17, socket.SOCK_RAW, 0x300)))",
        won=says_so,
    ),
    Attack(
        name="raw-socket",
        tries="forge packets",
        python="""
each(lambda: win_if(socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)),
     lambda: win_if(socket.socket(socket.AF_INET6, socket.SOCK_RAW, 58)))
""",
        won=says_so,
    ),
    Attack(
        name="odd-families",
        tries="any other family of sockets",
        python="""
usual = {0, socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, 16}
for family in set(range(64)) - usual:
    for kind in (1, 2, 3, 5):
        each(lambda: win_if(socket.socket(family, kind)))
""",
        won=says_so,
    ),
    Attack(
        name="see-the-host's-interfaces",
        tries="what the machine is connected to",
        python='each(lambda: win_if({name for _, name in socket.if_nameindex()} - {"lo"}))',
        won=says_so,
    ),
    Attack(
        name="change-the-network",
        tries="bring an interface up, or make one",
        bash="ip link add dummy9 type dummy && ip link del dummy9 && echo $WIN",
        won=says_so,
    ),
)
