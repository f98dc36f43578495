"""Programs that only inspect the machine, packages and archives; see `program_tables.py`."""

from __future__ import annotations

SYSTEM: dict[str, str] = {
    "arch": "none",
    "env": "none -0 --null",
    "findmnt": "text -aDflnJrR -t= -o= -T= --json --list --noheadings --output= --types=",
    "free": "none -bghklmtvw -s= -c= --bytes --kilo --mega --giga --tera --kibi --mebi --gibi"
    " --human --si --lohi --total --committed --seconds= --count= --wide",
    "getconf": "text any -a",
    "groups": "text any",
    "hostname": "none -fsdiIAy --fqdn --short --domain --ip-address --all-ip-addresses",
    "hostnamectl": "none",
    "id": "text any -GZagnruz --context --group --groups --name --real --user --zero",
    "journalctl": "files -aeklqrx -n= -u= -b? -o= -p= -t= --no-pager --since= --until= --lines="
    " --unit= --output= --priority= --dmesg --quiet --reverse",
    "last": "text -# -aFiwx -n=",
    "locale": "text any -ackm --all-locales --charmaps --category-name --keyword-name --verbose",
    "logname": "none",
    "lsblk": "files -abdfilmnprstJOPST -o= --all --json --fs --paths --bytes --nodeps --list"
    " --noheadings --perms --topology --pairs --ascii --inverse --output-all --scsi",
    "lscpu": "none -BJabcexy -s= --all --online --bytes --caches? --offline --json --extended?"
    " --parse? --hex --physical --output-all",
    "lsmod": "none",
    "lspci": "none -vnktm -s= -d=",
    "lsusb": "none -vt -s= -d=",
    "man": "text -kfw",
    "mount": "none",
    "mountpoint": "text -dqx",
    "netstat": "none -tulpnaersiWeo --tcp --udp --listening --numeric --all --programs --route",
    "pgrep": "text any -Lacfilnovwx -d= -g= -G= -O= -P= -s= -t= -u= -U= -r= --delimiter="
    " --list-name --list-full --inverse --lightweight --count --full --pgroup= --group="
    " --ignore-case --newest --oldest --older= --parent= --session= --terminal= --euid= --uid="
    " --exact --runstates= --ignore-ancestors",
    "pidof": "text any -csxz -o= -S=",
    "pmap": "text -dqxX",
    "printenv": "text any -0 --null",
    "ps": "text any -AadeflFHjLmMNTVyZwx -C= -g= -G= -p= -q= -s= -t= -u= -U= -o= -O= --forest"
    " --sort= --pid= --ppid= --no-headers --headers --format= --user= --group= --width= --cols="
    " --columns= --rows= --deselect --cumulative --quick-pid= --tty= --sid=",
    "pstree": "text any -AGSTUacglnpstu -H= -N= --arguments --ascii --compact-not --show-pgids"
    " --highlight-all --highlight-pid= --long --numeric-sort --ns-sort= --show-pids --show-parents"
    " --thread-names --hide-threads --uid-changes --unicode",
    "pwdx": "text",
    "ss": "none -046aEHbehilmnoOpstuwx --numeric --all --listening --options --extended --memory"
    " --processes --info --summary --ipv4 --ipv6 --tcp --udp --raw --unix --no-header --oneline",
    "timedatectl": "none",
    "top": "none -bciHSs1 -n= -d= -o= -p= -u= -U= -w? -E= -e=",
    "tty": "none -s --silent --quiet",
    "uname": "none -aimnoprsv --all --kernel-name --nodename --kernel-release --kernel-version"
    " --machine --processor --hardware-platform --operating-system",
    "uptime": "none -ps --pretty --since",
    "users": "none",
    "vmstat": "text -aDdfmnstwy -S= --active --forks --slabs --one-header --stats --disk --disk-sum"
    " --unit= --wide --timestamp",
    "w": "text any -fhiosu --no-header --no-current --short --from --old-style --ip-addr",
    "whatis": "text",
    "whereis": "text any -bmslu",
    "which": "text any -as --all",
    "who": "files any -HTabdlmpqrstuw --all --boot --dead --heading --ips --login --process --count"
    " --runlevel --short --time --mesg --users --message --writable",
    "whoami": "none",
    "yes": "text free",
}

_PIP_FREEZE = "none -l --all --local --user"
_PIP_LIST = "none -l --local --user --format= --not-required"
_PIP_SHOW = "text -fv --files --verbose"
SUBCOMMANDS: dict[tuple[str, ...], str] = {
    ("crontab", "-l"): "none",
    ("docker", "images"): "text -aq -f= --all --quiet --no-trunc --format= --filter= --digests",
    ("docker", "ps"): "none -aqlsn -f= --all --quiet --latest --size --no-trunc --format= --filter="
    " --last=",
    ("docker", "version"): "none",
    ("apt", "list"): "text -a --installed --upgradable --all-versions",
    ("apt-cache", "policy"): "text",
    ("apt-cache", "search"): "text -n --names-only",
    ("apt-cache", "show"): "text",
    ("dpkg", "--get-selections"): "text",
    ("dpkg", "-L"): "text",
    ("dpkg", "-S"): "text",
    ("dpkg", "-l"): "text",
    ("dpkg", "-s"): "text",
    ("gem", "list"): "text -adl --all --details --local",
    ("getent", "group"): "text",
    ("getent", "passwd"): "text",
    ("go", "env"): "text -json",
    ("go", "version"): "none",
    ("gzip", "-l"): "files -qv",
    ("helm", "version"): "none --short",
    ("kubectl", "config", "current-context"): "none",
    ("kubectl", "version", "--client"): "none -o= --output=",
    ("ldconfig", "-p"): "none",
    ("npm", "config", "get"): "text",
    ("npm", "list"): "text -alg --all --long --json --global --depth= --omit= --include= --link",
    ("npm", "ls"): "text -alg --all --long --json --global --depth= --omit= --include= --link",
    ("openssl", "version"): "none -abdefpv",
    ("pip", "check"): "none",
    ("pip", "freeze"): _PIP_FREEZE,
    ("pip", "list"): _PIP_LIST,
    ("pip", "show"): _PIP_SHOW,
    ("python", "-m", "json.tool"): "one --sort-keys --indent= --tab --no-indent --compact"
    " --no-ensure-ascii --json-lines",
    ("python", "-m", "pip", "--version"): "none",
    ("python", "-m", "pip", "check"): "none",
    ("python", "-m", "pip", "freeze"): _PIP_FREEZE,
    ("python", "-m", "pip", "list"): _PIP_LIST,
    ("python", "-m", "pip", "show"): _PIP_SHOW,
    ("rpm", "-qa"): "text",
    ("rpm", "-qi"): "text",
    ("rpm", "-ql"): "text",
    ("shuf", "-e"): "text -rz -n= --head-count= --repeat",
    ("systemctl", "is-active"): "text -q --quiet",
    ("systemctl", "is-enabled"): "text -q --quiet",
    ("systemctl", "list-unit-files"): "text --no-pager --type= --state= --no-legend",
    ("systemctl", "list-units"): "text -al --no-pager --all --type= --state= --failed --no-legend",
    ("systemctl", "status"): "text -l --no-pager --full -n= --lines=",
    ("unzip", "-l"): "files -qv",
    ("unzip", "-v"): "files -q",
    ("unzip", "-Z"): "files -12smlvhtz",
    ("unzip", "-Z1"): "files",
    ("xz", "-l"): "files -qv",
    ("zipinfo",): "files -12smlvhtz",
}
"""Read-only forms of programs that otherwise do more, by their first words."""
