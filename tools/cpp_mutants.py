# SPDX-License-Identifier: Apache-2.0
"""Small wrong changes to C++ sources, for tools/mutate.

An operator finds places in code that clang-format has laid out: a comparison has a
space on either side, angle brackets of templates have none. A place that turns out
not to compile costs one compiler call, so operators may guess.
"""

import bisect
import hashlib
import re
from collections import Counter, namedtuple

import cpp_text

# Half-open range of the text, and what replaces it.
Edit = namedtuple("Edit", "begin end text")


class Mutant(namedtuple("Mutant", "id room operator file line before after edits")):
    """One change of one file. `before` and `after` are the changed lines."""

    def apply(self, text: str) -> str:
        for edit in sorted(self.edits, reverse=True):
            text = text[: edit.begin] + edit.text + text[edit.end:]
        return text


# ---- Reading ------------------------------------------------------------------------
def depths(code: str, begin: int, end: int):
    """Places of [begin, end), their characters, and how many brackets are open behind each."""
    depth = 0
    for i in range(begin, end):
        depth += (code[i] in "([{") - (code[i] in ")]}")
        yield i, code[i], depth


def closing(code: str, at: int) -> int:
    """The position behind the bracket that closes the one at `at`; -1 if none does."""
    for i, char, depth in depths(code, at, len(code)):
        if char in ")]}" and depth == 0:
            return i + 1
    return -1


def split_arguments(code: str, begin: int, end: int):
    """Ranges of what stands between the commas of [begin, end), outside of brackets."""
    start = begin
    for i, char, depth in depths(code, begin, end):
        if char == "," and depth == 0:
            yield start, i
            start = i + 1
    yield start, end


def _blank(code: str, begin: int, end: int) -> str:
    return code[:begin] + re.sub(r"[^\n]", " ", code[begin:end]) + code[end:]


def masked(text: str) -> str:
    """The code alone: no comments, literals, directives, nor what makes a message."""
    code = cpp_text.code(text)
    code = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: _blank(m[0], 0, len(m[0])),
                  code, flags=re.MULTILINE)
    for match in list(re.finditer(
            r"\b(?:text|note|static_assert|fail_check|\w*Error|COHORT_CHECK)(\()", code)):
        # Inside another one it is blank already.
        end = closing(code, match.start(1)) if code[match.start(1)] == "(" else -1
        if end < 0:
            continue
        begin = match.start(1) + 1
        if match[0].startswith("COHORT_CHECK"):
            begin = next(split_arguments(code, begin, end - 1))[1]
        code = _blank(code, begin, end - 1)
    return code


_BREAKS = re.compile(r"[;{}]\s*\Z|\)\s*\Z|\belse\s*\Z|[^:]:\s*\Z")


def statement(code: str, begin: int):
    """(begin, end) of the statement that begins at `begin`, with its ';', or None."""
    if not _BREAKS.search(code, max(0, begin - 200), begin):
        return None
    for i, char, depth in depths(code, begin, len(code)):
        if depth < 0:
            return None
        if char == ";" and depth == 0:
            return begin, i + 1
    return None


def _empty(code: str, begin: int, end: int) -> Edit:
    """Leaves an empty statement, and every line where it was: checks name theirs."""
    return Edit(begin, end, ";" + "\n" * code.count("\n", begin, end))


def _statements(code: str, pattern: str):
    for match in re.finditer(pattern, code, re.MULTILINE):
        found = statement(code, match.start())
        if found:
            yield [_empty(code, *found)]


def _conditions(code: str, words: str):
    """(keyword, begin, end) of what stands between the parentheses of an if or while."""
    for match in re.finditer(rf"\b({words}) (\()", code):
        end = closing(code, match.start(2))
        if end > 0:
            yield match, match.start(2) + 1, end - 1


