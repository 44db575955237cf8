r"""Predict raw text with any model: labels, answers, entities, choices, masked words, embeddings.
docs/prediction.md has the details.

    echo 'A sentence.' | python run_scripts/predict.py --model_dir=served/my_model/1
    echo 'The dog [MASK] at the cat.' | python run_scripts/predict.py --model_dir=pretrained
    printf 'Who won?\tDenver beat Carolina.\n' | python run_scripts/predict.py --model_dir=squad_output
    python run_scripts/predict.py --model_dir=output --input_file=table.csv --text_a_column=review \
        --output_file=labels.csv
    python run_scripts/predict.py --model_dir=checkpoint --task=embeddings --input_file=texts.txt

An invalid input gets {"error": "file:line: why"}. It does not affect the others.
"""

if __name__ == "__main__":
    from bert_tf import cli
    from bert_tf.prediction.predict import PredictionOptions, predict

    cli.run(PredictionOptions, predict)
