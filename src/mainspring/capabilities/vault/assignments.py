"""Values assigned to names such as `password` or `api_key`: always secret, unless they are
placeholders or code."""

from __future__ import annotations

import math
import re
from base64 import b64decode
from collections import Counter
from functools import lru_cache
from itertools import pairwise

from mainspring.capabilities.vault.secret_detector import compile_pattern

PASSWORD_NAMES = (
    r"passw(?:or)?d|passwd|passwort|pwd|passphrase|passcode|contrase\xc3\xb1a"
    r"|(?:\b|[_.-]|ssh|require|master|auth|db|user)pass|(?:\b|[_.-])pw"
)
NAMES = (
    rf"{PASSWORD_NAMES}|credentials?"
    r"|(?:api|access|secret|auth|private|encryption|signing|account|shared|admin|app|master)"
    r"[_-]?(?:access[_-]?)?key"
    r"|secret(?:[_-]?key[_-]?base)?|(?:auth|bearer|access|refresh|session|id)?[_-]?token"
)
_FOREIGN_NAMES = (
    *(
        "пароль",
        "гасло",
        "парола",
        "лозинка",
        "パスワード",
        "暗証番号",
        "密码",
        "密碼",
        "口令",
        "密钥",
    ),
    *("密鑰", "秘钥", "비밀번호", "암호", "senha", "palavra-passe", "mot de passe", "mot_de_passe"),
    *("motdepasse", "kennwort", "zugangsschlüssel", "zugangscode", "geheimschlüssel", "contraseña"),
    *("clave secreta", "clave_secreta", "clave de acceso", "clave_api", "parola d'ordine", "hasło"),
    *("heslo", "şifre", "wachtwoord", "lösenord", "passord", "salasana", "adgangskode", "jelszó"),
    *("κωδικός", "סיסמה", "كلمة المرور", "كلمة السر", "पासवर्ड", "mật khẩu", "รหัสผ่าน", "kata sandi"),
    *("passwort", "parolă", "parole d'accès", "lykilorð", "slaptažodis", "geslo"),
)
"""What passwords and keys are called in other languages."""
SHORTEST_PASSWORD = 4  # characters; shorter ones are examples such as "xxx"
_SHORTEST_WORD = 8  # characters of a value that could be an ordinary word
_LONGEST_EXAMINED = 512
"""Bytes of a value that say whether it is a secret: a hostile text is one value of megabytes."""

_HARMLESS = compile_pattern(
    rb"(?i)[$%*.~/]|https?://|\w+://"  # variables, paths, URLs
    rb"|(?:sha|md)\d+[:-]|msk_placeholder_|redacted"
    rb"|[a-z]{3,5}_[0-9a-f]{32}$"  # our ids
    rb"|\d{4}-\d\d-\d\d"
    rb"|[a-z]+(?:[_-][a-z]+)+[_-]?\d{0,2}$"  # identifiers
    rb"|[a-z_]\w*(?:\.[a-z_]\w*)+$"  # dotted identifiers
)
_NOT_ABOUT_ACCESS = compile_pattern(
    rb"(?i)page|next|cursor|contin|sync|csrf|xsrf|public|max|count|hash(?:er|ing)|policy|field"
    rb"|(?:^|[_.-])(?:no|num|is|has|type|progress)[_.-]|schema|strength|hint|label|prompt"
)
_PRODUCTS = re.compile(rb"(?i)next_?auth|pagerduty")
"""Their names contain a word of the list above."""
_NAME = compile_pattern(rf"(?i)[\w.-]{{0,40}}(?:{NAMES})".encode())
_IS_PASSWORD = compile_pattern(rf"(?i)(?:{PASSWORD_NAMES})$".encode())
_WORDS = re.compile(rb"[A-Z]?[a-z]+|[A-Z]+")
_IDENTIFIER = compile_pattern(rb"[A-Za-z_]\w*")
_VARIABLE = compile_pattern(rb"[A-Za-z_]+\d{0,2}(?:[._][A-Za-z_]*\d{0,2})+")
_REFERENCE = compile_pattern(  # to where a value is stored, or how it is made
    rb"(?i)[$<{%@(\[`]|\.\.|\*\*|(?:env|secret|vault|file|ref|arn|op|ssm|keyring|pass)[:/]"
    rb"|(?:os|process|config|settings|self|this)\.|\w+\.\w+[.(\[]|.*(?:\$\{|\{\{|<[a-z_ -]+>)"
    rb"|[x*.#?_\x80-\xff-]+$|\d{1,5}$|(?:sha|md)\d+[:-]|msk_placeholder_|\[?redacted|[a-z]+:$"
    rb"|(?-i:[A-Z]+(?:_[A-Z]+)+$)|https?:|\w+://|.*\\[nrt]?$|.*\.\.\.$"
)


