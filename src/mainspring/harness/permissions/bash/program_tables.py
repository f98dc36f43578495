"""Programs that only read: their options and what their arguments are. Data only.

For the marks of options see `option_tables.OptionTable`. One word describes the operands: `files`:
files or folders that are read; `one`: at most one of them, since a second would be written; `text`:
anything but files; `pattern`: first a pattern or program text, then files; `none`: no operands.
`tree`: folders are read recursively. `free`: there are no options, whatever a word begins with.
`unbundled`: `-ab` is not `-a -b`.

An option is left out if it runs, writes or loads something, reads names of files from a file, or is
of no use here; `tests/permissions/bash/test_option_tables.py` checks these tables against the
programs.
"""

from __future__ import annotations

from mainspring.harness.permissions.bash.command import word_set
from mainspring.harness.permissions.bash.system_program_tables import SYSTEM

_DIGEST = "files any -btwz --binary --tag --text --zero"
_BASE = "files any -di -w= --decode --ignore-garbage --wrap="
_GREP = (
    "pattern any -# -EFGHILPTUZabchilnoqsvwxz -r* -R* -e~ -f< -m= -B= -A= -C= --extended-regexp"
    " --fixed-strings --basic-regexp --perl-regexp --regexp~ --file< --ignore-case --no-ignore-case"
    " --word-regexp --line-regexp --null-data --no-messages --invert-match --max-count="
    " --byte-offset --line-number --line-buffered --with-filename --no-filename --label="
    " --only-matching --quiet --silent --binary-files= --text --recursive* --dereference-recursive*"
    " --include= --exclude= --exclude-from< --exclude-dir= --files-without-match"
    " --files-with-matches --count --initial-tab --null --before-context= --after-context="
    " --context= --group-separator= --no-group-separator --color? --colour? --binary"
)
SED = (
    "pattern -nErsuz -l= -e~ --quiet --silent --expression~ --regexp-extended --null-data"
    " --separate --posix --debug --line-length= --unbuffered"
)
AWK = "pattern + -F= -v= --field-separator= --assign="
XARGS = (
    "text + -0rtx -n= -P= -L= -d= -E= -s= -a< -I= --null --no-run-if-empty --verbose --exit"
    " --max-args= --max-procs= --max-lines= --delimiter= --arg-file< --max-chars="
)
FIND_TESTS = word_set(
    """
    -name -iname -path -ipath -wholename -iwholename -regex -iregex -regextype -type -xtype
    -size -mtime -mmin -atime -amin -ctime -cmin -newer -anewer -cnewer -maxdepth -mindepth
    -empty -perm -user -group -uid -gid -nouser -nogroup -links -inum -samefile -lname
    -ilname -readable -writable -executable -print -print0 -printf -ls -prune -quit -depth
    -d -follow -xdev -mount -not -and -or -a -o -true -false -daystart -noleaf -L -H -P
    -fstype -newermt -newerct -newerat -used -warn -nowarn
    """
)
FIND_FILES = word_set("-newer -anewer -cnewer -samefile -newermt -newerct -newerat")
"""Tests whose value is, or may be, a file."""

