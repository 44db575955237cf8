"""A Python that has imported TensorFlow already: for tests that start it a hundred times.

    python python_server.py SOCKET            imports bert_tf, and serves until its stdin ends
    python python_server.py SOCKET -- ARGS    is `python ARGS`, run in a fork of that one

The socket's folder is removed at the end.
"""

import json
import os
import socket
import socketserver
import sys


def ask(path: str, arguments: list[str]) -> int:
    """Runs `python arguments` in the server; its exit code."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        request = json.dumps([arguments, os.getcwd(), dict(os.environ)]).encode()
        socket.send_fds(connection, [request], [0, 1, 2])
        connection.shutdown(socket.SHUT_WR)
        answer = connection.recv(1)
        return answer[0] if answer else 134  # it crashed


class Handler(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        """In a fork: becomes the Python that was asked for."""
        import atexit
        import traceback

        data, descriptors, _, _ = socket.recv_fds(self.request, 1 << 16, 3)
        while more := self.request.recv(1 << 16):
            data += more
        arguments, folder, environment = json.loads(data)
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.chdir(folder)
        os.environ.update(environment)
        code = 0
        try:
            run(arguments)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
            if isinstance(end.code, str):
                print(end.code, file=sys.stderr)
        except BaseException:
            traceback.print_exc()
            code = 1
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        self.request.sendall(bytes([code]))


def run(arguments: list[str]) -> None:
    """`python arguments`."""
    import runpy

    first, *others = arguments
    if first == "-c":
        sys.argv, sys.path[0] = ["-c", *others[1:]], ""
        exec(compile(others[0], "<string>", "exec"), {"__name__": "__main__"})
    elif first == "-m":
        sys.argv, sys.path[0] = ["", *others[1:]], os.getcwd()
        runpy.run_module(others[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv, sys.path[0] = arguments, os.path.dirname(os.path.abspath(first))
        runpy.run_path(first, run_name="__main__")


class Server(socketserver.ForkingMixIn, socketserver.UnixStreamServer):
    pass


def serve(path: str) -> None:
    import shutil
    import threading
    from importlib import import_module

    import tensorflow as tf

    from bert_tf.__main__ import PROGRAMS

    tf.config.run_functions_eagerly(True)  # a few steps each: tracing would take twice as long
    for module, _ in PROGRAMS.values():
        import_module(f"bert_tf.{module}")

    def end() -> None:
        os.read(0, 1)  # and not sys.stdin: a fork could not read it
        shutil.rmtree(os.path.dirname(path))
        os._exit(0)

    threading.Thread(target=end, daemon=True).start()
    with Server(path, Handler) as server:
        print("ready", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    if len(sys.argv) == 2:
        serve(sys.argv[1])
    sys.exit(ask(sys.argv[1], sys.argv[3:]))
