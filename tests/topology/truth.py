#!/usr/bin/env python3
"""Compares `rota topo --rings --trees --format json` with a ground truth, file by file.

usage: truth.py ROTA FOLDER [FILE...]

FOLDER holds topology files and expected.json (docs/topology.md describes the fields that are
used). Everything is computed again from what the command prints: loads of links, hops by class,
whether each ring passes every GPU once. Exit status 1 when anything differs.
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import time

CLASSES = ["NET", "SYS", "NODE", "PHB", "PXB", "PIX", "LNK"]


def run(rota, path, *options):
    began = time.monotonic()
    done = subprocess.run([rota, "topo", "--xml", str(path), *options, "--format", "json"],
                          capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr, time.monotonic() - began


def hops_of(ring, classes):
    counts = {}
    for i, gpu in enumerate(ring):
        name = classes[gpu][ring[(i + 1) % len(ring)]]
        counts[name] = counts.get(name, 0) + 1
    return counts


def farness(hops):
    """Hops from the farthest class to the nearest: less is better."""
    return [hops.get(name, 0) for name in CLASSES]


def score_of(shown):
    """Sum of shares over the highest load of a link, from the rings alone."""
    gpus = len(shown["gpus"])
    links, switch = shown["links"], shown.get("switch_links", [0] * gpus)
    load, leaving, entering, total = {}, [0.0] * gpus, [0.0] * gpus, 0.0
    for ring in shown["rings"]:
        assert sorted(ring["gpus"]) == list(range(gpus)), "a ring does not pass every GPU once"
        total += ring["share"]
        for i, a in enumerate(ring["gpus"]):
            b = ring["gpus"][(i + 1) % gpus]
            if links[a][b]:
                load[a, b] = load.get((a, b), 0) + ring["share"]
            else:
                assert switch[a] and switch[b], f"hop {a} -> {b} has no link"
                leaving[a] += ring["share"]
                entering[b] += ring["share"]
    worst = max([value / links[a][b] for (a, b), value in load.items()] +
                [max(leaving[i], entering[i]) / switch[i] for i in range(gpus) if switch[i]])
    return total / worst


def tree_score(shown):
    gpus = len(shown["gpus"])
    load, rate = {}, [0.0] * gpus
    for tree in shown["trees"]:
        seen = {tree["root"]}
        for a, b in tree["edges"]:
            assert a in seen and b not in seen, "a tree's edges are no tree"
            seen.add(b)
            load[a, b] = load.get((a, b), 0) + tree["share"]
        assert len(seen) == gpus, "a tree does not span"
        rate[tree["root"]] += tree["share"]
    worst = max(value / shown["links"][a][b] for (a, b), value in load.items())
    return min(rate) * (gpus - 1) / max(worst, 1)


def near(a, b, tolerance=1e-3):
    return abs(a - b) <= tolerance * max(1, abs(b))


def check_rings(shown, truth, problems):
    kind = truth["ring_kind"]
    proof = truth.get("proof", {})
    claims = truth.get("file_says")
    if kind in ("direct", "nvswitch"):
        score = score_of(shown)
        if not near(score, shown["score"]):
            problems.append(f"prints score {shown['score']}, its rings have {score}")
        whole = claims["max_link_rings"] if claims else truth["max_link_rings"]
        goals = [whole] + ([proof["lp_bound"]] if "lp_bound" in proof and not claims else [])
        if not any(near(score, goal) for goal in goals):
            problems.append(f"score {score}, expected one of {goals}")
        best = max(goals)
        if not near(shown["bound"], best):
            problems.append(f"bound {shown['bound']}, expected {best}")
    elif "best_single_ring_hops" in truth:
        if shown.get("ring_kind") != kind:
            problems.append(f"kind {shown.get('ring_kind')}, expected {kind}")
        got = hops_of(shown["rings"][0]["gpus"], shown["classes"])
        if farness(got) != farness(truth["best_single_ring_hops"]):
            problems.append(f"hops {got}, expected {truth['best_single_ring_hops']}")
    if "islands" in truth:
        for field in ("groups", "ring_bound_if_pcie_were_free"):
            if shown["islands"][field] != truth["islands"][field]:
                problems.append(f"islands.{field} {shown['islands'][field]}, "
                                f"expected {truth['islands'][field]}")
        field = "directed_hamiltonian_paths_per_group"
        if shown["islands"][field] != truth["islands"][field]:
            problems.append(f"islands.{field} {shown['islands'][field]}")
    if kind == "direct" and not claims:
        goal, score = proof["allgather_cut_bound"], tree_score(shown)
        if score < 0.98 * goal or not near(shown["tree_bound"], goal, 1e-4):
            problems.append(f"trees {score} of {shown['tree_bound']}, expected {goal}")


def check_machine(shown, truth, problems):
    counts = truth["counts"]
    if shown["machine"]["gpus"] != counts["gpus"]:
        problems.append(f"{shown['machine']['gpus']} GPUs, expected {counts['gpus']}")
    if truth.get("format") == "nccl-topo":
        for field in ("hosts", "cpus", "pci_switches", "nics"):
            if shown["machine"][field] != counts[field]:
                problems.append(f"{shown['machine'][field]} {field}, expected {counts[field]}")
    for gpu in truth.get("gpus", []):
        if not isinstance(gpu, dict):
            continue
        mine = shown["gpus"][gpu["id"]]
        if mine["busid"] != gpu["busid"]:
            problems.append(f"GPU {gpu['id']} is {mine['busid']}, expected {gpu['busid']}")
        if "numa" in gpu and str(mine["numa"]) != gpu["numa"]:
            problems.append(f"GPU {gpu['id']} on NUMA node {mine['numa']}, expected {gpu['numa']}")
    if "gpu_path_classes" in truth and shown["classes"] != truth["gpu_path_classes"]:
        for i, row in enumerate(truth["gpu_path_classes"]):
            if shown["classes"][i] != row:
                problems.append(f"classes of GPU {i}: {shown['classes'][i]}, expected {row}")
                break
    claims = truth.get("file_says")
    if "link_matrix" in truth and "switch_links" not in shown and shown["links"] != (claims or truth)["link_matrix"]:
        problems.append(f"links {shown['links']}, expected {truth['link_matrix']}")
    for gpu, nearest in truth.get("nearest_nic", {}).items():
        mine = shown["gpus"][int(gpu)]
        if nearest["nics"] and (mine["nearest_class"] != nearest["class"] or
                                sorted(mine["nearest_nics"]) != sorted(nearest["nics"])):
            problems.append(f"nearest NICs of GPU {gpu}: {mine['nearest_class']} "
                            f"{mine['nearest_nics']}, expected {nearest}")


def with_other_ends(rota, path):
    """What is printed of the file when its lines end as on another system."""
    text = path.read_bytes()
    text = text.replace(b"\r\n", b"\n") if b"\r\n" in text else text.replace(b"\n", b"\r\n")
    with tempfile.TemporaryDirectory() as folder:
        other = pathlib.Path(folder) / path.name
        other.write_bytes(text)
        status, shown, errors, _ = run(rota, other, "--rings", "--trees")
    return shown.replace(str(other), str(path)) if status == 0 else errors


def check(rota, folder, name, truth):
    problems = []
    status, text, errors, seconds = run(rota, folder / name, "--rings", "--trees")
    if truth.get("version") == "3.0":
        if status == 0 or "version" not in errors:
            problems.append(f"version 3 of hwloc XML: status {status}, '{errors.strip()}'")
        return problems, seconds
    if name.endswith("console.txt") or truth["format"] == "nccl-graph":
        if status == 0 or "expected" not in errors:
            problems.append(f"no topology: status {status}, '{errors.strip()}'")
        return problems, seconds
    if status != 0:
        return [f"status {status}: {errors.strip()}"], seconds
    shown = json.loads(text)
    try:
        check_machine(shown, truth, problems)
        check_rings(shown, truth, problems)
    except (AssertionError, KeyError, IndexError) as error:
        problems.append(repr(error))
    if truth.get("file_says") and not any("MI250X" in line for line in shown["warnings"]):
        problems.append("no warning of MI250X's flat matrix")
    odd = [line for line in truth.get("odd") or [] if "before the root element" not in line and
           "directly below" not in line and "diagonal" not in line]
    if odd and not shown["warnings"]:
        problems.append(f"{odd}, but without a warning")
    if seconds > 2:
        problems.append(f"took {seconds:.1f} s")
    if with_other_ends(rota, folder / name) != text:
        problems.append("printed otherwise with other ends of lines")
    return problems, seconds


def main():
    rota, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    truth = json.loads((folder / "expected.json").read_text(encoding="utf-8"))["files"]
    names = sys.argv[3:] or sorted(truth)
    failed, slowest = 0, 0.0
    for name in names:
        problems, seconds = check(rota, folder, name, truth[name])
        slowest = max(slowest, seconds)
        for problem in problems:
            print(f"{name}: {problem}")
        failed += bool(problems)
    print(f"{len(names) - failed} of {len(names)} files as expected, slowest {slowest:.2f} s")
    return 1 if failed or not names else 0


sys.exit(main())
