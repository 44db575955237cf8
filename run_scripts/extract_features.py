r"""Write contextual vectors of text, layer by layer, as JSON lines.

    python run_scripts/extract_features.py \
        --input_file=input.txt --output_file=output.jsonl \
        --init_checkpoint=uncased_L-12_H-768_A-12/bert_model.ckpt --layers=-1,-2,-3,-4

input.txt contains one example per line; " ||| " separates the sentences of a pair.
"""

if __name__ == "__main__":
    from bert_tf import cli
    from bert_tf.prediction.extract_features import ExtractionOptions, extract_features

    cli.run(ExtractionOptions, extract_features)
