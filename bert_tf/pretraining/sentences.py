"""Paragraphs -> sentences, by rules without a library and without the name of the language.

    >>> split_sentences("Dr. Li paid 3.14 dollars. Why? 他走了。下雨了。")
    ['Dr. Li paid 3.14 dollars.', 'Why?', '他走了。', '下雨了。']

In doubt, two sentences stay one. Half a sentence that ends in "Mr." harms BERT more than a long one.
Only whitespace between sentences is lost.

A mark ("." "!" "?" "…" and their equivalents in other scripts) ends a sentence, if

    the text before it    is not an abbreviation, initial or ordinal,
    the text after it     begins like a sentence: without a lower-case letter or comma.

Both texts are of bounded length, so the time is linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable

Splitter = Callable[[str], list[str]]

SPLITTERS = ("rules", "sentencex")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Marks that end a sentence anywhere, with or without space after them: East Asian, Indic, Arabic,
# Ethiopic, Tibetan, Khmer, Burmese and Armenian ones.
FINAL_MARKS = "。｡．！？।॥؟۔።፧༎។။։"
_CLOSERS = "\"'”’»›)]}）］｝」』】〉》〕｣"
_OPENERS = "\"'“”„‟‘‚«»‹›([{（［｛「『【〈《〔｢¿¡"
# No part can fail after the first character, so the match never backtracks.
_CANDIDATE = re.compile(
    rf"([.!?…{re.escape(FINAL_MARKS)}]+)"
    # French « Oui. » has a space, German »Ja.« and „Ja.“ close with what opens elsewhere.
    rf"([{re.escape(_CLOSERS)}]*(?:[ \u00a0\u202f]»(?!\w)|[«“](?!\S))?)"
    r"(\s*)"
)

_NUM_CHARACTERS_BEFORE = 40
_NUM_CHARACTERS_AFTER = 40

# Characters that continue a sentence.
_NEVER_FIRST = frozenset(",;:&=+|/%)]}、，；：・.!?…") | frozenset(FINAL_MARKS)

# Abbreviations without their last full stop. Those in lower case may also be capitalized.
# A word always follows these.
_NEVER_LAST = _words(
    """
    mr mrs mx messrs dr drs prof profs mme mlle mgr msgr vs cf viz e.g i.e approx ca resp
    incl excl esp dhr mevr sig dott avv srta sra Ms Br Hr Fr Frl z.b d.h u.a v.a bzw vgl ggf evtl
    inkl sog bijv b.v d.w.z p.ej т.е напр см ср им ул акад проф डॉ प्रो पं
    """
)
# A number follows these if they are abbreviations.
_BEFORE_NUMBER = _words(
    """
    no nos nr nrs num núm vol vols p pp pg pgs pag pág fig figs figg abb tab ch chap chs sec sect art
    arts op opp eq eqs bk bks pt pts vv ver bd hft kap cap lib ed eds jan feb mar apr jun jul aug sep
    sept oct nov dec febr mrt okt dez tel ext max min стр рис гл ст
    """
)
# These occur within a sentence more often than at its end.
_SELDOM_LAST = _words(
    """
    St Ste Mt Ft Pt jr sr esq al Gen Col Lt Maj Capt Cpt Cmdr Cdr Adm Brig Sgt Cpl Pvt Rev Hon Gov Sen
    Rep Pres Supt Sec Det Insp Amb Co Cos corp inc ltd llc plc bros mfg dept univ assn assoc inst est
    ave blvd Rd Hwy Sq Bldg Dist Calif Fla Conn Mass Mich Minn Tenn Wis Colo Ariz Penn Tex Okla Neb Va
    ft lb lbs oz yd sq cu hrs mins trans transl repr rpt illus ibid abbr adj adv c.f geb
    gest verh Hrsg hrsg Jh Mio Mrd Str Univ Sr Sra Ud Uds Dña av apr éd boul гг вв др пр тыс млн
    млрд руб род прим
    """
)
# U.S, p.m, Ph.D, J.R.R
_DOTTED = re.compile(r"(?:[^\W\d_]{1,2}\.)+[^\W\d_]{1,3}")
# One letter after these is a name: World War I, vitamin C, you and I.
_BEFORE_LETTER = _words(
    """
    war vitamin type class group grade hepatitis division part phase plan point act league series
    model appendix chapter category section level influenza schedule pope and or than
    """
)
_EXCLAMATIONS = frozenset({"Yahoo", "Jeopardy", "Wham", "Oklahoma", "Airplane"})

# Words that begin a sentence more often than they are part of a name.
_STARTERS = _words(
    """
    The This That These Those There Then They He She It Its His Her Their We You I A An In On At By For
    From With Without After Before During Since Until While When Where Whereas Whether Although Though
    However But And Or So As If Because Despite Some Many Most Several All Both Each Every One Two Three
    Four Five Other Others Another Such To Not Also Additionally Moreover Furthermore Later Today Once
    Upon Between Among According Following What Who Whose Which Why How Did Does Do Is Are Was Were
    Have Can Could Would Should Now Thus Therefore Hence Unlike Only Even Instead Here Our My Your
    Nevertheless Nonetheless Meanwhile Finally Eventually Initially Originally Subsequently Currently
    Recently Historically Traditionally Generally Usually Often Sometimes Similarly Likewise Conversely
    Through Within Throughout Towards Toward Besides Further Nor Yet Like Using Based Given Critics
    Il Elle Ils Elles Dans Cette Ces Cet Après Avec Mais Puis Es Das Dies Diese Dieser Im Bei Nach Mit
    Für Seit Auch Wenn Während Durch Dabei Damit Ein Eine Sie Wir Ihr Er Het Een Deze Dit Zij
    Он Она Оно Они Это В На После По При Но Так Также Если Когда
    """
)
# "3. Oktober", "19. Jahrhundert"
_AFTER_ORDINAL = _words(
    """
    Januar Jänner Februar März April Mai Juni Juli August September Oktober November Dezember
    Jahrhundert Jahrhunderts Jahrhunderte Jh Jhdt
    """
)
_VERSE = re.compile(r"\d{1,3}:\d")  # 1 Sam. 6:5
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")  # 1,300 m.
_WORD = re.compile(r"[^\W\d_]+")
_ROMAN = re.compile(r"[IVXLC]+\b")
# 「……。」 と言った: the quotation is part of a longer sentence.
_GOES_ON_AFTER_QUOTE = re.compile(
    r"[とのをはがにでもやへ的等和与與及而]|\w{0,4}[说說问問道喊答称稱]"
)
_TITLE_CLOSERS = frozenset("》〉】")
# 그는 "왜?" 라고 물었다: the same with a space.
_KOREAN_PARTICLE = re.compile(
    r"(?:(?:이?라)?[고는며면]|이?라고\w+|하[고며는였]\w*|와|과|은|가|을|를|의|에|에서|으?로|도|등|이다)(?!\w)"
)
_BRACKETED = {")": "(", "]": "[", "）": "（"}
_OMISSION = re.compile(r"[(\[（](?:\.\.\.|…)[)\]）]\s*")
# Characters that join a word to the one before it: 햄블렌(G.W. Hamblen), Sept.-Oct. 1973
_STUCK = re.compile(r"[-–—/(\[{（「『\"“‘«]")


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a paragraph, without space around them and without empty ones.

    Args:
        text: of any length, in any language. Ends of lines count as spaces.
    """
    sentences = []
    start = 0
    for candidate in _CANDIDATE.finditer(text):
        if _ends_sentence(text, start, candidate):
            sentences.append(text[start : candidate.end()].strip())
            start = candidate.end()
    sentences.append(text[start:].strip())
    return [sentence for sentence in sentences if sentence]


