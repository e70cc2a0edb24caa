#!/usr/bin/env python3
"""Proves the walls between the layers: who may include whom.

Each layer is compiled against each header of every other layer with the layer's own include flags
(from compile_commands.json). Where the rule below allows the pair, a file of that one #include must
compile; where it does not, the compiler must not find the header (__has_include, which decides as
#include does, for all of them in one run). The rule stands here a second time, apart from the build
files, so that a wall torn down there is seen.

usage: check_walls.py SOURCE_FOLDER COMPILE_COMMANDS.json
"""
import concurrent.futures
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile

# Folder of a layer: the folders whose exported headers it may include.
SRC = "src/"
BELOW_TRANSPORTS = ["transports", "src/base", "src/net", "src/memory", "src/reduce"]
BELOW_ENGINE = BELOW_TRANSPORTS + ["src/schedule", "src/topology", "src/recording",
                                    "src/bootstrap", "src/liveness", "algorithms"]
RULES = {
    "src/base": [],
    "src/net": ["src/base"],
    "src/reduce": ["src/base"],
    "src/schedule": ["src/base"],
    "src/topology": ["src/base"],
    "src/recording": ["src/schedule", "src/base"],
    "src/memory": ["src/reduce", "src/base"],
    "src/bootstrap": ["src/net", "src/base"],
    "src/liveness": ["src/bootstrap", "src/net", "src/base"],
    "transports/self": BELOW_TRANSPORTS,
    "transports/shm": BELOW_TRANSPORTS,
    "transports/mux": BELOW_TRANSPORTS,
    "transports/verbs": BELOW_TRANSPORTS + ["transports/mux"],
    "transports/tcp": BELOW_TRANSPORTS + ["transports/mux"],
    "transports/verbs": BELOW_TRANSPORTS + ["transports/mux"],
    "transports/test": BELOW_TRANSPORTS,
    "algorithms": ["src/schedule", "src/base"],
    "src/engine": BELOW_ENGINE,
    "src/api": BELOW_ENGINE + ["src/engine"],
    "tools": [],
    "bench": [],
    "examples": [],
}
# Allowed by the rule, not used so far: neither required nor refused.
UNUSED = {("src/engine", "src/topology"), ("src/api", "src/topology"),
          ("src/engine", "src/liveness"), ("src/api", "src/liveness")}
# The harness of the comparison with other libraries lies outside this tree.
FROM_OUTSIDE = {"bench/peers": {"bench_core.h"}}
# These see the public API alone, and each other (the command runs the benchmark, the benchmark
# starts ranks as the command does).
OUTSIDE = ["tools", "bench", "examples"]
CHECKED = ["include", "src", "transports", "algorithms", "tools", "bench", "examples", "tests"]

failures = []


def fail(text):
    failures.append(text)


def files_below(root, folder, endings):
    for path, folders, names in os.walk(os.path.join(root, folder)):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in sorted(names):
            if name.endswith(endings):
                yield os.path.relpath(os.path.join(path, name), root)


def own_files(root, folder, endings):
    """Files of a layer, without those of layers in folders below it."""
    nested = [other + "/" for other in RULES if other.startswith(folder + "/")]
    return [path for path in files_below(root, folder, endings)
            if not any(path.startswith(prefix) for prefix in nested)]


def include_name(path):
    return path[len(SRC):] if path.startswith(SRC) else path


def exported_headers(root):
    """From the build files: folder -> names after HEADERS."""
    exported = {}
    for folder in list(RULES) + ["transports"]:
        build_file = os.path.join(root, folder, "CMakeLists.txt")
        names = exported.setdefault(folder, set())
        if not os.path.exists(build_file):
            continue
        text = re.sub(r"#[^\n]*", "", open(build_file, encoding="utf-8").read())
        for call in re.findall(r"rota_layer\(([^)]*)\)", text):
            words = call.split()
            if "HEADERS" in words:
                for word in words[words.index("HEADERS") + 1:]:
                    if word in ("SOURCES", "USES", "LIBRARIES"):
                        break
                    names.add(os.path.join(folder, word))
    return exported


def layer_flags(root, commands):
    """Folder -> compiler and include flags of one of its sources."""
    flags = {}
    for entry in commands:
        path = os.path.relpath(os.path.join(entry["directory"], entry["file"]), root)
        folder = os.path.dirname(path)
        while folder and folder not in RULES:
            folder = os.path.dirname(folder)
        if not folder or folder in flags:
            continue
        words = entry.get("arguments") or shlex.split(entry["command"])
        kept, take_next = [words[0]], False
        for word in words[1:]:
            if take_next or word.startswith(("-I", "-D", "-std", "-isystem")):
                kept.append(word)
                take_next = not take_next and word in ("-I", "-isystem")
        flags[folder] = kept
    return flags