# ---- Operators ----------------------------------------------------------------------
# Each yields lists of edits, one list for a mutant.
def drop_check(code):
    for match in re.finditer(r"\bCOHORT_CHECK\(", code):
        found = statement(code, match.start())
        if found:
            yield [_empty(code, *found)]
    for match, _, end in _conditions(code, "if"):
        if re.search(r"\belse\s*\Z", code[: match.start()]):
            continue
        body = re.compile(r"\s*(\{?)\s*(?=(?:throw|return|continue|break)\b)").match(
            code, end + 1)
        found = body and statement(code, body.end())
        if not found:
            continue
        after = found[1]
        if body[1]:
            brace = re.compile(r"\s*\}").match(code, after)
            if not brace:
                continue
            after = brace.end()
        if not re.compile(r"\s*else\b").match(code, after):
            yield [_empty(code, match.start(), after)]


def swap_comparison(code):
    other = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
    for match in re.finditer(r"(?<=\s)(?:[<>]=?|[=!]=)(?=\s)", code):
        yield [Edit(*match.span(), other[match[0]])]


def swap_logic(code):
    for match in re.finditer(r"(?<=\s)(?:&&|\|\|)(?=\s)", code):
        yield [Edit(*match.span(), "||" if match[0] == "&&" else "&&")]


def negate_condition(code):
    for _, begin, end in _conditions(code, "if|while"):
        begin = max(begin, code.rfind(";", begin, end) + 1)  # if (init; condition)
        if not re.search(r"[^=!<>]=[^=]", code[begin:end]):  # a declaration
            yield [Edit(begin, begin, " !(" if code[begin - 1] == ";" else "!("),
                   Edit(end, end, ")")]


def drop_wait(code):
    for match in re.finditer(r"(?:\.|->)wait\(\)(?=;)", code):
        receiver = re.search(r"\b[\w.\[\]>-]+\Z", code[: match.start()])
        found = receiver and statement(code, receiver.start())
        if found:
            yield [_empty(code, *found)]
        elif code[match.start() - 1] == ")":  # what was started goes on by itself
            yield [Edit(*match.span(), "")]
    yield from _statements(code, r"\b\w+(?:\.|->)wait(?:_for|_until)?\((?!\))")


def drop_sync(code):
    for match in re.finditer(
            r"(?:\b\w+(?:\.|->)|::)?\b(?:fsync|fdatasync|msync|syncfs|sync_folder)\(", code):
        found = statement(code, match.start())
        if found:
            yield [_empty(code, *found)]
        elif "sync(" in match[0] and re.search(r"(?:[=(?:!]|&&|\|\|)\s*\Z",
                                               code[: match.start()]):
            yield [Edit(match.start(), closing(code, match.end() - 1), "0")]


def weaken_order(code):
    for match in re.finditer(r"\bmemory_order_(?:seq_cst|release|acquire|acq_rel)\b", code):
        yield [Edit(*match.span(), "memory_order_relaxed")]
    for match in re.finditer(r"(?:\.|->)(load|store|fetch_\w+|exchange)(\()", code):
        end = closing(code, match.start(2)) - 1
        given = code[match.start(2) + 1: end].strip()
        if "elaxed" in given or "memory_order" in given or (match[1] == "load") == bool(given):
            continue
        yield [Edit(end, end, (", " if given else "") + "std::memory_order_relaxed")]
    yield from _statements(code, r"\bstd::atomic_thread_fence\(")


def drop_notify(code):
    yield from _statements(code, r"\b[\w.\[\]>-]+(?:\.|->)notify_(?:all|one)\(")


def drop_store(code):
    yield from _statements(
        code, r"\b[\w.\[\]>-]+(?:\.|->)(?:store|fetch_add|fetch_sub|fetch_or)\(")


def swap_sum(code):
    for match in re.finditer(r"(?<=[\w)\]] )[+-](?=\s)", code):
        yield [Edit(*match.span(), "-" if match[0] == "+" else "+")]


def add_one(code):
    for match in re.finditer(r"(?<![\w.'])\d+(?![\w.'])", code):
        line = _lines(code, *match.span())
        pure = re.search(r"(?:\)|const|noexcept)\s+= \Z", code[: match.start()])
        if not pure and "chrono" not in line:  # times have no exact border
            yield [Edit(*match.span(), str(int(match[0]) + 1))]


