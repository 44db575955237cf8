"""BERT's tokenization rules, written down once more as plainly as possible.

The oracle for `bert_tf.tokenization` and `bert_tf.serving.text_tokenizer`. It shares no code with
them, looks at one character after the other, and cares for nothing but being easy to check against
the rules of google-research/bert, tokenization.py:

1. Drop U+0000, U+FFFD, and characters of the categories Cc and Cf other than tab, line feed and
   carriage return.
2. Turn those three and everything in category Zs into a space.
3. Put a space on both sides of each ideograph.
4. Split at whitespace, in the sense of `str.split`.
5. If uncased, lower-case each word, decompose it (NFD), and drop the characters in category Mn.
6. Cut each word before and after each punctuation character: ASCII 33-47, 58-64, 91-96, 123-126,
   and the categories P*.
7. A word of more than 200 characters is [UNK]. Otherwise take the longest piece of the vocabulary
   that the word starts with, then go on behind it with the pieces marked "##". A word that cannot
   be covered is [UNK] as a whole.
"""

import unicodedata


def word_pieces(text, vocab, do_lower_case):
    """The word pieces of `text` (list of str); `vocab` is anything that knows `in`."""
    return [piece for word in basic_tokens(text, do_lower_case) for piece in cover(word, vocab)]


def basic_tokens(text, do_lower_case):
    """Rules 1 to 6."""
    spaced = ""
    for char in text:
        if char in "\t\n\r" or unicodedata.category(char) == "Zs":
            spaced += " "
        elif char in "\x00\ufffd" or unicodedata.category(char) in ("Cc", "Cf"):
            pass
        elif is_ideograph(char):
            spaced += " " + char + " "
        else:
            spaced += char

    tokens = []
    for word in spaced.split():
        if do_lower_case:
            decomposed = unicodedata.normalize("NFD", word.lower())
            word = "".join(char for char in decomposed if unicodedata.category(char) != "Mn")
        token = ""
        for char in word:
            if is_punctuation(char):
                tokens += [token, char]
                token = ""
            else:
                token += char
        tokens.append(token)
    return " ".join(tokens).split()


def cover(word, vocab):
    """Rule 7 for one word."""
    if len(word) > 200:
        return ["[UNK]"]
    pieces = []
    rest = word
    while rest:
        mark = "##" if pieces else ""
        fitting = [n for n in range(1, len(rest) + 1) if mark + rest[:n] in vocab]
        if not fitting:
            return ["[UNK]"]
        pieces.append(mark + rest[: max(fitting)])
        rest = rest[max(fitting) :]
    return pieces


def is_punctuation(char):
    code = ord(char)
    in_ascii = 33 <= code <= 47 or 58 <= code <= 64 or 91 <= code <= 96 or 123 <= code <= 126
    return in_ascii or unicodedata.category(char)[0] == "P"


IDEOGRAPHS = (
    *((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F)),
    *((0x2B740, 0x2B81F), (0x2B820, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F)),
)


def is_ideograph(char):
    return any(first <= ord(char) <= last for first, last in IDEOGRAPHS)
