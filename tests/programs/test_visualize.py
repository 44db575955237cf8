"""visualize: a page that needs nothing but a browser, and what a browser makes of it."""

import base64
import html
import re

import numpy as np
import pytest
import tiny_text_models as tiny
from pages import data_of, in_browser, needs_browser, widths_in_browser

from bert_tf.prediction.explanation import attention
from bert_tf.programs import visualize as visualize_module
from bert_tf.programs.visualize import VisualizationOptions, visualize
from bert_tf.report.attention_page import opening_head
from bert_tf.tasks.embeddings import EmbeddingTask
from bert_tf.tasks.token_classification import TokenClassificationTask


@pytest.fixture
def page(monkeypatch, tmp_path):
    """Writes the page of a model that is in memory; its path."""

    def page(trained, text, **flags):
        monkeypatch.setattr(visualize_module, "load_model", lambda folder: trained)
        path = tmp_path / "page.html"
        visualize(VisualizationOptions(model_dir="m", text=text, output_file=str(path), **flags))
        return path

    return page


def parts_of(path):
    """Kind -> part of the page, the last of each kind."""
    sections = data_of(path.read_text())["sections"]
    return {part["kind"]: part for section in sections for part in section["parts"]}


def test_the_page_holds_the_attention_of_every_head(page):
    trained = tiny.classifier()
    data = parts_of(page(trained, "the cat sat"))["attention"]
    assert data["tokens"] == ["[CLS]", "the", "cat", "sat", "[SEP]"]
    levels = np.frombuffer(base64.b64decode(data["levels"]), np.uint8)
    expected = attention(trained.model, tiny.alone("the cat sat"))
    np.testing.assert_allclose(levels.reshape(2, 3, 5, 5) / 255, expected, atol=0.5 / 255 + 1e-6)


@pytest.mark.parametrize(
    "make, text, expected",
    [
        (tiny.classifier, "the cat", ["log-odds of", "add up to"]),
        (lambda: tiny.classifier("regression"), "the cat", ["gradients of the score"]),
        (lambda: tiny.classifier("multi_label"), "the cat", ["log-odds of"]),
        (lambda: tiny.classifier(is_pair=True), "the cat ||| a dog", ["the cat | a dog"]),
        (lambda: tiny.classifier(doc_stride=4), tiny.TEXTS[3], ["the first of"]),
        (
            tiny.answerer,
            "who sat ? ||| the cat sat on a mat",
            ["Start and end of the answer", "probability"],
        ),
        (tiny.chooser, "who ? ||| a dog ||| a cat", ["score of the best choice", '"a dog", 0.']),
        (tiny.pretrained, "the [MASK] sat", ["[MASK] at position 2"]),
        (lambda: tiny.trained(None), "the cat ||| a dog", ['["tokens", "7"]']),
        (
            lambda: tiny.trained(TokenClassificationTask(("O", "B-X"), 11)),
            "the cat",
            ['["entities", '],
        ),
        (lambda: tiny.trained(EmbeddingTask(11, projection_size=5)), "a cat", ['["tokens", "4"]']),
    ],
)
def test_every_kind_of_model_has_a_page_without_a_network(page, make, text, expected):
    content = page(make(), text).read_text()
    for part in expected:
        assert part in content
    assert '"kind": "attention"' in content
    addresses = set(re.findall(r"\w+://[^\s\"'<]+", content))
    assert addresses == {"http://www.w3.org/2000/svg"}  # a name, which no browser fetches
    assert not re.search(r"<(link|img|iframe)|\bsrc=|@import|url\(", content)


@pytest.mark.parametrize(
    "task", [TokenClassificationTask(("O", "B-X"), 11), EmbeddingTask(11, document_prefix="the ")]
)
def test_a_text_of_a_model_that_takes_no_pairs_is_shown_as_the_model_reads_it(page, task):
    shown = parts_of(page(tiny.trained(task), "owl ||| log"))["attention"]["tokens"]
    prefix = ["the"] if isinstance(task, EmbeddingTask) else []
    assert shown == ["[CLS]", *prefix, "owl", *["[UNK]"] * 3, "log", "[SEP]"]


