"""Stems of languages other than English, by the Snowball stemmers (the extra `languages`). Without
them, words of other languages are compared as they are.

For a word in another alphabet, the alphabet selects the stemmer. For words in Latin letters, the
function words of the whole text decide; a text without any counts as English.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from functools import cache, lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol, cast

from mainspring.core.lazy_module import LazyModule

if TYPE_CHECKING:
    from importlib import metadata
else:
    metadata = LazyModule("importlib.metadata")  # 12 ms that only an index needs

_PACKAGE = "snowballstemmer"
_MIN_SHARE = 2
"""A text is in a language if it has this many times as many function words as English ones."""
_MIN_WORDS, _SHORT_TEXT = 2, 5
"""At least two function words, or one in a text of at most five words."""
# Words that English does not have, without accents.
# fmt: off
FUNCTION_WORDS = {
    "german": frozenset((
        "aber", "als", "auch", "auf", "aus", "bei", "beim", "das", "dass", "dem", "der", "des",
        "dich", "diese", "dieser", "dieses", "durch", "ein", "eine", "einem", "einen", "einer",
        "eines", "er", "fur", "haben", "hatte", "ich", "ihr", "ihre", "im", "immer", "ist", "kann",
        "kein", "keine", "mich", "mit", "nach", "nicht", "noch", "nur", "oder", "ohne", "sein",
        "seine", "sich", "sie", "sind", "uber", "um", "und", "uns", "unser", "unsere", "vom", "von",
        "wann", "warum", "weil", "welche", "welcher", "welches", "wenn", "wer", "werden", "wie",
        "wir", "wird", "wo", "wurde", "zu", "zum", "zur",
    )),
    "french": frozenset((
        "au", "aux", "avec", "ce", "ces", "cette", "chez", "dans", "des", "donc", "du", "elle",
        "elles", "est", "et", "etre", "il", "ils", "je", "la", "le", "les", "leur", "leurs", "lui",
        "mais", "meme", "mes", "nos", "notre", "nous", "ont", "ou", "par", "pas", "quand", "que",
        "quel", "quelle", "quels", "qui", "sans", "sera", "ses", "sont", "sous", "sur", "tous",
        "tout", "une", "votre", "vous",
    )),
    "spanish": frozenset((
        "al", "como", "cual", "cuales", "cuando", "del", "desde", "donde", "el", "ella", "ellos",
        "en", "entre", "es", "esa", "ese", "eso", "esta", "estan", "este", "esto", "fue", "hay",
        "la", "las", "lo", "los", "mas", "mi", "muy", "nos", "nosotros", "nuestra", "nuestro",
        "para", "pero", "por", "porque", "que", "quien", "se", "si", "sobre", "su", "sus", "tiene",
        "todos", "un", "una", "y",
    )),
    "italian": frozenset((
        "agli", "ai", "al", "alla", "alle", "anche", "che", "chi", "ci", "cui", "da", "dai", "dal",
        "dalla", "degli", "dei", "del", "della", "delle", "di", "dove", "e", "essere", "gli",
        "hanno", "il", "la", "le", "lo", "loro", "nei", "nel", "nella", "noi", "non", "nostra",
        "nostro", "perche", "piu", "quale", "quali", "quando", "quanto", "quella", "quello",
        "questa", "questo", "si", "sono", "sua", "sul", "sulla", "suo", "tra", "un", "una", "uno",
    )),
    "portuguese": frozenset((
        "ao", "aos", "com", "como", "da", "das", "dos", "e", "ela", "ele", "eles", "entre", "essa",
        "esse", "esta", "este", "foi", "isso", "isto", "ja", "mais", "mas", "muito", "na", "nao",
        "nas", "nos", "nossa", "nosso", "onde", "ou", "para", "pela", "pelo", "por", "porque",
        "qual", "quando", "que", "quem", "sao", "sem", "seu", "sua", "tem", "um", "uma", "voce",
        "voces",
    )),
    "dutch": frozenset((
        "aan", "bij", "dat", "de", "deze", "doen", "door", "dus", "een", "er", "geen", "haar",
        "heb", "hebben", "heeft", "hem", "het", "hij", "hoe", "hun", "ik", "je", "kan", "maar",
        "meer", "mijn", "naar", "niet", "nog", "nu", "om", "onze", "ook", "tot", "uit", "van",
        "veel", "voor", "waar", "waarom", "wanneer", "wat", "welke", "wie", "wij", "worden",
        "wordt", "zal", "ze", "zich", "zijn", "zo",
    )),
    "swedish": frozenset((
        "alla", "ar", "att", "av", "blir", "da", "de", "det", "detta", "dig", "eller", "en", "ett",
        "fran", "han", "har", "hon", "hur", "inte", "jag", "kan", "med", "mig", "mycket", "nar",
        "och", "oss", "pa", "sig", "ska", "skulle", "som", "till", "upp", "vad", "vara", "varfor",
        "vem", "vi", "vid", "vilka", "vilken",
    )),
    "danish": frozenset((
        "af", "alle", "blev", "bliver", "da", "de", "der", "deres", "det", "dette", "dig", "efter",
        "eller", "en", "er", "et", "fra", "han", "hun", "hvad", "hvem", "hvilken", "hvor",
        "hvordan", "hvorfor", "hvornar", "ikke", "jeg", "kan", "meget", "mig", "nar", "nogle", "og",
        "ogsa", "om", "pa", "sig", "skal", "som", "til", "ud", "ved", "vi", "vores",
    )),
    "norwegian": frozenset((
        "av", "ble", "blir", "da", "de", "deres", "det", "dette", "eller", "en", "er", "et",
        "etter", "fra", "han", "hun", "hva", "hvem", "hvilken", "hvor", "hvordan", "hvorfor",
        "ikke", "jeg", "kan", "mange", "meg", "mye", "nar", "noen", "og", "ogsa", "om", "opp",
        "oss", "pa", "seg", "skal", "som", "til", "ut", "vart", "ved", "vi",
    )),
    "finnish": frozenset((
        "ei", "eivat", "en", "ett", "etta", "han", "hanen", "ja", "joka", "jos", "jotka", "kanssa",
        "koska", "kuin", "kuinka", "kun", "mika", "mikali", "miksi", "milloin", "minka", "missa",
        "mita", "mutta", "myos", "niin", "nyt", "oli", "olla", "ovat", "se", "sita", "sitten",
        "tai", "tama", "tassa", "tuo", "vain", "voi",
    )),
}
_SHARED_WORDS = {
    "german": (
        "also", "am", "an", "bin", "den", "die", "es", "hat", "in", "man", "so", "war", "was",
        "will",
    ),
    "french": ("a", "comment", "en", "me", "on", "pour", "se", "si", "son", "un"),
    "spanish": ("a", "con", "de", "ha", "he", "me", "no", "o", "ser", "son", "te", "un", "ya"),
    "italian": ("a", "come", "con", "i", "in", "me", "mi", "ne", "o", "per", "se", "ti", "un"),
    "portuguese": ("a", "as", "de", "do", "em", "me", "no", "o", "os", "se", "ser", "um"),
    "dutch": ("dan", "had", "in", "is", "men", "met", "of", "over", "te", "was", "we"),
    "swedish": (
        "den", "din", "dom", "en", "han", "i", "man", "men", "om", "sin", "under", "ut", "var",
    ),
    "danish": ("at", "den", "din", "en", "for", "han", "i", "man", "men", "sin", "under", "var"),
    "norwegian": ("den", "din", "en", "for", "han", "i", "man", "men", "sin", "under", "var"),
    "finnish": ("he", "me", "ne", "on", "se", "sen"),
}
"""Words that English has, too: they count only in a text with letters that English lacks."""
# fmt: on
STOP_WORDS = {
    name: listed | frozenset(_SHARED_WORDS[name]) for name, listed in FUNCTION_WORDS.items()
}
_LETTERS = {
    "german": "\u00e4\u00f6\u00fc\u00df",
    "french": "\u00e0\u00e2\u00e7\u00e8\u00e9\u00ea\u00ee\u00f4\u00f9\u0153",
    "spanish": "\u00e1\u00e9\u00ed\u00f1\u00f3\u00fa\u00bf",
    "italian": "\u00e0\u00e8\u00ec\u00f2\u00f9",
    "portuguese": "\u00e1\u00e2\u00e3\u00e7\u00e9\u00ea\u00f3\u00f5",
    "swedish": "\u00e4\u00e5\u00f6",
    "danish": "\u00e5\u00e6\u00f8",
    "norwegian": "\u00e5\u00e6\u00f8",
    "finnish": "\u00e4\u00f6",
}
_ALL_LETTERS = frozenset("".join(_LETTERS.values()))
_ALL_FUNCTION_WORDS = frozenset[str]().union(*FUNCTION_WORDS.values())
_ENGLISH = frozenset(
    (
        *("about", "and", "are", "been", "by", "can", "could", "did", "does", "from", "has"),
        *("have", "her", "his", "how", "is", "it", "its", "my", "not", "our", "she", "should"),
        *("that", "the", "their", "there", "these", "they", "this", "those", "to", "was", "were"),
        *("what", "when", "where", "which", "who", "why", "with", "would", "you", "your"),
    )
)
_SCRIPTS = (
    ("russian", re.compile("[\u0400-\u04ff]")),
    ("greek", re.compile("[\u0370-\u03ff]")),
    ("armenian", re.compile("[\u0530-\u058f]")),
    ("arabic", re.compile("[\u0600-\u06ff]")),
)


class _Stemmer(Protocol):
    def stemWord(self, word: str) -> str: ...  # noqa: N802 (the package's name)


@cache
def fingerprint() -> str:
    """Identifies the installed stemmers; an index stores it with its stems."""
    return f"{_PACKAGE}-{metadata.version(_PACKAGE)}" if _is_installed() else ""


def language_of(text: str, words: Iterable[str]) -> str | None:
    """The language of a text and its words, which are lower-case and without accents; `None` if it
    is English or unknown."""
    if not _is_installed():
        return None
    present = frozenset(words)
    min_words = 1 if len(present) <= _SHORT_TEXT else _MIN_WORDS
    needed = max(min_words, _MIN_SHARE * len(present & _ENGLISH))
    letters = frozenset[str]() if text.isascii() else _ALL_LETTERS.intersection(text.lower())
    word_lists = STOP_WORDS if letters else FUNCTION_WORDS
    if not letters and len(present & _ALL_FUNCTION_WORDS) < needed:
        return None
    counts = Counter(
        {
            name: len(present & listed) + len(letters.intersection(_LETTERS.get(name, "")))
            for name, listed in word_lists.items()
        }
    )
    ((language, count),) = counts.most_common(1)
    return language if count >= needed else None


def script_language(word: str) -> str | None:
    if word.isascii() or not _is_installed():
        return None
    return next((name for name, script in _SCRIPTS if script.search(word)), None)


@lru_cache(maxsize=1 << 15)
def stem_in(language: str, word: str) -> str:
    """The stem of a lower-case word with its accents. The stemmers must be installed."""
    return _stemmer(language).stemWord(word)


@cache
def _stemmer(language: str) -> _Stemmer:
    return cast("_Stemmer", import_module(_PACKAGE).stemmer(language))


@cache
def _is_installed() -> bool:
    try:
        return find_spec(_PACKAGE) is not None
    except ValueError:  # `sys.modules` has `None` for it
        return False
