r"""Train and evaluate a reranker, which scores a query with a document.

    python run_scripts/run_reranker.py \
        --train_file=questions.tsv --eval_file=questions_dev.tsv --retriever=embeddings_output \
        --init_checkpoint=uncased_L-12_H-768_A-12/bert_model.ckpt \
        --do_train --do_eval \
        --max_seq_length=256 --train_batch_size=16 --learning_rate=2e-5 --num_train_epochs=1.0 \
        --output_dir=reranker_output

The data is that of run_embeddings.py: anchors with positives (and negatives), or two texts with a score.
docs/embeddings.md has the details.
"""

if __name__ == "__main__":
    from bert_tf import cli
    from bert_tf.embeddings.run_reranker import RerankerOptions, run_reranker

    cli.run(RerankerOptions, run_reranker)