PROGRAMS: dict[str, str] = {
    # the shell's own
    ":": "text free",
    "break": "text free",
    "cd": "files any -LPe",
    "continue": "text free",
    "dirs": "none -lpv",
    "echo": "text free",
    "exit": "text free",
    "export": "none",
    "false": "text free",
    "jobs": "text -lnprs",
    "local": "text free",
    "printf": "text free",
    "pwd": "text any -LP",
    "read": "text free",
    "return": "text free",
    "set": "text free",
    "shift": "text free",
    "times": "none",
    "true": "text free",
    "type": "text any -afptP",
    "ulimit": "none -aHS",
    "umask": "none",
    "hash": "none",
    "help": "text any -dms",
    "wait": "text -nf",
    # files
    "b2sum": _DIGEST + " -l= --length=",
    "base32": _BASE,
    "base64": _BASE,
    "basename": "text any -az -s= --multiple --suffix= --zero",
    "basenc": _BASE + " --base64 --base64url --base32 --base32hex --base16 --base2msbf --base2lsbf"
    " --z85",
    "cat": "files any -AETbenstuv --show-all --number-nonblank --show-ends --number --squeeze-blank"
    " --show-tabs --show-nonprinting",
    "cksum": "files any -a= -l= -z --algorithm= --length= --tag --untagged --zero --debug",
    "cmp": "files any -bls -i= -n= --print-bytes --ignore-initial= --verbose --bytes= --quiet"
    " --silent",
    "column": "files any -JLdetx -c= -s= -o= -N= -R= -H= -l= -O= --table --separator= --json"
    " --output-width= --output-separator= --fillrows --table-columns= --table-right= --table-hide="
    " --table-order= --keep-empty-lines --table-noheadings --table-columns-limit=",
    "comm": "files any -123z --check-order --nocheck-order --output-delimiter= --total"
    " --zero-terminated",
    "cut": "files any -nsz -b= -c= -d= -f= --bytes= --characters= --delimiter= --fields="
    " --complement --only-delimited --output-delimiter= --zero-terminated",
    "df": "text any -HPTahikl -B= -t= -x= --all --block-size= --human-readable --si --inodes"
    " --local --no-sync --output? --portability --total --type= --print-type --exclude-type=",
    "diff": "files tree -BENTZabcdeinpqrstuwy -C= -U= -W= -F= -x= -X< -S= -I= --normal --brief"
    " --report-identical-files --context? --unified? --ed --rcs --side-by-side --width="
    " --left-column --suppress-common-lines --show-c-function --show-function-line= --label="
    " --expand-tabs --initial-tab --tabsize= --suppress-blank-empty --recursive --no-dereference"
    " --new-file --unidirectional-new-file --ignore-file-name-case --no-ignore-file-name-case"
    " --exclude= --exclude-from< --starting-file= --from-file< --to-file< --ignore-case"
    " --ignore-tab-expansion --ignore-trailing-space --ignore-space-change --ignore-all-space"
    " --ignore-blank-lines --ignore-matching-lines= --text --strip-trailing-cr --minimal"
    " --horizon-lines= --speed-large-files --color? --palette=",
    "dirname": "text any -z --zero",
    "du": "files any -0DHLPSabchklmsx -B= -d= -t= -X< --null --all --apparent-size --block-size="
    " --bytes --total --dereference-args --max-depth= --human-readable --inodes --dereference"
    " --count-links --no-dereference --separate-dirs --si --summarize --threshold= --time?"
    " --time-style= --exclude-from< --exclude= --one-file-system",
    "egrep": _GREP,
    "expand": "files any -i -t= --initial --tabs=",
    "fgrep": _GREP,
    "file": "files -bhikLNrs0 -F= -P= -e= --brief --mime --mime-type --mime-encoding --dereference"
    " --no-dereference --separator= --extension --keep-going --no-pad --print0 --raw --exclude=",
    "fmt": "files any -cstu -p= -w= -g= --crown-margin --prefix= --split-only --tagged-paragraph"
    " --uniform-spacing --width= --goal=",
    "bc": "files any -hilqsw",
    "bzcat": "files -s",
    "fold": "files any -bs -w= --bytes --spaces --width=",
    "grep": _GREP,
    "head": "files any -# -qvz -c= -n= --bytes= --lines= --quiet --silent --verbose"
    " --zero-terminated",
    "hd": "files any -n= -s= -v",
    "hexdump": "files any -Cbcdovx -e= -n= -s= --one-byte-octal --one-byte-char --canonical"
    " --two-bytes-decimal --two-bytes-octal --two-bytes-hex --format= --length= --skip="
    " --no-squeezing",
    "iconv": "files -cls -f< -t< --from-code< --to-code< --list --silent",
    "infocmp": "files -1CIx",
    "join": "files any -iz -a= -e= -j= -o= -t= -v= -1= -2= --ignore-case --check-order"
    " --nocheck-order --header --zero-terminated",
    "less": "files -eEFgGiIJKmMnNqQrRsSuUVwWX -j= -x= --chop-long-lines --LINE-NUMBERS"
    " --RAW-CONTROL-CHARS --quit-if-one-screen --no-init --ignore-case",
    "ls": "files any -1ABCDFGHLNQRSUXZabcdfghiklmnopqrstuvx -I= -T= -w= --all --almost-all --author"
    " --escape --block-size= --ignore-backups --color? --directory --dired --classify? --file-type"
    " --format= --full-time --group-directories-first --no-group --human-readable --si"
    " --dereference-command-line --dereference-command-line-symlink-to-dir --hide= --hyperlink?"
    " --indicator-style= --inode --ignore= --kibibytes --dereference --numeric-uid-gid --literal"
    " --hide-control-chars --show-control-chars --quote-name --quoting-style= --reverse --recursive"
    " --size --sort= --time= --time-style= --tabsize= --width= --context --zero",
    "lsattr": "files any -adlpRv",
    "lsof": "files -nPtaUlR -p= -u= -c= -i? -d=",
    "md5sum": _DIGEST,
    "namei": "files any -lmnovx --long --modes --owners --vertical --mountpoints --nosymlinks",
    "nm": "files -aABCDgnopPrSu --demangle? --dynamic --extern-only --undefined-only --size-sort",
    "nl": "files any -p -b= -d= -f= -h= -i= -l= -n= -s= -v= -w= --body-numbering="
    " --section-delimiter= --footer-numbering= --header-numbering= --line-increment="
    " --join-blank-lines= --number-format= --no-renumber --number-separator="
    " --starting-line-number= --number-width=",
    "objdump": "files -aCdDfhpPrRstTwxz -j= -M= -b= --demangle? --disassemble --section-headers"
    " --syms --dynamic-syms --private-headers",
    "od": "files any -abcdfhilosvx -j= -N= -S= -t= -w? --endian= --skip-bytes= --read-bytes="
    " --strings? --format= --output-duplicates --width?",
    "paste": "files any -sz -d= --delimiters= --serial --zero-terminated",
    "pathchk": "text any -pP --portability",
    "pr": "files any -adFfmtTr -l= -w= -W= -h= -o= --omit-header --columns= --length= --width="
    " --header= --merge --double-space",
    "readelf": "files -aAhlsSdnrtVWeuI -x= -p= --file-header --sections --segments --symbols"
    " --dynamic --wide --all --headers --notes --relocs",
    "readlink": "files any -efmnqsvz --canonicalize --canonicalize-existing --canonicalize-missing"
    " --no-newline --quiet --silent --verbose --zero",
    "realpath": "files any -LPemqsz --canonicalize-existing --canonicalize-missing --logical"
    " --physical --quiet --relative-to< --relative-base< --strip --no-symlinks --zero",
    "rev": "files any",
    "sdiff": "files tree -abBdEistWZ -w= --suppress-common-lines --width=",
    "sha1sum": _DIGEST,
    "sha224sum": _DIGEST,
    "sha256sum": _DIGEST,
    "sha384sum": _DIGEST,
    "sha512sum": _DIGEST,
    "shasum": "files -bt0 -a= --algorithm= --binary --text",
    "shuf": "one -rz -i= -n= --input-range= --head-count= --random-source< --repeat"
    " --zero-terminated",
    "size": "files -ABdox --format= --radix= --totals",
    "sort": "files -MRVbdfghimnrsuzcC -k= -S= -t= --ignore-leading-blanks --dictionary-order"
    " --ignore-case --general-numeric-sort --ignore-nonprinting --month-sort --human-numeric-sort"
    " --numeric-sort --random-sort --random-source< --reverse --sort= --version-sort --batch-size="
    " --check? --debug --key= --merge --stable --buffer-size= --field-separator= --parallel="
    " --unique --zero-terminated",
    "stat": "files any -Lft -c= --dereference --file-system --cached= --format= --printf= --terse",
    "strings": "files -afow -n= -t= -e= -# --all --print-file-name --bytes= --radix= --encoding="
    " --include-all-whitespace",
    "sum": "files any -rs --sysv",
    "tac": "files any -br -s= --before --regex --separator=",
    "tail": "files any -# -Ffqvz -c= -n= -s= --bytes= --follow? --lines= --pid="
    " --max-unchanged-stats= --quiet --silent --retry --sleep-interval= --verbose"
    " --zero-terminated",
    "tree": "files -adfiClsuhgpDqNQrtcUvxFSnAJX -L= -P= -I= --du --dirsfirst --noreport --prune"
    " --filelimit= --gitignore --matchdirs --ignore-case --charset= --inodes --device",
    "tsort": "files any",
    "unexpand": "files any -a -t= --all --first-only --tabs=",
    "uniq": "one -cdDuiz -f= -s= -w= --count --repeated --all-repeated? --unique --ignore-case"
    " --group? --skip-fields= --skip-chars= --check-chars= --zero-terminated",
    "wc": "files any -Lclmw --bytes --chars --lines --max-line-length --words",
    "xmllint": "files --noout --format --xpath= --html --recover --nowarning --encode=",
    "xxd": "one + unbundled -abeEiu -p -c= -g= -l= -o= -s= -n=",
    "xzcat": "files -q",
    "zcat": "files -f",
    "zcmp": "files -ls",
    "zdiff": "files -bBciuwq",
    "zstdcat": "files -q",
    # searching
    "ag": "pattern tree -acilLsSvwQ -A= -B= -C= -G= -m=",
    "fd": "pattern -HIsgFaLpu0 -d= -t= -e= -E= -c= -S= -j= --hidden --no-ignore --glob --extension="
    " --type= --exclude= --max-depth= --min-depth= --max-results= --absolute-path --full-path"
    " --color= --changed-within= --changed-before= --size= --case-sensitive --ignore-case --print0"
    " --follow",
    "jq": "pattern -CMRSacenrsj --tab --arg== --argjson== --indent= --compact-output --raw-output"
    " --raw-input --null-input --slurp --sort-keys --color-output --monochrome-output --exit-status"
    " --ascii-output --join-output --unbuffered --seq --stream",
    "rg": "pattern tree -# -acFHhILlnNopPqsSuUvVwxi0 -A= -B= -C= -e~ -f< -g= -j= -m= -M= -r= -t="
    " -T= -E= -d= --after-context= --before-context= --context= --regexp~ --file< --glob= --iglob="
    " --type= --type-not= --max-count= --max-depth= --max-columns= --replace= --encoding= --sort="
    " --sortr= --color= --colors= --count --count-matches --files --files-with-matches"
    " --files-without-match --fixed-strings --hidden --no-hidden --ignore-case --smart-case"
    " --case-sensitive --invert-match --json --line-number --no-line-number --line-regexp"
    " --word-regexp --multiline --multiline-dotall --no-filename --with-filename --no-heading"
    " --heading --no-ignore --no-ignore-vcs --no-messages --null --only-matching --passthru --pcre2"
    " --quiet --stats --text --trim --type-list --unrestricted --vimgrep --column --no-config"
    " --debug --version",
    "yq": "pattern -rPCMecN --raw-output --prettyPrint --colors --no-colors --exit-status",
    "zgrep": "pattern -EFchHilnoqvwx -e~ -A= -B= -C= -m=",
    # numbers, words, times
    "cal": "text -13jmswyhb -A= -B= -n=",
    "date": "text -uR -d= -f< -r< -I? --date= --file< --utc --universal --iso-8601? --rfc-3339="
    " --rfc-email --reference< --debug",
    "c++filt": "text -_npit",
    "expr": "text free",
    "factor": "text any -h --exponents",
    "ncal": "text -13jmswyhbCJMS -A= -B= -n=",
    "nproc": "none --all --ignore=",
    "numfmt": "text any -z -d= --debug --delimiter= --field= --format= --from= --from-unit="
    " --grouping --header? --invalid= --padding= --round= --suffix= --to= --to-unit="
    " --zero-terminated",
    "seq": "text free",
    "sleep": "text any",
    "tput": "text -T=",
    "tr": "text any -Ccdst --complement --delete --squeeze-repeats --truncate-set1",
    **SYSTEM,
}

