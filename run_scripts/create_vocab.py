r"""Learn a WordPiece vocabulary from plain text, and write a matching bert_config.json.

    python run_scripts/create_vocab.py \
        --input_file='corpus/*.txt' --output_dir=model --vocab_size=30522 --do_lower_case=True

Files may be gzip, and a folder means all files in it. 120 MB take about 45 seconds on one core. 610 MB
take two minutes and 1.4 GB of memory, half of it for TensorFlow. Repeat the file of a language with
little text to learn it better:

    python run_scripts/create_vocab.py \
        --input_file=en.txt,ko.txt,ko.txt,ko.txt --output_dir=model --vocab_size=50048 \
        --do_lower_case=False
"""

if __name__ == "__main__":
    from bert_tf import cli
    from bert_tf.pretraining.create_vocab import VocabularyOptions, create_vocab

    cli.run(VocabularyOptions, create_vocab)
