"""The kinds of model that are exported: folders of tests/golden, and inputs for each.

Texts are padded, cut or read in windows, empty, or of words and characters that the vocabulary lacks.
"""

import functools
import json
import tempfile
from pathlib import Path

from models import copy_of, golden

from bert_tf.options import make_options
from bert_tf.serving.export_saved_model import ExportOptions, load_served

LONG = "the calm dog and the sad hen in the yard , not in the lake . " * 3  # of 45 tokens
TEXTS = [
    "the happy cat in the barn",
    "",
    "The HÄPPY cât 猫hen京 qqq",
    LONG,
    "\x00\ufffd\u200b \t angry\r\n",
    "[MASK] [SEP] the rude pig",
]
PAIRS = list(zip(TEXTS, TEXTS[2:] + TEXTS[:2], strict=True))
SHORT = "The\u202fkind ôwl is in\u00a0the BARN 猫."
CONTEXTS = [SHORT, "", f"The sad cat is in the lake. {SHORT} " * 4, "\u200b \u0301", "The cat."]
QUESTIONS = list(zip(["the owl in the", "who", "the cat in the", "猫", ""], CONTEXTS, strict=True))
SENTENCES = [
    *TEXTS,
    "In\u00a0the barn, a PIG!",
    " \u200d ",
    " ".join(["a pig is in the lake. the hen, the cave 猫 \u200d a ôwl"] * 9),
    "supercalifragilisticexpialidocious" * 3 + " a dog",  # a word of more pieces than a window
]
CHOICES = [
    ("in the barn", ["the rude dog", "the kind cat"]),
    ("", ["the calm hen", "the sad hen", "the angry hen"]),
    (LONG, ["猫 qqq", LONG]),
]
MASKED = [
    "the [MASK] cat in the [MASK]",
    "[MASK]",
    "a\x00b[MASK]c [SEP] [mask] [MA\x00SK] d",
    "[MASK] " * 9,
    f"[MASK] {LONG}",
]
ITEMS = {
    **dict.fromkeys(("classifier", "windows", "multi_label", "regression"), TEXTS),
    **dict.fromkeys(("encoder", "embedder"), TEXTS),
    **dict.fromkeys(("pair", "reranker"), PAIRS),
    **dict.fromkeys(("squad", "squad2"), QUESTIONS),
    **dict.fromkeys(("ner", "crf"), SENTENCES),
    "swag": CHOICES,
    "masked_lm": MASKED,
}
ONE_OF_A_CLASS = ("classifier", "ner", "crf", "squad2", "swag", "embedder", "encoder", "masked_lm")


@functools.cache
def folder(kind):
    """The folder of a kind. `windows` is a classifier, as if trained on windows of long texts."""
    if kind == "windows":
        copy = copy_of("classifier", Path(tempfile.mkdtemp()) / kind)
        values = json.loads((copy / "task.json").read_text())
        values |= {"doc_stride": 3, "max_seq_length": 9}
        (copy / "task.json").write_text(json.dumps(values))
        return copy
    return golden("pretrained" if kind in ("encoder", "masked_lm") else kind)


def flags(kind):
    heads = (
        "encoder",
        "masked_lm",
    )  # by themselves they take as many tokens as there are positions
    return {"head": kind, "max_seq_length": 23} if kind in heads else {}


def served(kind, **changes):
    """The model for export. It is not shared: what writes it changes it."""
    given = {"model_dir": str(folder(kind)), "export_dir": "", **flags(kind), **changes}
    return load_served(make_options(ExportOptions, **given))


def write_lines(path, kind):
    """The inputs as lines, for --calibration_file; those that a line can hold."""
    rows = ([item] if isinstance(item, str) else [item[0], *item[1:]] for item in ITEMS[kind])
    flat = ([r[0], *r[1]] if isinstance(r[-1], list) else r for r in rows)
    lines = ("\t".join(row) for row in flat if all(text.strip() for text in row))
    path.write_text("".join(f"{line}\n" for line in lines if "\r" not in line), encoding="utf-8")
    return str(path)
