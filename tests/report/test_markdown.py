"""Cells of a table and code, with signs of Markdown in them."""

from bert_tf.report.markdown import code, number


def test_labels_with_signs_of_markdown_stay_in_their_cell():
    assert code("a|b") == "`a\\|b`"
    assert code("a`b\n## Metrics") == "`` a`b ## Metrics ``"
    assert code("``") == "``` `` ```"  # a tag of the Penn Treebank


def test_figures_are_short_and_words_stay_words():
    assert number("1234567") == "1234567"
    assert number("0.123456789") == "0.123457"
    assert number("a|b") == "`a\\|b`"
