r"""Fine-tune, evaluate and predict: named entities, or any labels of words, in CoNLL columns.

    python run_scripts/run_ner.py \
        --train_file=train.txt --eval_file=dev.txt --predict_file=test.txt --document_context \
        --init_checkpoint=cased_L-12_H-768_A-12/bert_model.ckpt \
        --do_train --do_eval --do_predict \
        --max_seq_length=128 --train_batch_size=32 --learning_rate=5e-5 --num_train_epochs=3.0 \
        --output_dir=ner_output

The feature-based method of the paper trains a BiLSTM on the layers of a frozen encoder:

    python run_scripts/run_ner.py \
        --train_file=train.txt --eval_file=dev.txt --init_checkpoint=cased_L-12_H-768_A-12 \
        --feature_based --feature_layers=concat_last_four_hidden \
        --do_train --do_eval --output_dir=bilstm_output

With --crf a CRF labels each sentence as a whole, without transitions that the scheme forbids.

A file has one line per word and an empty line after each sentence. It has 2 or more columns, with the
word first and its label (IOB1, IOB2 or BIOES) last. docs/ner.md has the details.
"""

if __name__ == "__main__":
    from bert_tf import cli
    from bert_tf.tasks.run_ner import NerOptions, run_ner

    cli.run(NerOptions, run_ner)
