#!/usr/bin/env python3
"""Writes the manual: section 3 from the comments of the public headers, section 7 as their table of
contents, section 1 from docs/command.md and docs/bench.md.

usage: man_pages.py [--check LIBRARY] VERSION SOURCE_FOLDER OUTPUT_FOLDER

What it relies on in a header: a comment that begins in the first column belongs to the lines that
follow it up to an empty line outside braces or to the next such comment; the first comment of a
header describes all of it. All functions and types of such a block share one page, under each of
their names. With --check, a function of the header or a symbol that the library exports without a
page or a comment is an error.
"""
import os
import re
import shutil
import subprocess
import sys

FUNCTION = re.compile(r"\bROTA_API\b[^;]*?\b(rota_\w+)\(")
TYPE = re.compile(r"^\} (rota_\w+);|^typedef [^;{]*?\(\*(rota_\w+)\)|^typedef [^;{(]*?(rota_\w+);",
                  re.M)
MARKED = re.compile(r"`([^`]+)`|\b(rota_\w+|ROTA_\w+|call->\w+|info->\w+|NULL)\b")


class Block:
    """A comment and the declarations that it describes."""

    def __init__(self, comment):
        self.comment = comment
        self.lines = []

    def code(self):
        return "\n".join(self.lines)

    def functions(self):
        return FUNCTION.findall(re.sub(r"\s+", " ", self.code()))

    def types(self):
        return ["".join(found) for found in TYPE.findall(self.code())]

    def names(self):
        return self.functions() + [name for name in self.types() if name not in self.functions()]

    def summary(self):
        """The first sentence, as it stands after a dash."""
        text = self.comment.split("\n\n")[0].replace("\n", " ").replace("`", "")
        text = re.split(r"(?<!e\.g)(?<!i\.e)(?<!\.)[.:;](?= |$)", text, maxsplit=1)[0]
        return text if re.match(r"[A-Z]{2}|[A-Z][a-z]*_", text) else text[:1].lower() + text[1:]


class Header:
    def __init__(self, path):
        self.name = os.path.basename(path)
        self.comment = ""
        self.blocks = []
        with open(path, encoding="utf-8") as file:
            self.parse(file.read())

    def parse(self, text):
        text = re.sub(r"#ifdef __cplusplus\n(extern \"C\" \{|\})\n#endif\n", "", text)
        block, depth = None, 0
        lines = iter(text.split("\n"))
        for line in lines:
            if line.startswith("/*"):
                comment = line
                while "*/" not in line:
                    line = next(lines)
                    comment += "\n" + line
                block = Block(plain_comment(comment))
                if not self.comment:
                    self.comment, block = block.comment, None
                else:
                    self.blocks.append(block)
            elif not line.strip() and depth == 0:
                block = None
            elif re.match(r"#(?!define)|#define \w+_H$", line):
                continue
            else:
                self.add_line(block, line)
                if block is None:
                    block = self.blocks[-1] if self.blocks else None
                depth += line.count("{") - line.count("}")

    def add_line(self, block, line):
        """A declaration without a comment begins a block of its own; macros join the one before."""
        if block is None:
            if line.startswith("#define") and line.split()[1].endswith("_INIT") and self.blocks:
                self.blocks[-1].lines += ["", line]
                return
            block = Block("")
            self.blocks.append(block)
        block.lines.append(line)


def plain_comment(text):
    lines = text.removeprefix("/*").removesuffix("*/").split("\n")
    return "\n".join(re.sub(r"^ \*(?: |$)", "", line).strip() for line in lines).strip()


def escape(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.M)


def marked(text):
    """Escaped text with names and code in bold."""
    parts, end = [], 0
    for found in MARKED.finditer(text):
        parts += [escape(text[end:found.start()]), "\\fB", escape(found[1] or found[2]), "\\fR"]
        end = found.end()
    return "".join(parts + [escape(text[end:])])


def paragraphs(text):
    return "\n.PP\n".join(guarded(marked(part)) for part in text.split("\n\n") if part.strip())


def guarded(text):
    """No line of running text may begin like a request."""
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.M)


def code(text):
    return ".nf\n" + re.sub(r"^([.'])", r"\\&\1", escape(text), flags=re.M) + "\n.fi\n"


def declaration(block):
    text = re.sub(r"ROTA_API ", "", block.code())
    text = re.sub(r" +\\$", " \\\\", text, flags=re.M)
    # A prototype over several lines is aligned behind the macro that a reader does not see.
    return re.sub(r"^ {20,}", lambda found: found[0][len("ROTA_API "):], text, flags=re.M)


def title(name, section, version):
    return f'.TH "{name}" "{section}" "" "rota {version}" "rota"\n'


