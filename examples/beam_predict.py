"""Answer each line of many files with a model of bert_tf, in the workers of Apache Beam.

    pip install apache-beam
    python examples/beam_predict.py --model=served/reviews/1 --input='texts-*.txt' --output=answers \
        --runner=DirectRunner --direct_num_workers=2 --direct_running_mode=multi_processing

writes answers-00000-of-..., a JSON object per line, in no order. All workers must reach the model and
the files. Other runners (DataflowRunner, FlinkRunner, SparkRunner) take the flags of Beam's own guides;
their workers need bert_tf, from --setup_file=./setup.py or in the image.
"""

import argparse
import json

import apache_beam as beam
from apache_beam.ml.inference.base import ModelHandler, RunInference
from apache_beam.options.pipeline_options import PipelineOptions

import bert_tf


class Predictions(ModelHandler):
    """Predictions of a folder for `bert_tf.load`, which each worker process loads once."""

    def __init__(self, folder):
        super().__init__(min_batch_size=32, max_batch_size=1024)
        self._folder = folder

    def load_model(self):
        return bert_tf.load(self._folder)

    def run_inference(self, batch, model, inference_args=None):
        items = [model.text_model.parse_line(line) for line in batch]  # tabs between texts
        for line, answer in zip(batch, model.predict(items), strict=True):
            yield json.dumps({"text": line, **answer}, ensure_ascii=False)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in ("model", "input", "output"):
        parser.add_argument(f"--{name}", required=True)
    arguments, flags = parser.parse_known_args()
    with beam.Pipeline(options=PipelineOptions(flags)) as pipeline:
        _ = (
            pipeline
            | beam.io.ReadFromText(arguments.input)
            | RunInference(Predictions(arguments.model))
            | beam.io.WriteToText(arguments.output)
        )
