"""The text of an answer: what the reference's alignment gives, by hand."""

import pytest

from bert_tf.tasks.answer_decoding import get_final_text, join_pieces
from bert_tf.tokenization import BasicTokenizer


@pytest.mark.parametrize(
    "predicted, original, expected",
    [
        ("steve smith", "Steve Smith's", "Steve Smith"),
        ("1895", "(1895-1943).", "1895"),
        ("1895 - 1943", "(1895-1943).", "1895-1943"),
        ("$ 5 , 000", "cost $5,000,", "$5,000"),
        ("resume", "a résumé", "résumé"),
        ("東", "東京", "東"),
        ("smith", "SMITH smith", "SMITH"),  # the first of several
    ],
)
def test_the_answer_is_found_in_the_words_it_is_of(predicted, original, expected):
    assert get_final_text(predicted, original, BasicTokenizer()) == expected


@pytest.mark.parametrize(
    "predicted, original, sentence",
    [
        ("[UNK]", "ЖЖ won", "Unable to find text: '[UNK]' in 'ЖЖ won'"),
        ("won", "x\u00a0won.", "Length not equal after stripping spaces: "),  # one char is gone
        ("", "won.", "No character of 'won.' is ''"),
    ],
)
def test_where_the_two_do_not_fit_the_answer_is_all_the_words_and_that_is_said(
    predicted, original, sentence
):
    said = []
    assert get_final_text(predicted, original, BasicTokenizer(), said.append) == original
    assert len(said) == 1 and said[0].startswith(sentence)


def test_a_cased_answer_keeps_its_case():
    tokenizer = BasicTokenizer(do_lower_case=False)
    assert get_final_text("Smith", "Smith's", tokenizer) == "Smith"
    assert get_final_text("smith", "Smith's", tokenizer) == "Smith's"


def test_pieces_are_joined_to_words():
    assert join_pieces(["un", "##aff", "##able", "##", "!"]) == "unaffable !"