def function_page(header, block, version, known):
    names = block.names()
    errors = re.search(r"\bErrors: ", block.comment)
    text = block.comment[:errors.start()] if errors else block.comment
    page = title(names[0], 3, version)
    page += f".SH NAME\n{', '.join(names)} \\- {escape(block.summary() or 'see ' + header.name)}\n"
    page += ".SH SYNOPSIS\n.B #include <rota/rota.h>\n.PP\n" + code(declaration(block))
    page += ".SH DESCRIPTION\n" + paragraphs(text) + "\n"
    if errors:
        errors = block.comment[errors.end():]
        page += ".SH ERRORS\n" + paragraphs(errors[:1].upper() + errors[1:]) + "\n"
    common = header.comment.split("\n\n", 1)
    if len(common) > 1 and block.functions():
        page += f".SH NOTES\nFor all of rota/{header.name}:\n.PP\n" + paragraphs(common[1]) + "\n"
    mentioned = re.findall(r"\brota_\w+", block.code() + " " + block.comment)
    beside = [name for other in header.blocks for name in other.names()[:1]]
    also = sorted({known[name] for name in mentioned + beside if name in known} - {names[0]})
    page += ".SH SEE ALSO\n" + ",\n".join(f"\\fB{name}\\fR(3)" for name in also + ["rota"]) + "\n"
    return page.replace("\\fBrota\\fR(3)", "\\fBrota\\fR(7)")


def contents_page(headers, version):
    page = title("rota", 7, version)
    page += ".SH NAME\nrota \\- collective communication primitives: the C interface\n"
    page += ".SH SYNOPSIS\n.B #include <rota/rota.h>\n.PP\n"
    page += escape("cc ... $(pkg-config --cflags --libs rota)\n")
    for header in headers:
        if not header.blocks:
            continue
        page += f".SH {header.name.removesuffix('.h').upper()}\n"
        page += paragraphs(header.comment) + "\n"
        for block in header.blocks:
            for name in block.functions():
                page += f".TP\n\\fB{name}\\fR(3)\n{escape(block.summary())}\n"
    return page + ".SH SEE ALSO\n\\fBrota\\fR(1)\n"


def inline(text):
    """Markdown within a line: code, emphasis, links, entities that tables need."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text.replace("\\|", "|"))
    out = ""
    for part in re.split(r"(`[^`]*`|\*\*?[^*\s][^*]*\*\*?)", text):
        font = {"`": "\\fB", "*": "\\fI"}.get(part[:1]) if len(part) > 2 else None
        out += font + escape(part.strip("`*")) + "\\fR" if font else escape(part)
    return out


def table(rows):
    """The first column as a tag, the others as its text, each under the column's title."""
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", row.strip()[1:-1])] for row in rows]
    heads, out = cells[0], ""
    for row in cells[2:]:
        # What it means first, then the rest, as "Default: 8."
        rest = sorted(zip(heads[1:], row[1:]), key=lambda pair: pair[0] != "meaning")
        texts = [inline(text if head in ("meaning", "") else f"{head.capitalize()}: {text}")
                 for head, text in rest if text]
        texts = [text.rstrip(".") + "." for text in texts]
        out += f".TP\n{inline(row[0])}\n{guarded(' '.join(texts))}\n"
    return out


def from_markdown(text):
    """The small part of Markdown that the documents use."""
    out, lines, at = "", text.split("\n"), 0
    while at < len(lines):
        end = at + 1
        line = lines[at]
        if line.startswith("#"):
            level = len(line) - len(line.lstrip("#"))
            name = line.lstrip("# ")
            name = escape(name if name.startswith("-") else name.upper() if level <= 2 else name)
            out += (".SH " if level <= 2 else ".SS ") + name + "\n"
        elif line.startswith("|"):
            while end < len(lines) and lines[end].startswith("|"):
                end += 1
            out += table(lines[at:end]) + ".PP\n"
        elif line.startswith("    ") or line.startswith("```"):
            fenced = line.startswith("```")
            while end < len(lines) and (not lines[end].startswith("```") if fenced
                                        else lines[end].startswith("    ")):
                end += 1
            body = lines[at + 1:end] if fenced else [part[4:] for part in lines[at:end]]
            out += ".PP\n" + code("\n".join("    " + part for part in body)) + ".PP\n"
            end += fenced
        elif re.match(r"- |\d+\. ", line):
            while end < len(lines) and re.match(r" +\S", lines[end]):
                end += 1
            item = " ".join(part.strip() for part in lines[at:end])
            mark, body = item.split(" ", 1)
            mark = "\\(bu" if mark == "-" else mark
            out += f'.IP "{mark}" 3\n{guarded(inline(body))}\n'
        elif line.strip():
            while end < len(lines) and re.match(r"(?![|#]|- |    |```).*\S", lines[end]):
                end += 1
            out += ".PP\n" + guarded(inline("\n".join(lines[at:end]))) + "\n"
        at = end
    return out