def drop_assignment(code):
    yield from _statements(
        code, r"\b(?:\w+_|\w+(?:(?:\.|->)\w+)+)(?:\[[^\]\n]*\])? [-+|&]?= ")


def flip_return(code):
    for match in re.finditer(r"\breturn (true|false);", code):
        yield [Edit(*match.span(1), "false" if match[1] == "true" else "true")]
    # The nearest line that begins at the margin tells what a function gives back.
    heads = [(m.start(), m[0]) for m in re.finditer(r"^[A-Za-z].*", code, re.MULTILINE)]
    for match in re.finditer(r"\breturn ([^;{}]+);", code):
        at = bisect.bisect(heads, (match.start(), "")) - 1
        head = heads[at][1] if at >= 0 else ""
        if re.match(r"(?:static )?bool \w", head) and match[1] not in ("true", "false"):
            begin, end = match.span(1)
            yield [Edit(begin, begin, "!("), Edit(end, end, ")")]
        elif re.match(r"(?:static )?std::optional<", head) and "nullopt" not in match[1]:
            yield [Edit(*match.span(1), "std::nullopt")]


def drop_reset(code):
    for match in re.finditer(r"\bstd::exchange(\()", code):
        end = closing(code, match.start(1))
        begin, stop = next(split_arguments(code, match.end(), end - 1))
        what = code[begin:stop].strip()
        yield [Edit(match.start(), end, f"std::decay_t<decltype({what})>({what})")]
    yield from _statements(code, r"\b[\w.]+_?(?:\.|->)(?:reset|clear)\(\)")


def skip_first(code):
    for match in re.finditer(r"\bfor (\()", code):
        end = closing(code, match.start(1)) - 1
        if end < 0:
            continue
        head = code[match.end(): end]
        colon = re.search(r"[^:?]\s:\s", head)
        if ";" in head:
            zero = re.search(r"= 0(?=;)", head)
            if zero:
                at = match.end() + zero.start() + 2
                yield [Edit(at, at + 1, "1")]
        elif colon:
            at = match.end() + colon.end()
            yield [Edit(0, 0, "#include <ranges>\n#line 1\n"), Edit(at, at, "("),
                   Edit(end, end, ") | std::views::drop(1)")]


OPERATORS = {
    function.__name__.replace("_", "-"): function
    for function in (drop_check, swap_comparison, swap_logic, negate_condition, drop_wait,
                     drop_sync, weaken_order, drop_notify, drop_store, swap_sum, add_one,
                     drop_assignment, flip_return, drop_reset, skip_first)
}


# ---- Mutants of a file --------------------------------------------------------------
def _lines(text: str, begin: int, end: int) -> str:
    last = text.find("\n", end)
    return text[text.rfind("\n", 0, begin) + 1: last if last >= 0 else len(text)]


def mutants(text: str, room: str, file: str):
    """Every mutant of one file. An id stays the same while its line does."""
    code = masked(text)
    seen: Counter = Counter()
    for operator, find in OPERATORS.items():
        for edits in find(code):
            here = [e for e in edits if not e.text.startswith("#include")]
            begin, end = min(e.begin for e in here), max(e.end for e in here)
            mutant = Mutant("", room, operator, file, text.count("\n", 0, begin) + 1, "", "",
                            tuple(edits))
            before = _lines(text, begin, end)
            first = text.rfind("\n", 0, begin) + 1
            shifted = [Edit(e.begin - first, e.end - first, e.text) for e in here]
            after = mutant._replace(edits=shifted).apply(before)
            if after == before:
                continue
            words = "\n".join([operator, file, before.strip(), after.strip()])
            seen[words] += 1
            digest = hashlib.sha256(f"{words}\n{seen[words]}".encode()).hexdigest()[:8]
            yield mutant._replace(id=f"{room}-{digest}", before=before.strip("\n"),
                                  after=after.strip("\n"))
