r"""Convert WikiExtractor's output or plain text: one sentence per line, empty lines between documents.

    python run_scripts/prepare_corpus.py --input_file=extracted --output_file=corpus/wiki.txt

`extracted` is WikiExtractor's output folder, with or without its --json. For plain text with one
paragraph per line and an empty line between documents:

    python run_scripts/prepare_corpus.py \
        --input_file='books/*.txt.gz' --output_file=corpus/books.txt.gz --shard_bytes=100000000
"""

from bert_tf import cli
from bert_tf.programs.prepare_corpus import CorpusPreparationOptions, prepare_corpus

if __name__ == "__main__":
    cli.run(CorpusPreparationOptions, prepare_corpus)