def _in_any_case(name: str) -> str:
    spellings = {name, name.lower(), name.capitalize(), name.upper()}
    plain = {"".join(f"\\x{byte:02x}" for byte in item.encode()) for item in spellings}
    escaped = {
        "".join(item if item.isascii() else rf"\\+u{ord(item):04x}" for item in spelling)
        for spelling in (name, name.capitalize())
    }
    return "|".join(sorted(plain | escaped))


FOREIGN_NAMES = "|".join(map(_in_any_case, _FOREIGN_NAMES))
_IS_FOREIGN = compile_pattern(rf"(?:.*[^a-z])?(?:{FOREIGN_NAMES})".encode())
_PLACEHOLDERS = frozenset(
    b"""
    a abc access account actual add admin alice all an and any anything api app argument asdf auth
    authorization bad bar basic baz bearer blank bob bogus bool boolean bytes callable change
    changeit changeme char clear client config const correct credential credentials current custom
    data database db default demo deny disabled dummy empty enabled encrypted enter env error
    example expected expired explicit export factory fake false field file final first fixme fixture
    foo forgot from function generate generated get given global hash hashed here hidden id ignore
    ignored import in incorrect initial input insert int invalid is it jwt key keyring letter
    literal login long me message method missing mock must my name namespace never new nil no none
    not null number object of old one optional or other output param parameter pass passphrase
    passwd password passwords passwort path payload placeholder plain plaintext please post private
    prompt property provider public put pw pwd query quux random raw read real redacted refresh
    remove removed replace request required reset response result return root salt sample second
    secret secrets security self service session set setting settings shared short signing some
    something spec stale static store str string stub super supersecret system temp test tester
    testing text the there this three tmp to todo token tokens true two type typing undefined
    unknown unset unused update used user username uuid valid value values var variable was wrong
    xxx yes you your yours
    """.split()
)


_SENTENCE = _PLACEHOLDERS | frozenset(
    b"""and are been but can cannot for has have its may more must need needs only should than that
    then when where which while will with without""".split()
)


def looks_secret(value: bytes) -> bool:
    """Whether a value assigned to a password or token is a secret, not a word or a variable."""
    value = value[:_LONGEST_EXAMINED]
    if len(value) < 8 or not is_varied(value):
        return False
    return _HARMLESS.match(value) is None or _is_random(value)


def is_varied(value: bytes) -> bool:
    """Whether it is not a word: letters and digits, not just a few of them repeated."""
    has_letters = any(65 <= item <= 90 or 97 <= item <= 122 for item in value)
    return has_letters and any(48 <= item <= 57 for item in value) and entropy_bits(value) >= 2.5


_SIGNS = b"$%*.~&{</+"
"""Paths, variables and references begin with these, and 1 in 64 of all secrets in base64."""
_CLASSES = bytes.maketrans(
    bytes(range(256)),
    bytes(
        ord("a")
        if 97 <= item <= 122
        else ord("A")
        if 65 <= item <= 90
        else ord("0")
        if 48 <= item <= 57
        else 32
        for item in range(256)
    ),
)
_SHORTEST_RANDOM = 12  # bytes; in fewer, chance looks like a word too often
_DIGITS = re.compile(rb"[0-9]+")


