"""Attempts to speak with anything outside. Only loopback listeners of our own are spoken to."""

from tests.sandbox.attacks.attack import Attack, heard, says_so

NETWORK = (
    # connect to a listener on the host's loopback
    Attack(
        "tcp",
        heard,
        python="""
with socket.create_connection(("127.0.0.1", int(E["TCP"])), 2) as far: print(far.recv(99))
""",
        harmless=True,
    ),
    # the same without any program
    Attack("tcp-by-bash", heard, bash='exec 9<> "/dev/tcp/127.0.0.1/$TCP"; cat <&9', harmless=True),
    # the same by 0.0.0.0 and by a mapped IPv6 address
    Attack(
        "tcp-by-any-address",
        heard,
        python="""
port = int(E["TCP"])
each(lambda: socket.create_connection(("0.0.0.0", port), 2),
     lambda: socket.create_connection(("::ffff:127.0.0.1", port), 2))
""",
        harmless=True,
    ),
    # connect by IPv6
    Attack("tcp-v6", heard, python='socket.create_connection(("::1", int(E["TCP6"])), 2)'),
    # send with the first packet, past whatever watches connect()
    Attack(
        "tcp-fast-open",
        heard,
        python="""
far = socket.socket()
far.sendto(b"hello", 0x20000000, ("127.0.0.1", int(E["TCP"])))
""",
        harmless=True,
    ),
    # MPTCP and SCTP, which rules for TCP do not cover
    Attack(
        "tcp-by-another-protocol",
        heard,
        python="""
for protocol in (262, 132):
    each(lambda: socket.socket(proto=protocol).connect(("127.0.0.1", int(E["TCP"]))))
""",
    ),
    # send a datagram to the host's loopback
    Attack(
        "udp",
        heard,
        python="""
socket.socket(type=socket.SOCK_DGRAM).sendto(b"hello", ("127.0.0.1", int(E["UDP"])))
""",
        harmless=True,
    ),
    # carry data off as a question to a resolver
    Attack(
        "dns",
        heard,
        python="""
question = bytes.fromhex("000101000001000000000000") + b"\\6secret\\4test\\0\\0\\1\\0\\1"
resolver = socket.socket(type=socket.SOCK_DGRAM)
resolver.connect(("127.0.0.1", int(E["UDP"])))
resolver.send(question)
""",
        harmless=True,
    ),
    # find a way to the cloud's credentials; connecting a UDP socket sends nothing
    Attack(
        "route-to-the-metadata-service",
        says_so,
        python="""
probe = socket.socket(type=socket.SOCK_DGRAM)
for address in ("169.254.169.254", "100.100.100.200", "10.0.0.1", "192.0.2.1"):
    each(lambda: (probe.connect((address, 80)), win()))
""",
    ),
    # open a port that the host can connect to
    Attack(
        "listen-for-the-host",
        heard,
        python="""
with socket.create_server(("127.0.0.1", int(E["FREE_PORT"]))) as mine:
    mine.settimeout(1.5); mine.accept()
""",
        harmless=True,
    ),
    # a socket of the host's in the file system
    Attack(
        "unix-socket",
        heard,
        python="""
far = socket.socket(socket.AF_UNIX); far.connect(E["UNIX"]); print(far.recv(99))
""",
        harmless=True,
    ),
    # the same by a link in the workspace
    Attack(
        "unix-socket-by-link",
        heard,
        python="""
os.symlink(E["UNIX"], "s"); far = socket.socket(socket.AF_UNIX); far.connect("s")
print(far.recv(99))
""",
        harmless=True,
    ),
    # a datagram socket of the host's in the file system
    Attack(
        "unix-datagram",
        heard,
        python="""
socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"hello", E["UNIX_DATAGRAM"])
""",
        harmless=True,
    ),
    # send from one end of a socket pair to an address of the host's
    Attack(
        "unix-datagram-by-pair",
        heard,
        python="""
mine, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
mine.sendto(b"hello", E["UNIX_DATAGRAM"])
""",
        harmless=True,
    ),
    # a socket of the host's that has no file
    Attack(
        "abstract-socket",
        heard,
        python="""
far = socket.socket(socket.AF_UNIX); far.connect("\\0" + E["ABSTRACT"]); print(far.recv(99))
""",
        harmless=True,
    ),
    # a socket to the hypervisor
    Attack("vsock", says_so, python="each(lambda: win_if(socket.socket(40, socket.SOCK_STREAM)))"),
    # AF_ALG, a large part of the kernel without any need
    Attack(
        "kernel-crypto",
        says_so,
        python="""
each(lambda: (socket.socket(38, socket.SOCK_SEQPACKET).bind(("hash", "sha256")), win()))
""",
    ),
    # read the wire
    Attack(
        "packet-socket",
        says_so,
        python="each(lambda: win_if(socket.socket(17, socket.SOCK_RAW, 0x300)))",
    ),
    # forge packets
    Attack(
        "raw-socket",
        says_so,
        python="""
each(lambda: win_if(socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)),
     lambda: win_if(socket.socket(socket.AF_INET6, socket.SOCK_RAW, 58)))
""",
    ),
    # any other family of sockets
    Attack(
        "odd-families",
        says_so,
        python="""
usual = {0, socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, 16}
for family in set(range(64)) - usual:
    for kind in (1, 2, 3, 5):
        each(lambda: win_if(socket.socket(family, kind)))
""",
    ),
    # what the machine is connected to
    Attack(
        "see-the-host's-interfaces",
        says_so,
        python='each(lambda: win_if({name for _, name in socket.if_nameindex()} - {"lo"}))',
    ),
    # bring an interface up, or make one
    Attack(
        "change-the-network",
        says_so,
        bash="ip link add dummy9 type dummy && ip link del dummy9 && echo $WIN",
    ),
)