def compiles(flags, header, empty):
    """An empty working folder, so that no quote finds a file beside the source."""
    done = subprocess.run(flags + ["-fsyntax-only", "-w", "-x", "c", "-"], cwd=empty, text=True,
                          input=f'#include "{header}"\nint unused;\n', capture_output=True)
    return done.returncode == 0, done.stderr.strip().split("\n")[0]


def visible(flags, headers, empty):
    """Those of the headers that an #include would find."""
    text = "".join(f'#if __has_include("{header}")\nseen {header}\n#endif\n' for header in headers)
    done = subprocess.run(flags + ["-E", "-P", "-w", "-x", "c", "-"], cwd=empty, text=True,
                          input=text, capture_output=True)
    if done.returncode != 0:
        fail(f"the compiler refuses to preprocess: {done.stderr.strip()}")
    return {line[len("seen "):] for line in done.stdout.splitlines() if line.startswith("seen ")}


def check_layer(root, layer, flags, exported):
    """Numbers of allowed and of forbidden pairs of this layer."""
    allowed, forbidden = [], []
    for other in list(RULES) + ["transports"]:
        if other == layer or (other in OUTSIDE and layer in OUTSIDE):
            continue
        for path in own_files(root, other, (".h", ".def")):
            if (layer, other) in UNUSED:
                continue
            may = other in RULES[layer] and path in exported[other]
            (allowed if may else forbidden).append(include_name(path))
    with tempfile.TemporaryDirectory() as empty:
        seen = visible(flags, allowed + forbidden, empty)
        for header in forbidden:
            if header in seen:
                fail(f"{layer} must not see {header}, but it does")
        for header in allowed:
            if header not in seen:
                fail(f"{layer} may include {header}, but does not find it")
            elif header.endswith(".h"):
                success, reason = compiles(flags, header, empty)
                if not success:
                    fail(f"{layer} may include {header}, but it does not compile: {reason}")
    return len(allowed), len(forbidden)


def check_public(root, flags):
    """Each public header compiles by itself and includes nothing of the inside."""
    compiler = next(iter(flags.values()))[0]
    base = [compiler, "-std=c11", "-pedantic", "-Wall", "-Werror", "-I",
            os.path.join(root, "include")]
    with tempfile.TemporaryDirectory() as empty:
        for path in files_below(root, "include", (".h",)):
            success, reason = compiles(base, path[len("include/"):], empty)
            if not success:
                fail(f"{path} does not compile by itself: {reason}")


def check_texts(root):
    line_form = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
    for folder in CHECKED:
        for path in files_below(root, folder, (".c", ".h", ".cpp", ".def")):
            with open(os.path.join(root, path), encoding="utf-8") as text:
                for number, line in enumerate(text, 1):
                    found = line_form.match(line)
                    if found:
                        check_include(root, folder, path, number, *found.groups())


def check_include(root, folder, path, number, quote, name):
    if name.startswith("/") or ".." in name.split("/"):
        fail(f"{path}:{number}: includes by a path around the walls: {name}")
    inside = {include_name(layer).split("/")[0] for layer in RULES if layer not in OUTSIDE}
    ours = name.split("/")[0] in inside
    if folder == "include" and (quote == '"' or ours):
        fail(f"{path}:{number}: a public header includes {name}")
    if folder in OUTSIDE:
        places = [os.path.dirname(path), ""] + OUTSIDE
        found = any(os.path.exists(os.path.join(root, place, name)) for place in places)
        found = found or name in FROM_OUTSIDE.get(os.path.dirname(path), ())
        if ours or (quote == '"' and not found):
            fail(f"{path}:{number}: {folder} may include <rota/...> alone, not {name}")


def main():
    root, commands_path = os.path.abspath(sys.argv[1]), sys.argv[2]
    with open(commands_path, encoding="utf-8") as text:
        flags = layer_flags(root, json.load(text))
    for layer in RULES:
        if own_files(root, layer, (".c",)) and layer not in flags:
            fail(f"{layer} has sources, but none of them is built")
    exported = exported_headers(root)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        counts = list(pool.map(lambda one: check_layer(root, one, flags[one], exported), flags))
    allowed, forbidden = (sum(column) for column in zip(*counts))
    check_public(root, flags)
    check_texts(root)
    for text in failures:
        print(text)
    print(f"{len(flags)} layers, {allowed} allowed pairs, {forbidden} forbidden pairs, "
          f"{len(failures)} failures")
    # Fewer would mean that the check has lost sight of the tree.
    if len(flags) < 8 or allowed < 20 or forbidden < 50:
        print("too few layers or pairs were seen for this check to mean anything")
        return 1
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
