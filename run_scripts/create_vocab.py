r"""Learn a WordPiece vocabulary from plain text, and write a matching bert_config.json.

    python run_scripts/create_vocab.py \
        --input_file='corpus/*.txt' --output_dir=model --vocab_size=30522 --do_lower_case=True
"""

from bert_tf import cli
from bert_tf.workflows.vocabulary import VocabularyOptions, create_vocab

if __name__ == "__main__":
    cli.run(VocabularyOptions, create_vocab)
