"""Splits texts into words and stems, in the same way for every index and every query.

The stemmer is Porter's second algorithm for English ("Snowball"). A text in another language also
has the stems of that language (`languages.py`), so that a short question, whose language is
unclear, finds it. Chinese, Japanese and Korean text, which has no spaces, is split into pairs of
characters.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

from mainspring.retrieval import languages
from mainspring.retrieval.languages import language_of, script_language, stem_in

_FINGERPRINT = "porter2/2"
"""Changes whenever the stems of a text change."""

# fmt: off
STOP_WORDS = frozenset((
    "a", "an", "the", "and", "or", "but", "if", "of", "to", "in", "on", "at", "by", "for", "with",
    "from", "as", "is", "are", "was", "were", "be", "been", "being", "do", "does", "did", "doing",
    "have", "has", "had", "having", "i", "you", "he", "she", "it", "we", "they", "me", "him", "her",
    "us", "them", "my", "your", "his", "its", "our", "their", "this", "that", "these", "those",
    "what", "which", "who", "whom", "when", "where", "why", "how", "not", "no", "nor", "so", "than",
    "too", "very", "can", "could", "will", "would", "shall", "should", "may", "might", "must",
    "about", "into", "over", "after", "before", "then", "there", "here", "again", "also", "just",
    "s", "t", "d", "ll", "m", "o", "re", "ve", "y", "don",
))
# fmt: on
_WORD = re.compile(r"[a-z0-9]+|[^\W_]+")
_WORD_WITH_ACCENTS = re.compile(r"[^\W_]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NO_SPACES = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]")


def words(text: str) -> list[str]:
    """Lower-case words without accents; a pair of characters where a script has no spaces."""
    plain = text if text.isascii() else _without_accents(text)
    raw_words = _WORD.findall(plain.lower())
    if plain.isascii():
        return raw_words
    return [part for word in raw_words for part in _parts(word)]


def name_words(name: str) -> list[str]:
    """The words of a name in any case: `readFile`, `read_file`, `read-file`."""
    return words(_CAMEL.sub(" ", name))


def content_words(text: str) -> list[str]:
    return [word for word in words(text) if word not in STOP_WORDS]


def stems(text: str) -> list[str]:
    """The stems of the words, in order, without stop words. For a text in another language, its
    stems in that language come first, then the stems that do not depend on the language."""
    plain = words(text)
    language = language_of(text, plain)
    if language is None and text.isascii():
        return [stem(word) for word in plain if word not in STOP_WORDS]
    ignored = languages.STOP_WORDS[language] if language else STOP_WORDS
    general = [stem(word) for word in plain if word not in ignored]
    specific = list(_stems_in(language, text, ignored))
    specific_set = frozenset(specific)
    return [*specific, *(word for word in general if word not in specific_set)]


def _stems_in(language: str | None, text: str, ignored: frozenset[str]) -> Iterator[str]:
    """The stems of words whose language is known and not English."""
    for word in _WORD_WITH_ACCENTS.findall(unicodedata.normalize("NFC", text).lower()):
        plain = _without_accents(word)
        own = script_language(word) or (language if plain.isascii() else None)
        if own is not None and plain not in ignored:
            yield _without_accents(stem_in(own, word))


def fingerprint() -> str:
    """Identifies the stemming; an index stores it with its stems, and is rebuilt if it changes."""
    return f"{_FINGERPRINT}/{languages.fingerprint()}"


def _without_accents(text: str) -> str:
    decomposed = unicodedata.normalize("NFKD", text)
    if decomposed.isascii():
        return decomposed
    bare = "".join(char for char in decomposed if not unicodedata.combining(char))
    return unicodedata.normalize("NFKC", bare)  # composes Hangul again


def _parts(word: str) -> list[str]:
    if word.isascii() or not _NO_SPACES.search(word):
        return [word]
    return [word[at : at + 2] for at in range(len(word) - 1)] or [word]


_VOWELS = frozenset("aeiouy")
_DOUBLES = frozenset(("bb", "dd", "ff", "gg", "mm", "nn", "pp", "rr", "tt"))
_LI_ENDINGS = frozenset("cdeghkmnrt")
_LONG_PREFIXES = (
    *("arsen", "commun", "emerg", "gener", "inter", "later", "organ", "past", "univers"),
)
_IRREGULAR = {
    "skis": "ski",
    "skies": "sky",
    "dying": "die",
    "lying": "lie",
    "tying": "tie",
    "idly": "idl",
    "gently": "gentl",
    "ugly": "ugli",
    "early": "earli",
    "only": "onli",
    "singly": "singl",
    **{word: word for word in ("sky", "news", "howe", "atlas", "cosmos", "bias", "andes")},
}
_FIXED = frozenset(
    ("inning", "outing", "canning", "herring", "earring", "evening", "proceed", "exceed", "succeed")
)
_STEP_2 = (
    ("ational", "ate"),
    ("fulness", "ful"),
    ("iveness", "ive"),
    ("ization", "ize"),
    ("ousness", "ous"),
    ("biliti", "ble"),
    ("lessli", "less"),
    ("tional", "tion"),
    ("alism", "al"),
    ("aliti", "al"),
    ("ation", "ate"),
    ("entli", "ent"),
    ("fulli", "ful"),
    ("iviti", "ive"),
    ("ousli", "ous"),
    ("abli", "able"),
    ("alli", "al"),
    ("anci", "ance"),
    ("ator", "ate"),
    ("enci", "ence"),
    ("izer", "ize"),
    ("bli", "ble"),
)
_STEP_3 = (
    ("ational", "ate"),
    ("tional", "tion"),
    ("alize", "al"),
    ("icate", "ic"),
    ("iciti", "ic"),
    ("ical", "ic"),
    ("ness", ""),
    ("ful", ""),
)
# fmt: off
_STEP_4 = (
    "ement", "able", "ance", "ence", "ible", "ment", "ant", "ate", "ent", "ism", "iti", "ive",
    "ize", "ous", "al", "er", "ic",
)
# fmt: on


@lru_cache(maxsize=1 << 16)
def stem(word: str) -> str:
    """The stem of a lower-case word."""
    if len(word) <= 2 or not word.isascii() or not word.isalpha():
        return word
    if (irregular := _IRREGULAR.get(word)) is not None:
        return irregular
    word = _mark_consonant_y(word)
    r1, r2 = _regions(word)
    word = _plural(word)
    if word in _FIXED:
        return word
    word = _past_and_gerund(word, r1)
    if len(word) > 2 and word[-1] in "yY" and word[-2] not in _VOWELS:
        word = f"{word[:-1]}i"
    word = _derivation(word, r1)
    word = _step_3(word, r1, r2)
    word = _step_4(word, r2)
    return _final_letters(word, r1, r2).replace("Y", "y")


def _mark_consonant_y(word: str) -> str:
    if "y" not in word:
        return word
    marked = list(word)
    for at, char in enumerate(word):
        if char == "y" and (at == 0 or marked[at - 1] in _VOWELS):
            marked[at] = "Y"
    return "".join(marked)


def _regions(word: str) -> tuple[int, int]:
    prefix = next((item for item in _LONG_PREFIXES if word.startswith(item)), None)
    r1 = len(prefix) if prefix else _after_vowel_and_consonant(word, 0)
    return r1, _after_vowel_and_consonant(word, r1)


def _after_vowel_and_consonant(word: str, start: int) -> int:
    for at in range(start + 1, len(word)):
        if word[at] not in _VOWELS and word[at - 1] in _VOWELS:
            return at + 1
    return len(word)


def _has_vowel(part: str) -> bool:
    return any(char in _VOWELS for char in part)


def _plural(word: str) -> str:
    if word.endswith("sses"):
        return word[:-2]
    if word.endswith(("ied", "ies")):
        return word[:-2] if len(word) > 4 else word[:-1]
    if word.endswith("s") and not word.endswith(("us", "ss")) and _has_vowel(word[:-2]):
        return word[:-1]
    return word


def _past_and_gerund(word: str, r1: int) -> str:
    for ending in ("eedly", "eed"):
        if word.endswith(ending):
            cut = len(word) - len(ending)
            return f"{word[:cut]}ee" if cut >= r1 else word
    for ending in ("ingly", "edly", "ing", "ed"):
        if word.endswith(ending):
            base = word[: -len(ending)]
            return _restore_ending(base, r1) if _has_vowel(base) else word
    return word


def _restore_ending(base: str, r1: int) -> str:
    if base.endswith(("at", "bl", "iz")):
        return f"{base}e"
    if base[-2:] in _DOUBLES:
        return base if len(base) == 3 and base[0] in "aeo" else base[:-1]  # add, egg, odd
    return f"{base}e" if r1 >= len(base) and _ends_in_short_syllable(base) else base


def _ends_in_short_syllable(word: str) -> bool:
    if len(word) == 2:
        return word[0] in _VOWELS and word[1] not in _VOWELS
    return (
        len(word) > 2
        and word[-1] not in _VOWELS
        and word[-1] not in "wxY"
        and word[-2] in _VOWELS
        and word[-3] not in _VOWELS
    )


def _derivation(word: str, r1: int) -> str:
    for ending, replacement in _STEP_2:
        if word.endswith(ending):
            cut = len(word) - len(ending)
            return f"{word[:cut]}{replacement}" if cut >= r1 else word
    if word.endswith("logi") and len(word) - 3 >= r1:
        return word[:-1]
    if word.endswith("li") and len(word) - 2 >= r1 and word[-3:-2] in _LI_ENDINGS:
        return word[:-2]
    return word


def _step_3(word: str, r1: int, r2: int) -> str:
    if word.endswith("ative"):
        return word[:-5] if len(word) - 5 >= r2 else word
    for ending, replacement in _STEP_3:
        if word.endswith(ending):
            cut = len(word) - len(ending)
            return f"{word[:cut]}{replacement}" if cut >= r1 else word
    return word


def _step_4(word: str, r2: int) -> str:
    for ending in _STEP_4:
        if word.endswith(ending):
            cut = len(word) - len(ending)
            return word[:cut] if cut >= r2 else word
    if word.endswith(("sion", "tion")) and len(word) - 3 >= r2:
        return word[:-3]
    return word


def _final_letters(word: str, r1: int, r2: int) -> str:
    if word.endswith("e"):
        cut = len(word) - 1
        if cut >= r2 or (cut >= r1 and not _ends_in_short_syllable(word[:-1])):
            return word[:-1]
    elif word.endswith("ll") and len(word) - 1 >= r2:
        return word[:-1]
    return word
