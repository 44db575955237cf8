r"""Answers to raw text from any model, loaded once: labels, answers, entities, choices, masked words,
pseudo-perplexity, embeddings. docs/prediction.md has it all.

    echo 'A sentence.' | python run_scripts/predict.py --model_dir=served/my_model/1
    echo 'The dog [MASK] at the cat.' | python run_scripts/predict.py --model_dir=pretrained
    printf 'Who won?\tDenver beat Carolina.\n' | python run_scripts/predict.py --model_dir=squad_output
    python run_scripts/predict.py --model_dir=output --input_file=table.csv --text_a_column=review \
        --output_file=labels.tsv --output_format=tsv
    python run_scripts/predict.py --model_dir=checkpoint --task=embeddings --input_file=texts.txt

What cannot be answered gets {"error": "file:line: why"}; the others are answered all the same.
"""

from bert_tf import cli
from bert_tf.programs.predict import PredictionOptions, predict

if __name__ == "__main__":
    cli.run(PredictionOptions, predict)