def _is_random(value: bytes) -> bool:
    """Whether the characters after a sign change between upper case, lower case and digits as those
    of a key do and those of words do not."""
    body = value.lstrip(_SIGNS)
    if body == value or len(body) < _SHORTEST_RANDOM or body.endswith((b"}", b">", b")", b"%")):
        return False
    classes = body.translate(_CLASSES)
    if not all(kind in classes for kind in (b"a", b"A", b"0")):
        return False
    separators = sum(body.count(item) for item in (b"/", b".", b"-", b"_"))
    groups = len(_DIGITS.findall(body))
    changes = sum(one != other for one, other in pairwise(classes)) / len(classes)
    if separators * 12 <= len(body) and (groups >= 3 or (groups == 2 and changes >= 0.4)):
        return True  # names have digits at their ends
    return changes >= 0.5 or (changes >= 0.33 and b"aaaaa" not in classes)


def entropy_bits(value: bytes) -> float:
    shares = [count / len(value) for count in Counter(value).values()]
    return -sum(share * math.log2(share) for share in shares)


def is_placeholder(value: bytes) -> bool:
    """Whether it is a placeholder: a reference, a mask, or words typical of examples."""
    value = value[:_LONGEST_EXAMINED]
    if _REFERENCE.match(value) is not None:
        return not _is_random(value)
    words = [word.lower() for word in _WORDS.findall(value)]
    if not words:
        return len(value) < 6
    other = [word for word in words if word not in _PLACEHOLDERS]
    is_mostly_common = sum(map(len, other)) * 2 < sum(map(len, words))
    return is_mostly_common and all(len(word) < 3 for word in other)


def is_real_value(value: bytes) -> bool:
    return not is_placeholder(value)


def is_foreign_secret(name: bytes, value: bytes) -> bool:
    """Whether a name says in another language that its value is secret, and the value is."""
    return names_foreign_secret(name) and is_varied_value(value)


@lru_cache(maxsize=1024)
def names_foreign_secret(name: bytes) -> bool:
    return len(name) <= 64 and _IS_FOREIGN.fullmatch(name) is not None


def is_varied_value(value: bytes) -> bool:
    value = value[:_LONGEST_EXAMINED]
    return len(value) >= 6 and is_varied(value) and not is_placeholder(value)


@lru_cache(maxsize=1024)
def names_secret(name: bytes) -> bool:
    """Whether the value of this name is meant to be secret."""
    if _NAME.fullmatch(name) is None:
        return False
    return _NOT_ABOUT_ACCESS.search(_PRODUCTS.sub(b"", name)) is None


def is_assigned_secret(name: bytes, value: bytes, *, is_quoted: bool, ends_line: bool) -> bool:
    """Whether a value that is assigned to a secret's name is that secret.

    A word without quotes may be a variable or a type: it counts only where a configuration file
    would have a value (`ends_line`).
    """
    value = value[:_LONGEST_EXAMINED]
    if not names_secret(name) or (not is_quoted and _is_variable_of_secret(value)):
        return False
    if looks_secret(value):
        return True
    is_password = _IS_PASSWORD.search(name) is not None
    if len(value) < (SHORTEST_PASSWORD if is_password else _SHORTEST_WORD) or is_placeholder(value):
        return False
    if not is_password and _HARMLESS.match(value) is not None and not _is_random(value):
        return False
    is_word = _IDENTIFIER.fullmatch(value) is not None
    if is_quoted:
        return is_password or not is_word or value.isalpha()
    is_variable = is_word and b"_" in value
    is_setting = is_password or name.isupper() or b"-" in name
    return ends_line and len(value) >= 6 and not is_variable and is_setting


def _is_variable_of_secret(value: bytes) -> bool:
    """Whether code refers to a value stored elsewhere: `form.password`, `old_password_1`."""
    last = value.rpartition(b".")[2].rstrip(b"0123456789").rstrip(b"_")
    return _VARIABLE.fullmatch(value) is not None and names_secret(last)


def is_passphrase(value: bytes) -> bool:
    """Whether these words are a passphrase, and not a sentence about one."""
    words = value.split(b" ")
    is_plain = 4 <= len(words) <= 12 and all(3 <= len(word) <= 12 for word in words)
    return is_plain and value.islower() and len(_SENTENCE.intersection(words)) < 2


def is_login(name: bytes, value: bytes) -> bool:
    """Whether this is a user name and password in base64, as programs store them under `auth`."""
    if name != b"auth" or not 8 <= len(value) <= _LONGEST_EXAMINED:
        return False
    try:
        return b":" in b64decode(value, validate=True)
    except ValueError:
        return False