@pytest.mark.parametrize(
    "make",
    [
        tiny.classifier,
        tiny.pretrained,
        lambda: tiny.trained(None),
        lambda: tiny.trained(TokenClassificationTask(("O", "B-X"), 11)),
        lambda: tiny.trained(EmbeddingTask(11)),
    ],
)
def test_a_text_that_is_cut_is_noted(page, caplog, make):
    whole, cut = "[MASK] the cat sat", "[MASK] the cat sat on the mat"
    assert "truncated to" not in page(make(), whole, max_seq_length=8).read_text()
    assert "truncated" not in caplog.text
    assert '["truncated to", "8 tokens"]' in page(make(), cut, max_seq_length=8).read_text()
    assert "The input was truncated to 8 tokens for this page" in caplog.text


def test_a_stride_beyond_the_largest_number_of_tokens_is_reduced(page):
    trained = tiny.trained(TokenClassificationTask(("O", "B-X"), 11, doc_stride=9))
    data = parts_of(page(trained, tiny.TEXTS[3], max_seq_length=6))["attention"]
    assert len(data["tokens"]) == 6


def test_the_page_opens_on_a_head_whose_words_point_each_at_another_that_is_not_beside_it():
    tokens = ["[CLS]", "a", "cat", "sat", "still", "."]
    heads = np.zeros((3, 2, 6, 6), np.float32)
    heads[0, 0, :, 0] = 1  # at [CLS]
    heads[0, 1] = np.eye(6)  # at itself
    heads[1, 0] = np.eye(6, k=-1)  # at the token before
    heads[1, 1] = 1 / 6  # at all alike
    heads[2, 0, :, 3] = 1  # all at the same word
    heads[2, 1, 4, 2], heads[2, 1, :4, 0] = 0.9, 0.9  # "still" at "cat", the others at [CLS]
    assert opening_head(tokens, heads) == [2, 1]
    assert opening_head(["[CLS]", "[SEP]"], heads[:, :, :2, :2]) == [0, 0]


@needs_browser
def test_pieces_from_right_to_left_keep_their_direction_to_themselves(page):
    trained = tiny.classifier()
    trained.tokenizer.inv_vocab[tiny.TOKENS.index("cat")] = "##\u05d9\u05dd"
    shown, _ = in_browser(page(trained, "the cat"))
    assert re.search(r"<bdi [^>]*>##\u05d9\u05dd</bdi>", shown)
    assert re.search(r"<text [^>]*>\u2068##\u05d9\u05dd\u2069 \(2\)<", shown)
    assert "h1, dd, td { unicode-bidi: plaintext; }" in shown


def test_texts_cannot_break_out_of_the_page(page):
    trained = tiny.trained(None)
    trained.tokenizer.inv_vocab[tiny.TOKENS.index("cat")] = "</script><b>"
    path = page(trained, "<i>x</i> cat")
    content = path.read_text()
    assert "</script><b>" not in content
    assert "<i>" not in content
    assert parts_of(path)["attention"]["tokens"][-2] == "</script><b>"


def test_a_label_can_be_asked_for(page):
    assert "log-odds of fair" in page(tiny.classifier(), "the cat", label="fair").read_text()
    with pytest.raises(ValueError, match="label is odd, but the labels are bad, fair, good"):
        page(tiny.classifier(), "the cat", label="odd")
    for make in (tiny.pretrained, lambda: tiny.trained(None)):
        with pytest.raises(ValueError, match="label=good is for classifiers"):
            page(make(), "[MASK]", label="good")


def test_an_input_that_the_model_does_not_take_is_refused(page, tmp_path):
    with pytest.raises(ValueError, match="takes single sentences"):
        page(tiny.classifier(), "the cat ||| a dog")
    with pytest.raises(ValueError, match="no token in the text"):
        page(tiny.answerer(), "who ? ||| ")
    assert not list(tmp_path.iterdir())


