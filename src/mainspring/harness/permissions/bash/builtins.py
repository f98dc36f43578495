"""Names that mean something already: a function of that name would change what is read."""

from __future__ import annotations

from mainspring.harness.permissions.bash.names import names

KNOWN = names(
    """
    . : [ alias bg bind break builtin caller cd command compgen complete compopt continue
    declare dirs disown echo enable eval exec exit export false fc fg getopts hash help
    history jobs kill let local logout mapfile popd printf pushd pwd read readarray readonly
    return set shift shopt source suspend test times trap true type typeset ulimit umask
    unalias unset wait time awk base64 basename bash cargo cat chmod chown cmake comm cp
    curl cut date dd df diff dirname docker du env expr fd file find gcc gh git go grep head
    id jq kubectl less ln ls make man mkdir mv nice node nohup npm npx od perl pip pip3 pnpm
    podman ps pytest python python3 readlink realpath rg rm rmdir rsync ruby scp sed seq sh
    sleep sort ssh stat stdbuf su sudo tail tar tee timeout touch tr tree uname uniq uv wc
    wget which xargs yarn zsh
    """
)
