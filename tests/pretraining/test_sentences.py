"""Paragraphs -> sentences."""

import sys
import types

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_tf.pretraining.sentences import make_splitter, split_sentences

# "|" stands where a sentence ends; the space around it is what the splitter takes away.
SPLITS = {
    "plain": "It rains. | We stay! | Why? | Because.",
    "quotation": 'He left." | She said no. | "Is it?" he asked. | He wrote "Stop." | She did.',
    "brackets": "(It was late.) | They left (or not). | So (he says!) it was.",
    "mark in brackets": "It cost (!) a lot. | He wrote [...] and went. | [...] Then he slept.",
    "ellipsis": "Well... maybe. | Well... | Maybe not … | Or so. | Wait . . . what?",
    "titles": "Dr. Smith met Mr. Jones, Prof. Li and St. Paul. | Gen. Grant (cf. Lee) won.",
    "initials": "J. R. R. Tolkien, C.S. Lewis and Ulysses S. Grant. | George W. Bush.",
    "latin": "Some, e.g. Haida, i.e. (Eagles), vs. Ravens etc. are here. | Smith et al. 1999 is it.",
    "states": "He came to the U.S. | The U.S. Army called at 5 p.m. | Then he left the U.K. | So.",
    "firms": "Acme Inc. Chairman Li sold Foo Ltd. | The price fell.",
    "numbers": "No. 5, vol. 3, pp. 12, Vol. II, Fig. 2 of Sept. 11. | It is 3.14 or 1,000.5. | 12 left.",
    "verses": "It says so (1 Sam. 6:5; cf. Josh. 7:6-9).",
    "no": "He said no. | No. | I did not.",
    "things by letters": "In World War I. | German troops left. | Vitamin C. | You and I. | Did you?",
    "units": "It has two CPU's. | It lies at 1,300 m. | Andorra is high. | In 2001 J. Li came.",
    "addresses": "See https://a.b/c?d=e.f!g and v2.0.1 of example.com. | It is new.",
    "names with marks": "Yahoo! is big. | Yahoo! Mail is not. | He likes Yahoo! | But she does not.",
    "lower case goes on": "The no. of them. and so on! or not? maybe.",
    "names in lower case": "He bought one. | iPhones are dear. | eBay sells them.",
    "enumeration": "1. The first. | 2. The second.",
    "letters that count": "a. This is it.",
    "Roman numbers that count": "II. That is it.",
    "German": "Am 3. Oktober 1990, z. B. in Bonn. | Im 19. Jahrhundert bzw. später. | Er kam ca. 1830.",
    "German quotation": "Er sagte: »Nein.« | Dann ging er. | „Ja.“ | Sie blieb.",
    "French": "Il a dit : « Oui. » | Puis M. Dupont et Mme Curie partirent. | Pourquoi ? | Parce que.",
    "Russian": "А. С. Пушкин родился в 1799 г. | Он умер, т. е. погиб. | Москва.",
    "Chinese": "他走了。|下雨了！|真的吗？|他说：“走吧！”|然后走了。|「对。」|她笑了。",
    "Chinese titles": "见《你好！》一书。|他说。|“对。”",
    "Chinese, goes on": "“走吧！”他说。|「是。」的意思",
    "Chinese with Latin marks": "他走了.|下雨了?|是的!|好",
    "Chinese names": "有I.康德、J.G.费希特。|C·赖特（C. Wright Mills）。",
    "full width": "値は３．１４です。|終わり．|次",
    "Japanese": "「そうです。」と言った。|東京に行きました。|雨？|はい。",
    "Korean": "그는 갔다. | 왜? | 몰랐다! | 그는 '왜?' 라고 물었다. | 끝났다.|제1.2조는 남았다.",
    "Korean and formulas": "삼각형을 그리자. | formula_18를 지나는 원이다.",
    "Korean dates": "2005. 3. 1. 태어났다. | 그는 2005. 3. 1. 죽었다. | 그 후.",
    "Hindi": "यह एक वाक्य है। | डॉ. सिंह आए। | क्या? | हाँ॥",
    "Arabic": "هل هذا سؤال؟ | نعم. | هذا جواب.",
    "Urdu": "یہ ہے۔ | وہ نہیں۔",
}  # fmt: skip