def make_splitter(name: str = "rules", language: str = "en") -> Splitter:
    """Return a function that splits a paragraph into sentences.

    Args:
        name: "rules" for `split_sentences`, or "sentencex" for Wikimedia's library of that name,
            which has abbreviations of many languages.
        language: ISO code for sentencex, which falls back on a related language, then on English.
            The rules are the same for all languages.

    Raises:
        ImportError: the library is not installed.
        ValueError: `name` is unknown.
    """
    if name == "rules":
        return split_sentences
    if name != "sentencex":
        raise ValueError(f"`splitter` is {name!r}, but must be one of {', '.join(SPLITTERS)}.")
    try:
        import sentencex
    except ImportError as error:
        raise ImportError(
            "The splitter sentencex is a library that is not installed. Install it with "
            "`pip install -e '.[sentences]'` in the checkout of bert_tf, or use the splitter rules."
        ) from error

    def split(text: str) -> list[str]:
        pieces = (piece.strip() for piece in sentencex.segment(language, text))
        return [piece for piece in pieces if piece]

    return split


def _ends_sentence(text: str, start: int, candidate: re.Match[str]) -> bool:
    """Return True if the sentence that begins at `start` ends with this mark."""
    end = candidate.end()
    if end == len(text):
        return True
    marks, closers, space = candidate.groups()
    if not space and marks[-1] in ".!?…":
        return marks[-1] != "…" and _ends_without_space(text, candidate.start(), end)
    character_before = text[candidate.start() - 1 : candidate.start()]
    if closers and _BRACKETED.get(closers[0]) == character_before:  # (!) or [...]
        return False
    after = text[end : end + _NUM_CHARACTERS_AFTER]
    first = _OMISSION.sub("", after).lstrip(_OPENERS)
    if not first or first[0] in _NEVER_FIRST:
        return False
    if marks[-1] in FINAL_MARKS:
        return _ends_with_final_mark(marks, closers, space, after)
    if first[0].islower() and not first[1:2].isupper():  # but iPhone
        # A lower-case letter means nothing after a letter of a script without capitals.
        return character_before.isalpha() and not _is_cased(character_before)
    if closers and (_KOREAN_PARTICLE.match(first) or (marks in "?!" and after[0] in "(（")):
        return False
    if marks != "." and marks[-1] in ".…" and character_before.isspace():  # an omission
        return first[0].isupper()
    if marks == ".":
        before = text[max(start, candidate.start() - _NUM_CHARACTERS_BEFORE) : candidate.start()]
        return _full_stop_ends(before, first, candidate.start() - start)
    if marks == "!" and not closers:
        before = text[max(start, candidate.start() - _NUM_CHARACTERS_BEFORE) : candidate.start()]
        return _last_word(before) not in _EXCLAMATIONS or _is_starter(first)
    return True


