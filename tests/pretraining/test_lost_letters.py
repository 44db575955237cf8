"""What stripping accents does to a text."""

import unicodedata

import pytest

from bert_tf.pretraining.lost_letters import find_lost_letters


@pytest.mark.parametrize(
    "text, script, share, word, stripped",
    [
        ("한국어는", "Hangul", 1, "한국어는", "ᄒ ᅡ ᆫ ᄀ ᅮ ᆨ ᄋ ᅥ ᄂ ᅳ ᆫ"),
        ("がくせい です", "Hiragana", 2 / 6, "がくせい", "かくせい"),
        ("नमस्ते", "Devanagari", 2 / 6, "नमस्ते", "नमसत"),
        ("Чужой май", "Cyrillic", 2 / 8, "чужой", "чужои"),
        ("Größe", "Latin", 1 / 5, "größe", "große"),
        (unicodedata.normalize("NFD", "naïve"), "Combining", 1 / 6, "nai\u0308ve", "naive"),
    ],
)
def test_it_names_the_script_the_share_and_a_word(text, script, share, word, stripped):
    lost = find_lost_letters([text])
    assert (lost.script, lost.word, lost.stripped) == (script, word, stripped)
    assert lost.fraction == pytest.approx(share)


def test_the_most_frequent_word_and_script_are_named():
    lost = find_lost_letters(["Élan und Übel", "Übel und Чужой"])
    assert (lost.script, lost.word) == ("Latin", "übel")


@pytest.mark.parametrize("text", ["", "STRASSE 1,5 % – “quoted”", "數學有", "Ω ØÆ ł"])
def test_a_text_that_only_loses_its_case_loses_no_letters(text):
    assert find_lost_letters([text]) is None


def test_of_a_sentence_without_spaces_a_part_is_shown():
    lost = find_lost_letters(["きのうわたしはえきのまえでともだちとあいました"])
    assert lost.word == "まえでと" and lost.stripped == "まえてと"