@pytest.mark.parametrize("kind", SPLITS)
def test_sentences_end_where_a_reader_would_end_them(kind):
    text = SPLITS[kind]
    joined = text.replace(" | ", " ").replace("|", "")
    assert split_sentences(joined) == [sentence.strip() for sentence in text.split("|")]


@pytest.mark.parametrize("text", ["", " \n\t\u3000"])
def test_where_there_is_no_text_there_is_no_sentence(text):
    assert split_sentences(text) == []


def test_ends_of_lines_are_space():
    assert split_sentences("It rains\nagain.\r\n\nWe stay.\n") == ["It rains\nagain.", "We stay."]


PIECES = st.sampled_from(
    [
        *"aA1.!?…。？」”\"'()[]»« \n\u00a0",
        "Dr",
        "U.S",
        "No",
        "The",
        "다",
        "라고",
        "走",
        "है",
        "।",
        "...",
    ]
)


@given(st.one_of(st.text(), st.lists(PIECES).map("".join)))
def test_only_whitespace_is_lost(text):
    sentences = split_sentences(text)
    assert "".join("".join(sentences).split()) == "".join(text.split())
    assert all(sentence and sentence == sentence.strip() for sentence in sentences)


@given(st.lists(PIECES, max_size=60).map("".join))
def test_a_sentence_is_found_again_in_what_was_split(text):
    position = 0
    for sentence in split_sentences(text):
        position = text.index(sentence, position) + len(sentence)


@pytest.mark.parametrize(
    "piece",
    [
        "a",
        " ",
        ".",
        '."',
        ".)x",
        "!?",
        "(",
        "a.",
        "I. ",
        "1. ",
        "U.S. ",
        "« ",
        ". »x",
        "[...] ",
        "。」と",
    ],
)
def test_a_line_of_a_megabyte_is_no_trouble(piece):
    # Any step that looked at more than a few characters per mark would take hours here.
    text = piece * (1_000_000 // len(piece))
    assert sum(map(len, split_sentences(text))) <= len(text)


def test_no_rule_looks_at_more_than_a_few_characters(monkeypatch):
    from bert_tf.pretraining import sentences

    looked_at = []
    full_stop_ends = sentences._full_stop_ends

    def counting(before, first, sentence_length):
        looked_at.append(len(before) + len(first))
        return full_stop_ends(before, first, sentence_length)

    monkeypatch.setattr(sentences, "_full_stop_ends", counting)
    split_sentences("x" * 5_000 + "Dr. " + "Y" * 5_000 + ". Z")
    assert looked_at == [80, 41]


# Splitters by name


def test_the_rules_are_the_default():
    assert make_splitter() is make_splitter("rules", language="ko") is split_sentences


def test_a_library_that_is_missing_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentencex", None)
    with pytest.raises(ImportError, match=r"pip install -e '\.\[sentences\]\'"):
        make_splitter("sentencex")


def test_a_library_is_asked_with_the_language(monkeypatch):
    asked = []

    def segment(language, text):
        asked.append((language, text))
        return ["Eins. ", "\n\n", " Zwei."]

    monkeypatch.setitem(sys.modules, "sentencex", types.SimpleNamespace(segment=segment))
    assert make_splitter("sentencex", "de")("Eins. \n\n Zwei.") == ["Eins.", "Zwei."]
    assert asked == [("de", "Eins. \n\n Zwei.")]


def test_sentencex_keeps_all_text():
    pytest.importorskip("sentencex")
    text = "Dr. Smith left. 他走了。She stayed…\n\nWhy? "
    sentences = make_splitter("sentencex")(text)
    assert len(sentences) >= 3
    assert "".join("".join(sentences).split()) == "".join(text.split())


def test_an_unknown_splitter_is_refused():
    with pytest.raises(
        ValueError, match="`splitter` is 'nltk', but must be one of rules, sentencex"
    ):
        make_splitter("nltk")