def _is_cased(character: str) -> bool:
    return character.isupper() or character.islower()


def _ends_without_space(text: str, mark: int, end: int) -> bool:
    """Decide on Latin marks in scripts without spaces, and on Korean without one: 했다.그러나"""
    before, after = text[mark - 1 : mark], text[end]
    return (_is_han_or_kana(before) and _is_han_or_kana(after)) or (
        before in ("다", "요") and "가" <= after <= "힣"
    )


def _is_han_or_kana(character: str) -> bool:
    return "\u3041" <= character <= "\u30ff" or "\u3400" <= character <= "\u9fff"


def _ends_with_final_mark(marks: str, closers: str, space: str, after: str) -> bool:
    if marks[-1] == "．" and after[0].isdigit():  # ３．１４
        return False
    if not closers or space:
        return True
    # A title (《走吧！》) or a quotation within a sentence.
    return closers[-1] not in _TITLE_CLOSERS and not _GOES_ON_AFTER_QUOTE.match(after)


def _full_stop_ends(before: str, first: str, sentence_length: int) -> bool:
    """Return True if "." ends a sentence.

    Args:
        before: the text before it, at most from the beginning of the sentence.
        first: the text after it, without space and opening quotation marks or brackets.
        sentence_length: characters from the beginning of the sentence to the full stop.
    """
    word = _last_word(before)
    lower = word.lower()
    if word.isdecimal():
        return not (word == before.strip() or _is_ordinal(word, before, first))
    is_letter = len(word) == 1 and _is_cased(word)
    if sentence_length <= 5 and (is_letter or _ROMAN.fullmatch(word)) and word == before.strip():
        return False  # an enumeration: a. or II.
    if word in _NEVER_LAST or lower in _NEVER_LAST:
        return False
    numbered = word in _BEFORE_NUMBER or lower in _BEFORE_NUMBER
    seldom_last = (
        is_letter or word in _SELDOM_LAST or lower in _SELDOM_LAST or _DOTTED.fullmatch(word)
    )
    if first[0].isdigit():
        return not (numbered or seldom_last or _VERSE.match(first))
    if numbered and lower not in ("no", "nos") and _ROMAN.match(first):
        return False
    if is_letter:
        previous = _word_before_last(before).lower()
        if previous in _BEFORE_LETTER or (word.islower() and _NUMBER.fullmatch(previous)):
            return True
    return not seldom_last or _is_starter(first)


def _last_word(before: str) -> str:
    words = before.rsplit(None, 1)
    return _STUCK.split(words[-1])[-1].lstrip("'") if words else ""


def _word_before_last(before: str) -> str:
    words = before.split()
    return words[-2].lstrip(_OPENERS) if len(words) > 1 else ""


def _is_ordinal(word: str, before: str, first: str) -> bool:
    """Return True if a number with a full stop is an ordinal or date: 3. Oktober, 2005. 3. 1."""
    if len(word) > 2:
        return bool(re.match(r"\d{1,2}\.\s", first))
    if first[0].isdigit() or re.fullmatch(r"\d+\.", _word_before_last(before)):
        return True
    match = _WORD.match(first)
    return match is not None and match[0] in _AFTER_ORDINAL


def _is_starter(first: str) -> bool:
    match = _WORD.match(first)
    if match is None or match[0] not in _STARTERS:
        return False
    return match.end() > 1 or first[1:2] != "."  # "A." would be one more initial
