"""Secrets of this year in the forms in which channels carry them. `tests/session_e2e` and
`tests/cli` have the channels themselves; all of them end in the scrubber."""

import json
from urllib.parse import quote

from tests.row_checks import for_each
from tests.vault.modern import modern

from mainspring.capabilities.vault.redaction import Scrubber

KINDS = modern()
scrub = Scrubber({})


def test_more_than_three_hundred_kinds_of_secrets_are_looked_for() -> None:
    assert len(KINDS) > 300


@for_each("kind", KINDS)
def test_a_modern_secret_passes_in_no_form(kind: str) -> None:
    for seed in (11, 12):
        text, secret = modern_of(seed)[kind]
        lines = f"first\n{text}\nlast"
        forms = {
            "file": lines.encode(),
            "output": f"\x1b[32m{text}\x1b[0m\n".encode(),
            "numbered": f"     7\t{text}\n".encode(),
            "event": json.dumps({"type": "x", "content": [{"type": "text", "text": lines}]}),
            "event in UTF-8": json.dumps({"text": text}, ensure_ascii=False),
            "result in a result": json.dumps({"text": json.dumps({"output": text})}),
            "error": f"Error: the server said: {text}",
        }
        for form, content in forms.items():
            clean = scrub(content if isinstance(content, bytes) else content.encode())
            assert secret.encode() not in clean, form
            assert json.dumps(secret)[1:-1].encode() not in clean, form


def modern_of(seed: int) -> dict[str, tuple[str, str]]:
    if seed not in _CACHE:
        _CACHE[seed] = modern(seed)
    return _CACHE[seed]


_CACHE = {11: KINDS}


@for_each(
    "text",
    [
        "token=$HOME/Applications/Xcode1.app/Contents",
        'api_key: "${SERVICE_API_KEY1}"',
        "secret: /Users/Shared/Library/Keychains/login2.keychain",
        "password = %(Password1)s",
        "token: <Your-Token-1-Here>",
        "secret=*.Example1.com",
        "пароль: введите его здесь",
        "Le mot de passe : obligatoire",
        "senha: opcional",
        quote("密码：请输入"),
        "v1.0-beta sk-learn secret-santa-of-the-year secret_santa re_start live_reload",
        "key_value pa-ternity fc-barcelona BSAFE md-editor-v3 https://a.test/EAAA/IGQV",
        "[1, 2, 3, 4, 5, 6, 7, 8]",
    ],
)
def test_text_that_only_resembles_a_modern_secret_stays(text: str) -> None:
    assert scrub(text.encode()) == text.encode()
