r"""Convert a checkpoint: TensorFlow 1 (the original's and ours), Hugging Face, tf-models, TF Hub.

To transformers, with every head, and with a comparison:

    python run_scripts/convert_checkpoint.py --init_checkpoint=mrpc_output \
        --output_format=huggingface --output_dir=mrpc_hf --verify

To the original's format, from the Hub or from a folder:

    python run_scripts/convert_checkpoint.py --init_checkpoint=hf://google-bert/bert-base-uncased \
        --output_format=tf1 --output_dir=uncased_L-12_H-768_A-12

A classifier of the original run_classifier.py has no names for its outputs:

    python run_scripts/convert_checkpoint.py --init_checkpoint=mnli_output/model.ckpt-36815 \
        --head=classification --labels=contradiction,entailment,neutral \
        --output_format=huggingface --output_dir=mnli_hf
"""

if __name__ == "__main__":
    from bert_tf import cli
    from bert_tf.serving.convert_checkpoint import ConvertOptions, convert_checkpoint

    cli.run(ConvertOptions, convert_checkpoint)
