"""The productions that command lines of real programs are made of: options, files, shapes.

Each has a name, so that it can be told which of them were reached.
"""

import json
from collections.abc import Sequence
from functools import cache

from tests.permissions.bash.help_options import OPTIONS_FILE, words

# What `--help` does not say, or says in a way of its own.
_MORE_OPTIONS = {
    "jq": "-f= --from-file= -L= --rawfile= --slurpfile= --arg= --argjson= --args --jsonargs -nR -rn"
    " --seq --stream --indent= --exit-status --raw-input --null-input --slurp --raw-output0 -j -a",
    "awk": "-f= -v= -F= --file= --assign= -W= --",
    "mawk": "-f= -v= -F= --file= --assign= -W= -Wexec= -Wdump -Winteractive",
    "gawk": "-f= -v= -F= -i= -l= -e= -E= -d? -o? -p? -D? -n -S -b -c -h -g --file= --source="
    " --include= --load= --exec= --dump-variables? --pretty-print? --profile? --debug? --sandbox",
    "find": "-name= -iname= -path= -type= -size= -newer= -anewer= -samefile= -maxdepth= -mindepth="
    " -regex= -print -print0 -printf= -ls -empty -delete -quit -prune -depth -fprint= -fprint0="
    " -fls= -files0-from= -exec= -ok= -execdir= -perm= -user= -mtime= -newermt= -L -H -P -O3 -D="
    " -not -o -a -true -false -xdev -readable -links= -lname= -fprintf=",
    "xxd": "-c= -g= -l= -s= -o= -n= -p -r -b -i -u -e -a -R=",
    "git": "-C= -c= --git-dir= --work-tree= --exec-path? --namespace= --no-pager -p --paginate"
    " --bare --literal-pathspecs --glob-pathspecs --no-optional-locks --config-env= --html-path",
    "git log": "-p -u -s -S= -G= -U= -O= -n= --stat --numstat --name-only --name-status --patch"
    " --oneline --graph --all --format= --pretty= --since= --author= --grep= --follow --output="
    " --ext-diff --textconv --no-textconv --show-signature --raw --word-diff --color-words? --cc"
    " -c -m -t --remerge-diff --pickaxe-all --reflog --walk-reflogs -g --stdin --reverse --binary"
    " --full-diff --submodule= --output-indicator-new= --dd --exit-code --check --summary -1 -2",
    "git show": "-p -s --stat --name-only --format= --pretty= --textconv --no-textconv --output="
    " --ext-diff --raw --oneline --patch --binary --cc --no-patch --numstat --shortstat",
    "git diff": "--output= --ext-diff --textconv --no-textconv --no-index --cached --staged -p -S="
    " -G= -O= -R --stat --numstat --name-only --name-status --quiet --exit-code --merge-base -U="
    " -W --word-diff? --raw --check --submodule? --ita-visible-in-index",
    "git cat-file": "-p -t -s -e --batch --batch-check --textconv --filters --path="
    " --batch-all-objects",
    "git rev-list": "--objects --all --stdin --format= --use-bitmap-index --disk-usage --filter=",
    "git stash": "list show apply pop drop -p --include-untracked",
    "git config": "--get= --list -l --get-all= --get-regexp= --file= -f= --blob= --show-origin",
    "ps": "aux -ef -e -f -o= -p= -u= --forest",
    "ls": "-l -a -A -R -d -h -t -S -1 -i -n -s -w= -I= -T=",
    "tar": "-t -f= -v -z -j -J -T= -X= -C= -I= -O -x -c --to-command= --files-from= tf tvf",
    "test": "-f= -e= -d= -s= -r= -nt= -ef=",
    "stat": "-c= -f -L -t --printf=",
}
OPERANDS = {
    "sed": ("p", "''", "s/a/b/", "1,2p", "$p", "w out", "r .env", "1e", "R id_rsa", "1r/dev/stdin"),
    "awk": ("1", "'{print}'", "'BEGIN{ARGV[1]=\".env\";ARGC=2}1'", "'{print $1}'", "/a/"),
    "jq": (".", "-n", "input", "inputs", "'import \"./creds\" as $d; $d'", "'$__loc__'", "env"),
    "find": (".", "src", "secrets", "x_dir"),
    "expr": ("1", "+", "2"),
    "seq": ("1", "3"),
    "test": ("a", "=", "b", "-a"),
    "tr": ("a-z", "A-Z"),
    "xargs": ("cat", "echo", "head", "-I{} cat {}", "-n1 wc", "-a x cat", "ls", "rev"),
    "date": ("+%s", "01010000"),
    "git config": ("user.name", "core.pager", "x.y", "z"),
    "git remote": ("-v", "show", "origin", "get-url"),
    "git stash": ("list", "show", "show -p", "stash@{0}"),
    "git submodule": ("status", "summary", "foreach ls"),
    "git worktree": ("list",),
    "git notes": ("list", "show"),
    "git reflog": ("show", "HEAD"),
    "git help": ("log",),
    "docker": ("ps", "images", "version"),
    "npm": ("ls", "list", "config list"),
    "pip3": ("list", "show pip", "freeze"),
    "systemctl": ("status", "list-units"),
    "dpkg": ("-l", "bash"),
    "apt": ("list",),
    "apt-cache": ("policy", "bash"),
    "tmux": ("ls",),
    "kubectl": ("version", "--client"),
    "ip": ("addr", "link", "route", "show"),
    "openssl": ("version", "x509", "-in", "rand 2", "dgst", "enc", "pkey"),
    "sqlite3": (":memory:", "'select 1'", "\"select readfile('.env')\"", "'.read .env'"),
    "python3": ("-m json.tool", "-V", "-c 1", "-m", "json.tool"),
    "perl": ("-v",),
    "node": ("-v",),
    "make": ("-n", "all"),
    "env": ("ls", "-i cat", "A=1 head", "-u A rev", "-S 'cat'"),
    "printf": ("%s", "'%s\\n'", "a"),
}
ALIKE = {"gawk": "awk", "mawk": "awk", "egrep": "grep", "fgrep": "grep"}
_BUILTINS = words(
    "cd pwd echo printf test [ type read mapfile true : command export local hash help"
)
PLAIN_FILES = words("README.md src/a.py x y a.txt b.txt n.txt data.csv package.json src x_dir sums")
ODD_FILES = words(
    "names0 script.sed script.awk script.jq Makefile nest bare . .. ./ - /dev/null /dev/stdin nope"
    " ../outside/private.txt ~/private.txt $HOME/private.txt ~+/README.md /etc/hostname @x src/"
    " out ./out evil.sh ./evil.sh json evil.xml evil.1 evil_source.sh a.gz a.zip a.tar"
    " x.xml x.yaml"
)
DENIED = words(
    ".env ./.env secrets/key secrets//key secrets/../.env src/../id_rsa id_rsa creds.json secrets"
    " secrets/db.json $PWD/.env ${PWD}/id_rsa .e[n]v .en? sec*/key s*/k* {.env,x} {secrets,src}/key"
    " '.env' \".env\" .e''nv .e\\nv $'.env' \"$(echo .env)\" $(echo id_rsa) `echo .env` ~+/.env"
    ' /proc/self/cwd/.env @.env $v ${v} "$v" ${v:-.env} ${z:-id_rsa} ${z-.env} "${z:=.env}"'
    ' *rsa* c*.json .??* * ./* ${v/x/y} "$PWD"/creds.json file://$PWD/.env nest/../.env'
    " /dev/fd/../cwd/secrets/key /proc/./self/cwd/id_rsa ~+/secrets/key src/deep/../../z"
    " ./././id_rsa pub pub_dir/key src/deep/../secrets/key src/deep/../.env out_dir/private.txt"
    " secrets/. secrets/./key $OLDPWD/.env"
)
GIT_WORDS = words(
    "HEAD HEAD~1 main other v1 HEAD:.env :.env :0:id_rsa v1:secrets/key HEAD:secrets HEAD^{tree}"
    " stash@{0} stash main..other HEAD:README.md -- @ @{-1} :/first :(top).env :!README.md"
    " :(exclude)x refs/heads/main origin HEAD~1..HEAD --all HEAD:./.env HEAD:*.env"
)
VALUES = words(
    "1 2 0 3,4 a foo . .* %s +%s %H '%an' always never auto json utf-8 size name , : '\\t' 10k"
    " 1M x=y user.name=z core.pager=./evil.sh d f '*.py' '*' ext4 posix full short all"
)
WRAPPERS = (
    "timeout 5",
    "timeout -s9 5",
    "timeout --signal=KILL 5",
    "nice",
    "nice -n 5",
    "nice -5",
    "env",
    "env -i",
    "env LC_ALL=C",
    "env -C secrets",
    "env --chdir=secrets",
    "env -u A",
    "stdbuf -oL",
    "stdbuf --output=0",
    "nohup",
    "command",
    "command -p",
    "builtin",
    "time",
    "time -p",
    "exec",
    "setsid",
    "ionice -c3",
    "chrt -b 0",
    "taskset 1",
    "LC_ALL=C",
    "TZ=UTC",
    "TZ=$PWD/.env",
    "COLUMNS=$v",
    "GIT_DIR=nest/.git",
    "LESSOPEN='|./evil.sh %s'",
    "IFS=,",
    "xargs",
    "xargs -0",
    "echo .env | xargs",
    "echo x | xargs -I{}",
    "printf '.env\\0' | xargs -0",
    "ls | xargs -n1",
    "cat x | xargs",
    "find . -maxdepth 1 -type f | xargs",
    "xargs -a x",
    "xargs --arg-file=x",
    "git ls-files | xargs",
    "!",
)
REDIRECTS = (
    "2>/dev/null",
    ">/dev/null",
    "2>&1",
    "< {word}",
    "<{word}",
    "0<{word}",
    "3<{word} <&3",
    "<<< {word}",
    '<<< "$(<{word})"',
    "> out",
    ">> out",
    ">| out",
    "&> out",
    "1<> {word}",
    "< <(cat {word})",
    "2> >(cat)",
    "<<E\n$(cat {word})\nE\n",
    "<<'E'\n.env\nid_rsa\nE\n",
    "<<E\n.env\nE\n",
    "<<-E\n\tREADME.md\n\tE\n",
)
SHAPES = (
    "{one}",
    "{one} | {two}",
    "{one} |& {two}",
    "{one} && {two}",
    "{one} || {two}",
    "{one}; {two}",
    "{one}\n{two}",
    "{one} & {two}",
    "( {one} )",
    "{{ {one}; }}",
    "v={word}; {one}",
    "v={word} && {one}",
    "for v in {word} {word2}; do {one}; done",
    "for v in *; do {one}; done",
    "for v in $(ls -A); do {one}; done",
    "ls -A | while read v; do {one}; done",
    "while read -r v; do {one}; done < x",
    "while read v; do {one}; break; done <<< {word}",
    "if {one}; then {two}; fi",
    "if {one}; then {two}; else {one}; fi",
    "case {word} in *) {one};; esac",
    "case a in b) {one};; a|c) {two};; esac",
    "echo $({one})",
    'echo "$({one})"',
    "echo `{one}`",
    "cat <({one})",
    "diff <({one}) <({two})",
    "f() {{ {one}; }}; f {word}",
    'f() {{ {one} "$1"; }}; f {word}',
    'set -- {word}; {one} "$1"',
    'set -- {word}; {one} "$@"',
    "cd {folder} && {one}",
    "cd {folder}; {one}",
    "cd {folder}\n{one}",
    "(cd {folder} && {one})",
    "pushd {folder} && {one}",
    "cd {folder} && cd - && {one}",
    "find . -maxdepth 1 -exec {one} {{}} +",
    "find {word} -exec {one} \\;",
    "bash -c '{one}'",
    "sh -c '{one}'",
    "eval {one}",
    "! {one}",
    "time {one}",
    "[ -n {word} ] && {one}",
    "[[ -f {word} ]] && {one}",
    "test -e {word} && {one}",
    "mapfile -t v < {word}; {one}",
    "read v < {word}; {one} $v",
    "v=$({one}); echo $v",
    "v=({word} {word2}); {one} ${{v[0]}}",
    'v=({word} {word2}); {one} "${{v[@]}}"',
    "declare v={word}; {one} $v",
    "printf -v v %s {word}; {one} $v",
    "{one} # {two}",
    "until {one}; do {two}; break; done",
    "echo {word} | {one}",
    "cat {word} | {one}",
    "select v in {word}; do {one}; break; done <<< 1",
    "coproc {one}; wait",
    "trap '{one}' EXIT",
    "{one} $(( 1 + 1 ))",
    "{{ {one}; }} < {word}",
    "( {one} ) < {word}",
    # arithmetic on a variable runs what is in it
    "v='x[$(./evil.sh)]'; {one} ${{HOME:0:v}}",
    "v='x[$(./evil.sh)]'; {one} ${{HOME:1+$v}}",
    "v='x[$(./evil.sh)]'; {one} $((v))",
    "v='x[$(./evil.sh)]'; {one} ${{a[v]}}",
    "v='x[$(./evil.sh)]'; [ $v -eq 1 ]; {one}",
    "v='x[$(./evil.sh)]'; [[ v -eq 1 ]]; {one}",
    "for RANDOM in 'x[$(./evil.sh)]'; do {one}; done",
    "read -r SECONDS <<< 'x[$(./evil.sh)]'; {one}",
    "while read -r v; do {one} ${{HOME:0:v}}; done <<< 'x[$(./evil.sh)]'",
    "v='$(./evil.sh)'; {one} ${{v@P}}",
)
FOLDERS = (
    "src",
    "secrets",
    "pub_dir",
    "src/deep",
    "src/deep/..",
    "out_dir",
    "nest",
    "bare",
    "x_dir",
    "..",
    "/",
    "~",
    "$PWD",
    '"$PWD"/secrets',
    ".",
    "s*",
)