def test_the_window_with_the_answer_and_the_odds_of_none_are_shown(page):
    trained = tiny.answerer(version_2_with_negative=True)
    text = page(trained, f"who ? ||| {tiny.TEXTS[3]}").read_text()
    assert re.search(r"window [1-9] of [4-9]", text)
    assert "odds of no answer" in text


def test_a_saved_model_is_refused(tmp_path):
    (tmp_path / "saved_model.pb").write_bytes(b"")
    options = VisualizationOptions(
        model_dir=str(tmp_path), text="the cat", output_file=str(tmp_path / "page.html")
    )
    with pytest.raises(ValueError, match=r"is a SavedModel, .* Name the folder that"):
        visualize(options)
    assert not (tmp_path / "page.html").exists()


# ---------------------------------------------------------------------------------- in a real browser


@needs_browser
def test_a_browser_draws_every_head_and_the_chosen_one_large(page):
    path = page(tiny.classifier(), "the cat sat on a mat .")
    layer, head = parts_of(path)["attention"]["opening"]
    shown, complaints = in_browser(path)
    assert complaints == []
    assert shown.count("<canvas") == 2 * (3 + 1)  # layers, heads and their mean
    assert f"<h3>Layer {layer}, head {head}</h3>" in shown
    shown, _ = in_browser(path, "#1.2.3")  # layer 1, head 2, the token "sat"
    assert "<h3>Layer 1, head 2</h3>" in shown
    assert re.search(r'data-key="1.2"[^>]*aria-pressed="true"', shown)
    assert re.search(r'font-weight="bold">\u2068sat\u2069<', shown)
    # The fractions next to the tokens on the right are those of the model.
    expected = attention(tiny.classifier().model, tiny.alone("the cat sat on a mat ."))[1, 2, 3]
    found = [int(share) for share in re.findall(r'text-anchor="end">(\d+)%<', shown)]
    visible = [share for share in expected if share >= 0.008]
    np.testing.assert_allclose(found[: len(visible)], 100 * np.array(visible), atol=0.71)


@needs_browser
def test_a_browser_takes_a_picture_that_is_not_empty(page, tmp_path):
    picture = tmp_path / "page.png"
    _, complaints = in_browser(
        page(tiny.answerer(), "who sat ? ||| the cat sat on a mat"),
        "",
        f"--screenshot={picture}",
        "--window-size=900,900",
    )
    assert complaints == []
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size > 15_000  # an empty page of this size has about 5 kB


@needs_browser
def test_a_browser_shows_texts_as_they_are(page):
    shown, complaints = in_browser(page(tiny.classifier(), "<script>alert(1)</script> & cat"))
    assert complaints == []
    assert html.escape("<script>alert(1)</script> & cat", quote=False) in shown


def test_the_strongest_tokens_have_the_values_of_all_tokens(page):
    parts = parts_of(page(tiny.classifier(), "the cat sat on a mat ."))
    tokens, values = parts["tokens"]["tokens"], parts["tokens"]["values"]
    rows = parts["signed_bars"]["rows"]
    assert [[tokens[i], i, values[i]] for _, i, _ in rows] == rows
    assert sorted(rows, key=lambda row: -abs(row[2])) == rows


@needs_browser
@pytest.mark.parametrize(
    "make, text", [(tiny.classifier, "the cat"), (tiny.answerer, "who ? ||| a cat")]
)
def test_the_page_fits_a_phone(page, make, text):
    path = page(make(), text)
    found, complaints = widths_in_browser(path, 390)
    assert complaints == []
    assert found <= 390


def test_a_page_never_replaces_a_file_of_the_model(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    options = VisualizationOptions(
        model_dir=str(tmp_path), text="the cat", output_file=f"{tmp_path}/config.json"
    )
    with pytest.raises(ValueError, match=r"config\.json would be written, but it is also an input"):
        visualize(options)
