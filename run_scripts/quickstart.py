r"""Run all steps from raw text to a served model, in a few minutes on two cores.

    make quickstart        # or: python run_scripts/quickstart.py --output_dir=quickstart_output

It needs no data: its corpus is the documentation strings of the installed Python packages.
"""

from bert_tf import cli
from bert_tf.programs.quickstart import QuickstartOptions, quickstart

if __name__ == "__main__":
    cli.run(QuickstartOptions, quickstart)