VERSIONED = word_set(
    """
    aws bash bun c++ cargo cc clang clang++ cmake curl deno docker dotnet elixir emacs ffmpeg fish
    g++ gcc gdb gem gh ghc git go gpg gzip helm java javac jq less lua make meson mypy mysql nginx
    ninja node npm npx nvim openssl perl php pip pip3 podman psql python python3 rg rsync ruby ruff
    rustc rustup sqlite3 ssh strace swift tar tmux tsc unzip uv valgrind vim wget xz zip zsh
    """
)
"""Programs that answer `--version` and `--help` without reading files of the workspace."""
SHORT_VERSIONS: dict[str, frozenset[str]] = {
    "-V": word_set("cargo curl ghc pip pip3 python python3 rg ruff rustc ssh tmux uv wget"),
    "-v": word_set("clang elixir gcc gem node npm npx perl php ruby tsc"),
    "-version": word_set("ffmpeg java javac"),
    "--info": word_set("dotnet"),
    "--list-runtimes": word_set("dotnet"),
    "--list-sdks": word_set("dotnet"),
}
SANDBOX_ONLY = word_set("cargo dotnet go rustc rustup swift")
"""Programs whose version a file of the workspace may select; the workspace may even bring it."""
LOADING = word_set("docker go npm pip pip3 python python3")
"""Programs whose `SUBCOMMANDS` depend on settings and modules of the workspace."""

PLAIN = word_set(
    """
    bg chgrp chmod chown cp curl declare dig disown export fg getopts hash help host kill killall
    ln mapfile mkdir mkfifo mktemp mv nslookup ping pkill popd pushd readarray readonly rm rmdir
    shred sync tee touch truncate typeset unlink unset wget whois
    """
)
"""Programs that do more than read, but run other programs only with a risky option."""
COPYING = word_set(
    """
    chgrp chmod chown cp ln mkdir mkfifo mktemp mv pushd rm rmdir shred tee touch truncate unlink
    """
)
"""Programs of `PLAIN` that open only files that they name."""
SILENT = word_set(
    """
    bg declare disown export fg getopts hash help kill killall mapfile pkill popd readarray
    readonly sync typeset unset
    """
)
"""Programs of `PLAIN` that open no files."""
