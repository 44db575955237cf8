"""A Python that has imported TensorFlow already: for tests that start it a hundred times.

    python python_server.py FOLDER/SOCKET            imports bert_tf, and waits
    python python_server.py FOLDER/SOCKET -- ARGS    is `python ARGS`, run in a fork of that one

The first ends, and removes FOLDER, when its stdin ends. Settings of how TensorFlow or Keras begin
(`FIXED`) are the server's; where the caller has others, it is an ordinary Python.
"""

import json
import os
import socket
import sys

# Beginnings of the names of variables that libraries read when they are imported.
FIXED = ("TF_", "KERAS_", "OMP_", "OPENBLAS_", "XLA_", "CUDA_", "JAX_", "PYTHON")


def settings() -> str:
    """What `FIXED` is about, of this process."""
    return json.dumps({n: v for n, v in sorted(os.environ.items()) if n.startswith(FIXED)})


def ask(path: str, arguments: list[str]) -> int:
    """Runs `python arguments` in the server; its exit code."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        asked = {"arguments": arguments, "folder": os.getcwd(), "environment": dict(os.environ)}
        data = json.dumps(asked).encode()
        socket.send_fds(connection, [len(data).to_bytes(8, "big")], [0, 1, 2])
        connection.sendall(data)
        answer = connection.recv(4)
        return int.from_bytes(answer, "big") if answer else 134  # it crashed


def serve(path: str) -> None:
    import select
    import shutil
    from importlib import import_module

    at_first = dict(os.environ)
    with open(f"{path}.settings", "w") as file:
        file.write(settings())

    from bert_tf.__main__ import PROGRAMS

    for module, _ in PROGRAMS.values():
        import_module(f"bert_tf.{module}")
    imports_set = {n: v for n, v in os.environ.items() if at_first.get(n) != v}
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        print("ready", flush=True)
        while True:
            ready, _, _ = select.select([listening, 0], [], [], 1.0)
            if 0 in ready and not os.read(0, 1):
                shutil.rmtree(os.path.dirname(path))
                return
            if listening in ready:
                connection, _ = listening.accept()
                if os.fork() == 0:
                    listening.close()
                    answer(connection, imports_set)
                connection.close()
            try:
                while os.waitpid(-1, os.WNOHANG) != (0, 0):
                    pass
            except ChildProcessError:
                pass


def answer(connection: socket.socket, imports_set: dict[str, str]) -> None:
    """In a fork: becomes the Python that was asked for."""
    import atexit
    import traceback

    data, descriptors, _, _ = socket.recv_fds(connection, 8, 3)
    size, asked = int.from_bytes(data, "big"), b""
    while len(asked) < size:
        asked += connection.recv(size - len(asked))
    values = json.loads(asked)
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(values["folder"])
    os.environ.clear()
    os.environ.update(values["environment"] | imports_set)
    try:
        run(values["arguments"])
        code = 0
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
    connection.sendall(code.to_bytes(4, "big"))
    os._exit(code)


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


if __name__ == "__main__":
    if len(sys.argv) == 2:
        serve(sys.argv[1])
    else:
        path, _, *arguments = sys.argv[1:]
        try:
            with open(f"{path}.settings") as file:
                is_the_same = file.read() == settings()
            if is_the_same and arguments:
                sys.exit(ask(path, arguments))
        except (ConnectionRefusedError, FileNotFoundError):
            pass
        os.execv(sys.executable, [sys.executable, *arguments])
