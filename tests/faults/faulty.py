"""Runs a program in which no file can be larger, as on a full disk:

python faulty.py file_size_limit 4096 SCRIPT ...
"""

import os
import resource
import runpy
import sys

if __name__ == "__main__":
    limit, script = int(sys.argv[2]), sys.argv[3]
    del sys.argv[:3]
    sys.path[0] = os.path.dirname(script)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    runpy.run_path(script, run_name="__main__")
