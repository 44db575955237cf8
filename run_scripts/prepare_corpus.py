r"""Turn WikiExtractor's output or plain text into one sentence per line, documents apart by empty lines.

    python run_scripts/prepare_corpus.py --input_file=extracted --output_file=corpus/wiki.txt

where `extracted` is the folder that WikiExtractor wrote, with or without its --json. Or plain text, one
paragraph per line, an empty line between documents:

    python run_scripts/prepare_corpus.py \
        --input_file='books/*.txt.gz' --output_file=corpus/books.txt.gz --shard_bytes=100000000
"""

from bert_tf import cli
from bert_tf.programs.prepare_corpus import CorpusPreparationOptions, prepare_corpus

if __name__ == "__main__":
    cli.run(CorpusPreparationOptions, prepare_corpus)