EARLIER = (
    "cd src",
    "cd nest",
    "cd bare",
    "cd secrets",
    "cd src; cd ../secrets",
    "cd nest && cd ..",
    "pushd nest",
    "eval cd nest",
    "cd $(echo secrets)",
    "if cd nest; then :; fi",
    "for d in secrets; do cd $d; done",
)


@cache
def options() -> dict[str, tuple[str, ...]]:
    known: dict[str, list[str]] = json.loads(OPTIONS_FILE.read_text())
    for name, more in _MORE_OPTIONS.items():
        known[name] = [*known.get(name, []), *more.split()]
    for name in (*OPERANDS, *_BUILTINS):
        known.setdefault(name, [])
    return {name: tuple(dict.fromkeys(each)) for name, each in sorted(known.items())}


def spellings(option: str) -> tuple[str, ...]:
    is_long = option.startswith("--") and len(option) > 3
    if not option.startswith("-"):
        return ("plain",)
    if option.endswith(("=", "?")):
        return ("equals", "apart", "abbreviated") if is_long else ("apart", "attached", "bundled")
    return ("plain", "abbreviated") if is_long else ("plain", "bundled")


@cache
def productions() -> frozenset[str]:
    """The names of all there are."""
    by_option = {
        f"option {name} {option} {spelling}"
        for name, each in options().items()
        for option in each
        for spelling in spellings(option)
    }
    listed: dict[str, Sequence[str]] = {
        "program": tuple(options()),
        "shape": SHAPES,
        "wrapper": WRAPPERS,
        "redirect": REDIRECTS,
        "plain": PLAIN_FILES,
        "odd": ODD_FILES,
        "denied": DENIED,
        "git": GIT_WORDS,
        "value": VALUES,
        "folder": FOLDERS,
        "earlier": EARLIER,
        **{f"operand {name}": each for name, each in OPERANDS.items()},
    }
    by_list = {f"{kind} {item}" for kind, all_of in listed.items() for item in all_of}
    return frozenset(by_option | by_list)
