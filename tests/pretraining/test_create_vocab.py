"""create_vocab: a corpus -> vocab.txt and bert_config.json."""

import gzip
import hashlib
import re
from pathlib import Path

import pytest
from helpers import cause_of
from models import with_values

from bert_tf.config import BertConfig
from bert_tf.options import make_options
from bert_tf.pretraining.create_vocab import VocabularyOptions, create_vocab, first_tokens
from bert_tf.tokenization import SPECIAL_TOKENS, FullTokenizer, load_vocab
from bert_tf.vocabulary import vocab_is_cased

TEXT = "The tide is low.\nLower tides are wider.\n\nZürich is wide.\n" * 3


@pytest.fixture
def options(tmp_path):
    (tmp_path / "a.txt").write_text(TEXT, encoding="utf-8")
    (tmp_path / "b.txt").write_bytes(gzip.compress(b"A newer tide.\r\n" * 5))
    return make_options(
        VocabularyOptions,
        input_file=f"{tmp_path}/a.txt,{tmp_path}/b*",
        output_dir=str(tmp_path / "new" / "vocab"),
        vocab_size=151,
    )


def test_it_writes_a_vocabulary_a_matching_config_and_the_case(options):
    coverage, folder = create_vocab(options), Path(options.output_dir)
    vocab = load_vocab(folder / "vocab.txt", required=SPECIAL_TOKENS)
    assert len(vocab) == 151
    config = BertConfig.from_json_file(folder / "bert_config.json")
    assert config == BertConfig.from_name("base", vocab_size=151)
    assert FullTokenizer(folder / "vocab.txt").tokenize("NEWER Zürich") == ["newer", "z", "##urich"]
    written = sorted(path.name for path in folder.iterdir())
    assert written == ["bert_config.json", "tokenizer_config.json", "vocab.txt"]
    assert coverage.num_words == 3 * 14 + 5 * 4


def test_a_cased_vocabulary_keeps_capitals_and_accents(options):
    create_vocab(with_values(options, do_lower_case=False, vocab_size=160))
    assert {"T", "##ü"} <= set(load_vocab(f"{options.output_dir}/vocab.txt"))
    tokenizer = FullTokenizer.from_pretrained(options.output_dir)
    assert not tokenizer.do_lower_case


def test_existing_files_are_kept(options):
    folder = Path(options.output_dir)
    folder.mkdir(parents=True)
    for name in ("tokenizer_config.json", "vocab.txt"):  # the latter is looked for first
        (folder / name).write_text("{}")
        assert cause_of(create_vocab, options) == str(folder / name)
    assert len(list(folder.iterdir())) == 2


def test_a_text_that_cannot_be_read_is_named(options, tmp_path):
    file = tmp_path / "a.txt"
    options = with_values(options, input_file=str(file))
    for content, cause in ((b"\n \n", "vocab_size"), (b"low\nZ\xfcrich\n", f"{file}:2")):
        file.write_bytes(content)
        assert cause_of(create_vocab, options) == cause


# The vocabularies in vocab/

LEARNED = Path(__file__).parents[2] / "vocab"


def rows_of_the_readme():
    """(file, number of tokens, do_lower_case, sha256) of each vocabulary that vocab/README.md lists."""
    row = re.compile(r"\| `(\w+/vocab\.txt)` \| ([\d,]+) \| (\w+) \| `([0-9a-f]{64})` \|")
    return [
        (file, int(size.replace(",", "")), case == "uncased", digest)
        for file, size, case, digest in row.findall((LEARNED / "README.md").read_text("utf-8"))
    ]


def test_the_readme_lists_every_vocabulary():
    listed = [file for file, *_ in rows_of_the_readme()]
    assert listed == ["uncased_30522/vocab.txt", "cased_28996/vocab.txt"]
    assert {LEARNED / file for file in listed} == set(LEARNED.glob("**/vocab.txt"))


@pytest.mark.parametrize("file, vocab_size, do_lower_case, digest", rows_of_the_readme())
def test_a_committed_vocabulary_is_what_the_readme_says(file, vocab_size, do_lower_case, digest):
    data = (LEARNED / file).read_bytes()
    assert hashlib.sha256(data).hexdigest() == digest
    tokens = data.decode("utf-8").removesuffix("\n").split("\n")
    assert len(tokens) == len(set(tokens)) == vocab_size
    assert tokens[:106] == first_tokens()
    config = BertConfig.from_json_file(LEARNED / file.replace("vocab.txt", "bert_config.json"))
    assert config == BertConfig.from_name("base", vocab_size=vocab_size)
    assert vocab_is_cased(tokens) is not do_lower_case
    tokenizer = FullTokenizer(LEARNED / file, do_lower_case=do_lower_case)
    assert list(tokenizer.vocab) == tokens
    ascii_text = "".join(map(chr, range(33, 127)))
    assert "[UNK]" not in tokenizer.tokenize(" ".join(ascii_text) + " “Zürich” – " + ascii_text)
    assert tokenizer.tokenize("the history of the city") == ["the", "history", "of", "the", "city"]
