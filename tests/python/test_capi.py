# SPDX-License-Identifier: Apache-2.0
"""python/weft/_capi.py says exactly what include/weft/weft.h says: every function with its types, every constant with
its value, every struct with its layout. The header is read by the C compiler, so nothing is trusted to a copy."""
import ctypes
import os
import re
import subprocess
import sys
import tempfile
import unittest

from weft import _capi

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
INCLUDE = os.path.join(ROOT, "include")
HEADER = os.path.join(INCLUDE, "weft", "weft.h")
CC = os.environ.get("CC", "cc")
NOT_NUMBERS = ("WEFT_WEFT_H", "WEFT_CONFIG_INIT", "WEFT_CALL_INIT")
RENAMED = {"in": "in_"}  # a keyword of Python

VALUES = {"int": ctypes.c_int, "size_t": ctypes.c_size_t, "uint8_t": ctypes.c_uint8, "uint32_t": ctypes.c_uint32,
          "uint64_t": ctypes.c_uint64, "double": ctypes.c_double, "void": None,
          "weft_status_t": ctypes.c_int, "weft_dtype_t": ctypes.c_int, "weft_redop_t": ctypes.c_int,
          "weft_coll_t": ctypes.c_int, "weft_comm_t": ctypes.c_void_p, "weft_request_t": ctypes.c_void_p,
          "weft_op_t": ctypes.c_void_p}
STRUCTS = ("weft_id_t", "weft_config_t", "weft_error_t", "weft_message_t", "weft_mem_t", "weft_call_t")
# Memory whose type the caller chooses, and text.
UNTYPED = {"void *": ctypes.c_void_p, "char *": ctypes.c_char_p, "uint64_t *": ctypes.c_void_p}


def preprocess(*options):
    return subprocess.run([CC, "-E", "-P", *options, HEADER], stdout=subprocess.PIPE, check=True,
                          universal_newlines=True).stdout


def own_part(text):
    """The header's own declarations, without what it includes."""
    return text[text.index("typedef enum weft_status"):]


def type_of(declaration):
    """The ctypes type that a parameter or a result of this C type must have."""
    words = re.sub(r"\b(const|struct|enum)\b", "", declaration)
    stars = words.count("*")
    name = words.replace("*", " ").split()[0]
    if stars == 0:
        return VALUES[name]
    if stars == 1 and name + " *" in UNTYPED:
        return UNTYPED[name + " *"]
    if stars == 2:
        return ctypes.POINTER(UNTYPED[name + " *"])
    return ctypes.POINTER(getattr(_capi, name) if name in STRUCTS else VALUES[name])


def functions():
    """{name: (result, [parameters])} of the header, as ctypes."""
    text = own_part(preprocess())
    found = {}
    for result, name, parameters in re.findall(r"([\w ]+[ *]+)(weft_\w+)\(([^()]*)\);", text):
        result = re.sub(r".*;", "", result).strip()
        listed = [] if parameters.strip() == "void" else parameters.split(",")
        found[name] = (type_of(result), [type_of(parameter) for parameter in listed])
    return found


def constants():
    """The names of the header that stand for numbers."""
    names = []
    for name in re.findall(r"#define (WEFT_\w+)(?!\w|\()", preprocess("-dM")):
        if name not in NOT_NUMBERS:
            names.append(name)
    for body in re.findall(r"typedef enum \w+ \{(.*?)\}", own_part(preprocess()), re.S):
        names += re.findall(r"(WEFT_\w+) =", body)
    return names


def struct_fields():
    """{struct: [fields]} of the header."""
    found = {}
    for body, name in re.findall(r"typedef struct \w+ \{(.*?)\} (\w+);", own_part(preprocess()), re.S):
        members = [member for member in body.split(";") if member.strip()]
        found[name] = [re.sub(r"\[.*", "", part).replace("*", " ").split()[-1]
                       for member in members for part in member.split(",")]
    return found


def ask_the_compiler(expressions):
    """{expression: value}, from a small program."""
    lines = "".join('printf("%%lld\\n", (long long)(%s));\n' % expression for expression in expressions)
    source = "#include <stdio.h>\n#include <stddef.h>\n#include <weft/weft.h>\nint main(void) {\n%s}\n" % lines
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "ask")
        subprocess.run([CC, "-x", "c", "-I", INCLUDE, "-o", program, "-"], input=source, check=True,
                       universal_newlines=True)
        output = subprocess.run([program], stdout=subprocess.PIPE, check=True, universal_newlines=True).stdout
    return dict(zip(expressions, map(int, output.split())))


class TheHeader(unittest.TestCase):
    def test_has_exactly_these_functions_with_these_types(self):
        declared = functions()
        self.assertGreater(len(declared), 60)
        self.assertEqual(sorted(_capi.FUNCTIONS), sorted(declared))
        for name, (result, parameters) in declared.items():
            with self.subTest(name):
                self.assertEqual(_capi.FUNCTIONS[name], (result, parameters))

    def test_has_these_constants_with_these_values(self):
        names = constants()
        self.assertGreater(len(names), 50)
        for name, value in ask_the_compiler(names).items():
            with self.subTest(name):
                self.assertEqual(getattr(_capi, name), value)

    def test_has_these_structs_with_this_layout(self):
        declared = struct_fields()
        self.assertEqual(sorted(declared), sorted(STRUCTS))
        for struct, fields in declared.items():
            with self.subTest(struct):
                self.check_struct(struct, fields)

    def check_struct(self, struct, fields):
        ours = getattr(_capi, struct)
        self.assertEqual([name for name, _ in ours._fields_], [RENAMED.get(field, field) for field in fields])
        size = "sizeof(%s)" % struct
        places = {field: "offsetof(%s, %s)" % (struct, field) for field in fields}
        sizes = {field: "sizeof(((%s *)0)->%s)" % (struct, field) for field in fields}
        answers = ask_the_compiler([size] + list(places.values()) + list(sizes.values()))
        self.assertEqual(ctypes.sizeof(ours), answers[size])
        for field in fields:
            mine = getattr(ours, RENAMED.get(field, field))
            self.assertEqual((mine.offset, mine.size), (answers[places[field]], answers[sizes[field]]), field)


class TheLibrary(unittest.TestCase):
    def import_with(self, library):
        return subprocess.run([sys.executable, "-c", "import weft"], env=dict(os.environ, WEFT_LIBRARY=library),
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)

    def test_that_is_named_but_missing_is_an_error_that_says_so(self):
        said = self.import_with("/nowhere/libweft.so")
        self.assertNotEqual(said.returncode, 0)
        self.assertIn("ImportError: libweft.so was not found", said.stdout)
        self.assertIn("/nowhere/libweft.so (WEFT_LIBRARY): no such file", said.stdout)

    def test_that_is_something_else_is_refused(self):
        said = self.import_with("libc.so.6")
        self.assertNotEqual(said.returncode, 0)
        self.assertIn("ImportError: libc.so.6 is not libweft", said.stdout)

    def test_of_another_version_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            other = os.path.join(folder, "libweft.so")
            subprocess.run([CC, "-x", "c", "-shared", "-fPIC", "-o", other, "-"], check=True, universal_newlines=True,
                           input='const char *weft_version(void) { return "9.7.0"; }\n')
            said = self.import_with(other)
        self.assertNotEqual(said.returncode, 0)
        self.assertIn("is Weft 9.7.0, but this Python package speaks 0.1.x", said.stdout)


if __name__ == "__main__":
    unittest.main()