def tidy(page):
    """A paragraph is begun once, and not where a heading or an item begins one."""
    page = re.sub(r"(?:\.PP\n)+", ".PP\n", page)
    page = re.sub(r"(\.S[HS] .*\n)\.PP\n", r"\1", page)
    return re.sub(r"\.PP\n(?=\.(?:SH|SS|TP|IP)|\Z)", "", page)


def command_page(name, summary, synopsis, text, version):
    page = title(name, 1, version) + f".SH NAME\n{name} \\- {escape(summary)}\n"
    page += ".SH SYNOPSIS\n" + code("\n".join(synopsis)) + ".SH DESCRIPTION\n" + from_markdown(text)
    others = [other for other in ("rota", "rota-run", "rota-bench", "rota-verify", "rota-topo",
                              "rota-doctor", "rota-info")
              if other != name]
    return page + ".SH SEE ALSO\n" + ",\n".join(f"\\fB{other}\\fR(1)" for other in others) + "\n"


def command_pages(source, version):
    """rota(1) and one page per command. Those with a document of their own: docs/COMMAND.md."""
    with open(os.path.join(source, "docs/command.md"), encoding="utf-8") as file:
        parts = re.split(r"^## rota (\w+)\n", file.read(), flags=re.M)
    lines = re.search(r"\n\n((?:    .*\n)+)", parts[0])
    usage, entry = {}, None
    for line in lines[1].rstrip("\n").split("\n"):
        found = re.match(r"    rota (\w+) ", line)
        entry = found[1] if found else entry
        usage.setdefault(entry, []).append(re.sub(r"  +see \S+\.md$", "", line[4:]))
    texts = dict(zip(parts[1::2], parts[2::2]))
    for name in usage:
        document = os.path.join(source, "docs", name + ".md")
        if os.path.exists(document) and name not in texts:
            with open(document, encoding="utf-8") as file:
                texts[name] = file.read().split("\n", 1)[1]
    overview = parts[0][lines.end():]
    pages = {"rota.1": command_page("rota", "collective communication: run, measure, prove",
                                    sum(usage.values(), []), overview, version)}
    for name, text in texts.items():
        first = re.search(r"^[A-Z][^|#\n]*(?:\n[^|#\n]+)*", text, re.M)[0].replace("\n", " ")
        summary = re.split(r"[.:;](?= |$)", first)[0].replace("`", "")
        if len(summary) > 80: # up to the last comma that fits, at least to the first
            summary = summary[:max(summary.rfind(",", 0, 80), summary.find(","))]
        summary = summary[:1].lower() + summary[1:]
        synopsis = usage.get(name, [f"rota {name}"])
        pages[f"rota-{name}.1"] = command_page(f"rota-{name}", summary, synopsis, text, version)
    return pages


def library_pages(headers, version):
    known = {name: block.names()[0] for header in headers for block in header.blocks
             for name in block.names()}
    pages = {"rota.7": contents_page(headers, version)}
    for header in headers:
        for block in header.blocks:
            names = block.names()
            if names:
                pages[names[0] + ".3"] = function_page(header, block, version, known)
            for name in names[1:]:
                pages[name + ".3"] = f".so man3/{names[0]}.3\n"
    return pages


def exported(library):
    done = subprocess.run(["nm", "-D", "--defined-only", library], text=True, capture_output=True,
                          check=True)
    return {line.split()[2].split("@")[0] for line in done.stdout.splitlines() if " T " in line}


def complaints(headers, pages, library):
    symbols, functions, found = exported(library), set(), []
    for header in headers:
        for block in header.blocks:
            functions |= set(block.functions())
            if block.functions() and not block.comment:
                found.append(f"{header.name}: no comment before {block.functions()[0]}")
    found += [f"{name} has no page" for name in sorted(functions | symbols)
              if name + ".3" not in pages]
    return found + [f"{name} is declared but not exported" for name in sorted(functions - symbols)]


def main(arguments):
    library = None
    if arguments[:1] == ["--check"]:
        library, arguments = arguments[1], arguments[2:]
    version, source, output = arguments
    folder = os.path.join(source, "include/rota")
    headers = [Header(os.path.join(folder, name)) for name in sorted(os.listdir(folder))
               if name.endswith(".h")]
    pages = library_pages(headers, version)
    if library:
        found = complaints(headers, pages, library)
        print("\n".join(found) if found else f"{len(pages)} pages, none missing")
        return 1 if found else 0
    pages |= command_pages(source, version)
    shutil.rmtree(output, ignore_errors=True)
    for name, text in pages.items():
        path = os.path.join(output, "man" + name[-1], name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(tidy(text))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
