# SPDX-License-Identifier: Apache-2.0
"""F38: nothing in the Python package makes objects or code of bytes: what comes over a network stays bytes."""
import ast
import pathlib
import unittest

PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "python" / "weft"
MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "marshal", "shelve"}
CALLS = {"eval", "exec", "compile", "__import__"}


def offences(text):
    """What in this source could turn bytes into objects or code: (line, word)."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found += [(node.lineno, name.name) for name in node.names if name.name.split(".")[0] in MODULES]
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in MODULES:
            found.append((node.lineno, node.module))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CALLS:
            found.append((node.lineno, node.func.id))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and \
                ast.unparse(node.func) == "torch.load":
            found.append((node.lineno, "torch.load"))
    return found


class NoPickle(unittest.TestCase):
    def test_the_package_makes_no_objects_of_bytes(self):
        files = sorted(PACKAGE.rglob("*.py"))
        self.assertGreater(len(files), 10)
        for path in files:
            self.assertEqual(offences(path.read_text()), [], path)

    def test_one_that_did_would_be_seen(self):
        for text in ("import pickle", "from marshal import loads", "eval('1')", "import pickle.foo as p",
                     "def f(b):\n    return torch.load(b)", "exec(b)"):
            self.assertNotEqual(offences(text), [], text)


if __name__ == "__main__":
    unittest.main()
