"""Every head as a checkpoint of the original's kind, and convert_checkpoint as a function of files."""

from helpers import write_vocab
from tiny_checkpoints import CONFIG, arrays_of, write_tf1

from bert_tf.checkpoints.heads import HEADS
from bert_tf.options import make_options
from bert_tf.serving.convert_checkpoint import ConvertOptions, convert_checkpoint

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh"]
LABELS = "a,b,c,d,e"
# --head -> heads of numpy_bert, and the outputs of the classifier
CASES = {
    "encoder": ((), 5),
    "pretraining": (("masked_lm", "next_sentence"), 5),
    "masked_lm": (("masked_lm",), 5),
    "next_sentence": (("next_sentence",), 5),
    "classification": (("classifier",), 5),
    "token_classification": (("classifier",), 5),
    "question_answering": (("span",), 5),
    "multiple_choice": (("classifier",), 1),
}


def arrays_for(head):
    heads, num_labels = CASES[head]
    return arrays_of(*heads, num_labels=num_labels)


def tf1_folder(folder, arrays, tokens=TOKENS, config=CONFIG):
    write_tf1(folder, arrays, config=config)
    write_vocab(folder / "vocab.txt", tokens)
    return folder


def convert(source, target, output_format, **flags):
    options = {"init_checkpoint": str(source), "output_dir": str(target), **flags}
    convert_checkpoint(make_options(ConvertOptions, output_format=output_format, **options))
    return target


def head_flags(head):
    """What a checkpoint of the original does not say of itself."""
    flags = {"head": head} if HEADS[head].variables[:1] == ("output_weights",) else {}
    return {**flags, "labels": LABELS} if HEADS[head].has_labels else flags
