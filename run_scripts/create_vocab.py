r"""Learn a WordPiece vocabulary from plain text, and write a matching bert_config.json.

    python run_scripts/create_vocab.py \
        --input_file='corpus/*.txt' --output_dir=model --vocab_size=30522 --do_lower_case=True

Files may be gzip, and a folder stands for all files in it. 120 MB take about 45 seconds on one core,
610 MB two minutes and 1.4 GB of memory, of which TensorFlow has half; --max_words bounds the rest. A
language with little text is learned better when its file is named several times. The size can be
rounded up for the hardware's sake:

    python run_scripts/create_vocab.py \
        --input_file=en.txt,ko.txt,ko.txt,ko.txt --output_dir=model --vocab_size=50000 --round_up_to=64 \
        --do_lower_case=False --errors=replace
"""

from bert_tf import cli
from bert_tf.programs.create_vocab import VocabularyOptions, create_vocab

if __name__ == "__main__":
    cli.run(VocabularyOptions, create_vocab)
