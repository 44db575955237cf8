"""visualize: a page that needs nothing but a browser, and what a browser makes of it."""

import base64
import html
import re

import numpy as np
import pytest
import tiny_text_models as tiny
from pages import data_of, in_browser, needs_browser

from bert_tf.embeddings.task import EmbeddingTask
from bert_tf.options import make_options
from bert_tf.prediction.visualize import VisualizationOptions, attention, visualize
from bert_tf.tasks.token_classification import TokenClassificationTask


@pytest.fixture
def page(tmp_path):
    """Function that writes the page of a model in memory and returns its path."""

    def page(trained, text, **flags):
        path = tmp_path / "page.html"
        options = make_options(
            VisualizationOptions, model_dir="m", text=text, output_file=str(path), **flags
        )
        visualize(options, trained)
        return path

    return page


def parts_of(path):
    """Return kind -> part of the page, the last of each kind."""
    sections = data_of(path.read_text())["sections"]
    return {part["kind"]: part for section in sections for part in section["parts"]}


def test_page_has_the_attention_of_every_head(page):
    trained = tiny.classifier()
    data = parts_of(page(trained, "the cat sat"))["attention"]
    assert data["tokens"] == ["[CLS]", "the", "cat", "sat", "[SEP]"]
    levels = np.frombuffer(base64.b64decode(data["levels"]), np.uint8)
    expected = attention(trained.model.bert, tiny.alone("the cat sat"))
    np.testing.assert_allclose(levels.reshape(2, 3, 5, 5) / 255, expected, atol=0.5 / 255 + 1e-6)


ENTITIES = TokenClassificationTask(("O", "B-X"), 11)
KINDS = [  # the model, a text, what its page has
    (tiny.classifier, "the cat", "log-odds of"),
    (lambda: tiny.classifier("regression"), "the cat", "gradients of the score"),
    (lambda: tiny.classifier(is_pair=True), "the cat ||| a dog", "the cat | a dog"),
    (lambda: tiny.classifier(doc_stride=4), tiny.TEXTS[3], '["tokens", "11, at most 11"]'),
    (lambda: tiny.answerer(version_2_with_negative=True), "who ? ||| a cat", '["answer", "'),
    (tiny.chooser, "who ? ||| a dog ||| a cat", '["answer", "a '),
    (tiny.pretrained, "the [MASK] sat", '["answer", "'),
    (lambda: tiny.trained(None), "the cat ||| a dog", '["tokens", "7, at most 11"]'),
    (lambda: tiny.trained(ENTITIES), "cat", '["answer", '),
    (lambda: tiny.trained(EmbeddingTask(11)), "a cat", '["tokens", "4, '),
]


@pytest.mark.night
def test_page_of_each_type_of_model(page, eagerly):
    for make, text, expected in KINDS:
        content = page(make(), text).read_text()
        assert expected in content and '"kind": "attention"' in content
        addresses = set(re.findall(r"\w+://[^\s\"'<]+", content))
        assert addresses == {"http://www.w3.org/2000/svg"}, text  # a name, which no browser fetches


def test_label_is_explained_or_rejected(page, eagerly):
    assert "log-odds of fair" in page(tiny.classifier(), "the cat", label="fair").read_text()
    with pytest.raises(ValueError, match="odd"):
        page(tiny.classifier(), "the cat", label="odd")


def test_texts_cannot_break_out_of_the_page(page):
    trained = tiny.trained(None)
    trained.tokenizer.inv_vocab[tiny.TOKENS.index("cat")] = "</script><b>"
    content = page(trained, "<i>x</i> cat").read_text()
    assert "</script><b>" not in content and "<i>" not in content


@needs_browser
def test_browser_draws_every_head_and_the_chosen_one_large(page):
    text = "the cat sat on <b> ."
    path = page(tiny.classifier(), text)
    shown, complaints = in_browser(path, "#1.2.3")  # layer 1, head 2, the token "sat"
    assert complaints == [] and html.escape(text) in shown
    assert shown.count("<canvas") == 2 * (3 + 1)  # layers, heads and their mean
    assert "<h3>Layer 1, head 2</h3>" in shown
