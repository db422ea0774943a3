"""Reads C++ as text: comments and literals taken out, includes, and how long functions are.

Not a parser. Where the text can't be followed (braces that differ between branches of #if),
`functions` gives nothing rather than a guess.
"""

import re

_TOKEN = re.compile(
    r"""
    (?P<line>//(?:\\\n|[^\n])*)
  | (?P<block>/\*.*?\*/)
  | (?P<raw>\b(?:u8|[uUL])?R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)")
  | (?P<string>"(?:\\.|[^"\\\n])*")
  | (?P<number>\b\d[\w.]*(?:'[\w.]+)+)
  | (?P<char>'(?:\\.|[^'\\\n])+')
    """,
    re.VERBOSE | re.DOTALL,
)


def without_comments(text, literal=""):
    """The same text, line by line, without comments; what is in a literal becomes `literal`.

    An empty literal stays empty.
    """

    def replace(found):
        kind = found.lastgroup if found.lastgroup != "mark" else "raw"
        content = found.group()
        lines = "\n" * content.count("\n")
        if kind in ("line", "block"):
            return " " + lines
        if kind == "number":
            return content
        if kind == "char":
            return "'c'" + lines
        return ('""' if content == '""' else f'"{literal}"') + lines

    return _TOKEN.sub(replace, text)


def includes(text):
    """(line, header) of each #include."""
    # Header names look like literals, so only comments are taken out, and line by line.
    code = re.sub(r"/\*.*?\*/", lambda found: "\n" * found.group().count("\n"), text, flags=re.S)
    for number, line in enumerate(code.split("\n"), 1):
        found = re.match(r'\s*#\s*(?:include|include_next|import)\s*([<"])([^>"]+)[>"]', line)
        if found:
            yield number, found.group(2)


_TYPE = re.compile(
    r"(template\s*<.*>\s*)?(requires\b.*)?(typedef\s+|static\s+|inline\s+|constexpr\s+|const\s+)*"
    r"(class|struct|union|enum)\b",
    re.DOTALL,
)
_NAMESPACE = re.compile(r"(inline\s+)?namespace\b|extern\s*\"")
_CONSTRUCTOR = re.compile(r"\)\s*(noexcept\s*(\([^)]*\))?\s*)?:(?!:)")
_ACCESS = {"public", "private", "protected"}


def _kind(head):
    """What a brace opens, from the text since the last statement at the same depth."""
    head = head.strip()
    if _NAMESPACE.match(head):
        return "scope"
    if head.count("(") > head.count(")"):
        return "other"
    if _TYPE.match(head) and not re.search(r"\)\s*(const|noexcept|override|final|&|\s)*$", head):
        return "scope"
    if "(" not in head or head.endswith("="):
        return "other"
    # `Foo() : a_{1}, b_(2) {`: a body never follows a member's name.
    if _CONSTRUCTOR.search(head) and re.search(r"[\w>]$", head):
        return "other"
    return "function"


def _name(head):
    head = head.strip()
    macro = re.match(r"(TEST\w*|BENCHMARK\w*|TYPED_TEST\w*)\s*\(([^)]*)\)", head)
    if macro:
        return f"{macro.group(1)}({' '.join(macro.group(2).split())})"
    found = re.search(r"(operator\s*[^\w\s]+?|[\w:~]+)\s*\(", head)
    return found.group(1) if found else "function"


def functions(text):
    """(first line, last line, name) of each function with a body, nested ones not apart.

    The first line is the one where its declaration begins.
    """
    code = without_comments(text)
    code = re.sub(r"^[ \t]*#(?:\\\n|[^\n])*", lambda f: "\n" * f.group().count("\n"), code,
                  flags=re.MULTILINE)
    found = []
    stack = []  # (kind, first line, name)
    head, head_line, line = "", 1, 1
    for char in code:
        if char == "\n":
            line += 1
        inside = any(kind != "scope" for kind, _, _ in stack)
        if char == "{":
            kind = "inner" if inside else _kind(head)
            stack.append((kind, head_line, _name(head)))
            if kind == "scope":
                head = ""
        elif char == "}":
            if not stack:
                return []
            kind, first, name = stack.pop()
            if kind == "function":
                found.append((first, line, name))
            # What follows the braces of an initialiser still belongs to the same declaration.
            if kind == "other":
                head += "{}"
            elif kind != "inner":
                head = ""
        elif inside:
            continue
        elif char == ";" or (char == ":" and head.strip() in _ACCESS):
            head = ""
        else:
            if not head.strip():
                head, head_line = "", line
            head += char
    return [] if stack else found
