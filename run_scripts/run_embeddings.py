r"""Train and evaluate embeddings of texts, for search, similarity and clustering.

    python run_scripts/run_embeddings.py \
        --train_file=questions.tsv --eval_file=questions_dev.tsv \
        --init_checkpoint=uncased_L-12_H-768_A-12/bert_model.ckpt \
        --do_train --do_eval \
        --max_seq_length=256 --train_batch_size=64 --learning_rate=2e-5 --num_train_epochs=1.0 \
        --output_dir=embeddings_output

A table has the columns anchor and positive, and perhaps negative, or score (0 to 1). A SQuAD file gives
questions and their passages. docs/embeddings.md has the details.
"""

if __name__ == "__main__":
    from bert_tf import cli
    from bert_tf.embeddings.run_embeddings import EmbeddingOptions, run_embeddings

    cli.run(EmbeddingOptions, run_embeddings)
