"""Runs a program under a fault:

python faulty.py die_before_rename 3 SCRIPT ...    SIGKILL instead of its third renaming of a file
python faulty.py file_size_limit 4096 SCRIPT ...   no file can be larger, as on a full disk
"""

import os
import resource
import runpy
import signal
import sys


def die_before_rename(number: int) -> None:
    import tensorflow as tf

    left = [number]

    def dying(rename):
        def counted(*arguments, **names):
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
            return rename(*arguments, **names)

        return counted

    for place, name in ((os, "rename"), (os, "replace"), (tf.io.gfile, "rename")):
        setattr(place, name, dying(getattr(place, name)))


def file_size_limit(limit: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))


if __name__ == "__main__":
    fault, argument, script = sys.argv[1:4]
    del sys.argv[:3]
    sys.path[0] = os.path.dirname(script)
    {f.__name__: f for f in (die_before_rename, file_size_limit)}[fault](int(argument))
    runpy.run_path(script, run_name="__main__")
