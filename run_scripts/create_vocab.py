r"""Learn a WordPiece vocabulary from plain text, and write a matching bert_config.json.

    python run_scripts/create_vocab.py \
        --input_file='corpus/*.txt' --output_dir=model --vocab_size=30522 --do_lower_case=True

Files may be gzip, and a folder means all files in it. 120 MB take about 45 seconds on one core. 610 MB
take two minutes and 1.4 GB of memory, half of it for TensorFlow; --max_words limits the rest. Repeat the
file of a language with little text to learn it better. Round up the size for the hardware:

    python run_scripts/create_vocab.py \
        --input_file=en.txt,ko.txt,ko.txt,ko.txt --output_dir=model --vocab_size=50000 --round_up_to=64 \
        --do_lower_case=False --errors=replace
"""

from bert_tf import cli
from bert_tf.programs.create_vocab import VocabularyOptions, create_vocab

if __name__ == "__main__":
    cli.run(VocabularyOptions, create_vocab)
