# SPDX-License-Identifier: Apache-2.0
"""The program of a task of tony.run(). It is sent along as tony_worker.py, with the pickled call."""

from __future__ import annotations

import base64
import pickle
import sys
import traceback
import zlib

# The result is what stands between these lines of the standard output.
BEGIN, END = "\n-----BEGIN TONY RESULT-----\n", "\n-----END TONY RESULT-----\n"
LINE = 4096  # characters of base64 in a line


class Raised:
    """Stands for the result if the function has raised an exception."""

    def __init__(self, message: str, text: str) -> None:
        self.message, self.traceback = message, text


def packed(value: bytes) -> str:
    data = base64.b64encode(zlib.compress(value, 1)).decode()
    return "\n".join(data[i:i + LINE] for i in range(0, len(data), LINE))


def main() -> int:
    # Here the class has to be that of the package, since the reader imports it from there.
    Raised.__module__ = "tony._worker"
    import cloudpickle  # type: ignore[import-untyped,import-not-found,unused-ignore]  # sent along, beside this file

    try:
        with open("call.pickle", "rb") as f:
            fn, args, kwargs = pickle.load(f)
        value, code = cloudpickle.dumps(fn(*args, **kwargs)), 0
    except Exception as error:
        traceback.print_exc()
        message = f"{type(error).__name__}: {error}"
        # A pickle by reference: the class is not imported here under that name.
        value, code = raised_pickle(message, traceback.format_exc()), 1
    sys.stdout.flush()
    sys.stdout.write(BEGIN + packed(value) + END)
    sys.stdout.flush()
    return code


def raised_pickle(message: str, text: str) -> bytes:
    """What pickle writes for tony._worker.Raised(message, text), without importing that module."""
    import types

    package, module = types.ModuleType("tony"), types.ModuleType("tony._worker")
    vars(module)["Raised"], vars(package)["_worker"] = Raised, module
    sys.modules.setdefault("tony", package)
    sys.modules["tony._worker"] = module
    return pickle.dumps(Raised(message, text))


if __name__ == "__main__":
    sys.exit(main())
