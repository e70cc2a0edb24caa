#!/usr/bin/env python3
"""Takes links, GPUs and NICs out of topology files and looks at what `rota topo` makes of them.

usage: perturb.py ROTA FOLDER COUNT [FILE...]

For files whose links carry rings, COUNT seeded perturbations each: the links must be those that are
left, the score at least 0.99 of the optimum that GLPK (glpsol) computes here over all Hamiltonian
cycles, and where none is left the kind must be islands. For all other files the warnings must name
what is missing. COUNT random permutations of the GPUs of each file must not change the score.
FOLDER is as for truth.py.
"""
import collections
import copy
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

LINKS = ("nvlink", "xgmi")


def show(rota, text, suffix):
    with tempfile.NamedTemporaryFile("w", suffix=suffix, encoding="utf-8") as file:
        file.write(text)
        file.flush()
        done = subprocess.run([rota, "topo", "--xml", file.name, "--rings", "--nics",
                               "--format", "json"], capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise RuntimeError(f"status {done.returncode}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def hamiltonian_cycles(links):
    """All of them, each beginning with GPU 0, by depth-first search with a look ahead."""
    n = len(links)
    after = [[j for j in range(n) if links[i][j]] for i in range(n)]
    cycles, path, used = [], [0], [True] + [False] * (n - 1)

    def alive():
        return all(any(not used[b] or b == 0 for b in after[a]) for a in range(n) if not used[a])

    def extend():
        at = path[-1]
        if len(path) == n:
            if links[at][0]:
                cycles.append(path[:])
            return
        for to in after[at]:
            if not used[to]:
                used[to] = True
                path.append(to)
                if alive():
                    extend()
                path.pop()
                used[to] = False

    extend()
    return cycles


def optimum(links):
    """The most rings that share links, by GLPK. None where there is no Hamiltonian cycle."""
    n = len(links)
    cycles = hamiltonian_cycles(links)
    if not cycles:
        return None
    rows = {}
    for c, cycle in enumerate(cycles):
        for i, a in enumerate(cycle):
            rows.setdefault((a, cycle[(i + 1) % n]), []).append(f"x{c}")
    with tempfile.TemporaryDirectory() as folder:
        model, answer = pathlib.Path(folder, "model.lp"), pathlib.Path(folder, "answer")
        with model.open("w", encoding="ascii") as out:
            out.write("Maximize\n obj: " + "\n + ".join(f"x{c}" for c in range(len(cycles))))
            out.write("\nSubject To\n")
            for (a, b), terms in rows.items():
                out.write(f" l{a}_{b}: " + "\n + ".join(terms) + f" <= {links[a][b]}\n")
            out.write("End\n")
        subprocess.run(["glpsol", "--lp", str(model), "-o", str(answer)], check=True,
                       stdout=subprocess.DEVNULL)
        text = answer.read_text(encoding="ascii")
    assert re.search(r"Status:\s+OPTIMAL", text), text[:300]
    return float(re.search(r"Objective:\s+obj = (\S+)", text).group(1))


def score_of(shown):
    gpus, links = len(shown["gpus"]), shown["links"]
    load, total = {}, 0.0
    for ring in shown["rings"]:
        assert sorted(ring["gpus"]) == list(range(gpus)), "a ring does not pass every GPU once"
        total += ring["share"]
        for i, a in enumerate(ring["gpus"]):
            hop = a, ring["gpus"][(i + 1) % gpus]
            load[hop] = load.get(hop, 0) + ring["share"]
    assert all(links[a][b] for a, b in load), "a hop without a link"
    return total / max(value / links[a][b] for (a, b), value in load.items())


def permute_attribute(elements, name, rng):
    values = [element.get(name) for element in elements]
    rng.shuffle(values)
    for element, value in zip(elements, values):
        element.set(name, value)


class Nccl:
    """NCCL's and RCCL's XML."""
    suffix = ".xml"

    def __init__(self, text):
        self.root = ElementTree.fromstring(text.strip())

    def parents(self):
        return {child: parent for parent in self.root.iter() for child in parent}

    def gpus(self):
        found = [pci for pci in self.root.iter("pci") if pci.find("gpu") is not None]
        return found or [pci for pci in self.root.iter("pci")
                         if (pci.get("class") or "").startswith("0x03")]

    def remove(self, what, rng):
        """What was taken out, in words; None when there is nothing to take."""
        parents = self.parents()
        if what == "link":
            links = [link for name in LINKS for link in self.root.iter(name)]
            if not links:
                return None
            link = rng.choice(links)
            source = parents[parents[link]].get("busid")
            target = link.get("target")
            parents[link].remove(link)
            for other in links:  # the way back
                if other is not link and other.get("target") == source and \
                        parents[parents[other]].get("busid") == target and rng.random() < 0.7:
                    parents[other].remove(other)
            return f"link {source} -> {target}"
        if what == "gpu":
            gpus = self.gpus()
            if len(gpus) < 3:
                return None
            gpu = rng.choice(gpus)
            parents[gpu].remove(gpu)
            return f"GPU {gpu.get('busid')}"
        nics = [nic for nic in self.root.iter("nic")] + \
               [pci for pci in self.root.iter("pci") if (pci.get("class") or "").startswith("0x02")
                and pci.find("nic") is None]
        if not nics:
            return None
        nic = rng.choice(nics)
        gone = parents[nic] if nic.tag == "nic" and parents[nic].tag == "pci" else nic
        parents[gone].remove(gone)
        return "NIC"

    def permute(self, rng):
        """Other device numbers and ranks for the same GPUs, or other bus ids where these count."""
        gpus = list(self.root.iter("gpu"))
        if not gpus:
            permute_attribute(self.gpus(), "busid", rng)
        order = list(range(len(gpus)))
        rng.shuffle(order)
        for gpu, number in zip(gpus, order):
            gpu.set("dev", str(number))
            gpu.set("rank", str(number))

    def links(self):
        """How many lead from GPU to GPU, by bus ids."""
        counts = collections.Counter()
        for pci in self.gpus():
            for name in LINKS:
                for link in pci.iter(name):
                    counts[pci.get("busid"), link.get("target")] += int(link.get("count"))
        return counts

    def text(self):
        return ElementTree.tostring(self.root, encoding="unicode")


class Matrix:
    """The table of nvidia-smi topo -m."""
    suffix = ".txt"

    def __init__(self, text):
        lines = text.splitlines()
        head = lines[0].split("CPU")[0].split()
        self.tail = lines[0][lines[0].find("CPU"):] if "CPU" in lines[0] else ""
        self.rest = []
        self.names = head
        self.cells, self.ends = {}, {}
        for line in lines[1:]:
            words = line.split()
            if words and words[0] in head:
                self.cells[words[0]] = dict(zip(head, words[1:len(head) + 1]))
                self.ends[words[0]] = "    ".join(words[len(head) + 1:])
            else:
                self.rest.append(line)

    def drop(self, name):
        self.names.remove(name)
        self.cells.pop(name, None)
        for row in self.cells.values():
            row.pop(name, None)

    def remove(self, what, rng):
        gpus = [name for name in self.names if name.startswith("GPU")]
        nics = [name for name in self.names if not name.startswith("GPU")]
        if what == "link":
            pairs = [(a, b) for a in gpus for b in gpus if self.cells[a][b].startswith("NV")]
            if not pairs:
                return None
            a, b = rng.choice(pairs)
            self.cells[a][b] = self.cells[b][a] = "SYS"
            return f"link {a} - {b}"
        if what == "gpu" and len(gpus) > 2:
            gone = rng.choice(gpus)
        elif what == "nic" and nics:
            gone = rng.choice(nics)
        else:
            return None
        self.drop(gone)
        return gone

    def permute(self, rng):
        gpus = [name for name in self.names if name.startswith("GPU")]
        rng.shuffle(gpus)
        self.names = gpus + [name for name in self.names if not name.startswith("GPU")]

    def links(self):
        """How many lead from GPU to GPU, by names."""
        return collections.Counter({(a, b): int(cell[2:]) for a, row in self.cells.items()
                                    for b, cell in row.items() if cell.startswith("NV")})

    def text(self):
        lines = ["        " + "  ".join(self.names) + "  " + self.tail]
        for name in self.names:
            if name in self.cells:
                row = self.cells[name]
                lines.append(name + "  " + "  ".join(row[other] for other in self.names) + "  " +
                             self.ends[name])
        return "\n".join(lines + self.rest) + "\n"


class Hwloc:
    """hwloc's XML, versions 1 and 2. Links stand in one matrix of bandwidths, if at all."""
    suffix = ".xml"
    families = ("nvml", "rsmi", "cuda", "opencl")  # of devices by which GPUs are known

    def __init__(self, text):
        self.root = ElementTree.fromstring(text)
        self.table = next((table for table in self.root if table.tag.startswith("distances2") and
                           table.get("name") in ("NVLinkBandwidth", "XGMIBandwidth")), None)
        if self.table is not None:
            self.indexes = self.numbers("indexes")
            self.values = [int(value) for value in self.numbers("u64values")]

    def numbers(self, tag):
        return " ".join(element.text for element in self.table.iter(tag)).split()

    def devices(self, fits):
        """PCI devices with such an OS device, and that one."""
        return [(pci, os) for pci in self.root.iter("object") if pci.get("type") == "PCIDev"
                for os in pci if os.get("type") == "OSDev" and fits(os)]

    def gpus(self):
        for family in self.families:
            found = self.devices(lambda os, family=family: os.get("name").startswith(family))
            if found:
                return found
        return [(pci, None) for pci in self.root.iter("object") if pci.get("type") == "PCIDev" and
                re.match("0302|1200", pci.get("pci_type"))]

    def row(self, pci):
        """Number of the device in the matrix, None: not in it."""
        for os in pci:
            for at, index in enumerate(self.indexes if self.table is not None else []):
                if index.split(":")[-1] == os.get("gp_index"):
                    return at
        return None

    def drop(self, pci):
        size, at = len(self.indexes) if self.table is not None else 0, self.row(pci)
        if at is not None:
            self.indexes.pop(at)
            self.values = [value for i, value in enumerate(self.values)
                           if at not in (i // size, i % size)]
        for parent in self.root.iter():
            if pci in list(parent):
                parent.remove(pci)

    def remove(self, what, rng):
        gpus = [pci for pci, _ in self.gpus()]
        if what == "link":
            rows = [at for at in map(self.row, gpus) if at is not None]
            pairs = [(a, b) for a in rows for b in rows if a < b and
                     self.values[a * len(self.indexes) + b]]
            if not pairs:
                return None
            a, b = rng.choice(pairs)
            size = len(self.indexes)
            self.values[a * size + b] = self.values[b * size + a] = 0
            return f"link {self.indexes[a]} - {self.indexes[b]}"
        nics = self.devices(lambda os: os.get("osdev_type") == "3") or \
            self.devices(lambda os: os.get("osdev_type") == "2")
        gone = gpus if what == "gpu" and len(gpus) > 2 else \
            [pci for pci, _ in nics] if what == "nic" else []
        if not gone:
            return None
        gone = rng.choice(gone)
        self.drop(gone)
        return f"{what} {gone.get('pci_busid')}"

    def permute(self, rng):
        gpus = self.gpus()
        if gpus[0][1] is None:
            permute_attribute([pci for pci, _ in gpus], "pci_busid", rng)
        else:
            permute_attribute([os for _, os in gpus], "name", rng)

    def links(self):
        """How many lead from GPU to GPU, by bus ids, in units of the narrowest."""
        rows = {pci.get("pci_busid"): self.row(pci) for pci, _ in self.gpus()}
        size = len(self.indexes)
        widths = {(a, b): self.values[i * size + j] for a, i in rows.items()
                  for b, j in rows.items() if i != j and self.values[i * size + j]}
        return collections.Counter({pair: width // min(widths.values())
                                    for pair, width in widths.items()})

    def text(self):
        if self.table is not None:
            self.table.set("nbobjs", str(len(self.indexes)))
            for tag, content in ("indexes", self.indexes), ("u64values", map(str, self.values)):
                for old in self.table.findall(tag):
                    self.table.remove(old)
                new = ElementTree.SubElement(self.table, tag)
                new.text = " ".join(content) + " "
                new.set("length", str(len(new.text)))
        return ElementTree.tostring(self.root, encoding="unicode")


def opened(path):
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".txt":
        return Matrix(text)
    return Hwloc(text) if "<topology" in text else Nccl(text)


def check_links(shown, machine):
    """Those that are left in the machine, and no others."""
    left = machine.links()
    for a in shown["gpus"]:
        for b in shown["gpus"]:
            keys = [(a[key], b[key]) for key in ("busid", "name")]
            wanted = sum(left[key] for key in keys if a is not b and "" not in key)
            links = shown["links"][a["id"]][b["id"]]
            assert links == wanted, f"{links} links {keys}, not {wanted}"


def perturb_direct(rota, machine, seed):
    rng = random.Random(seed)
    machine = copy.deepcopy(machine)
    done = [machine.remove(rng.choice(["link", "link", "gpu", "nic"]), rng)
            for _ in range(rng.choice([1, 1, 2]))]
    shown = show(rota, machine.text(), machine.suffix)
    check_links(shown, machine)
    best = optimum(shown["links"])
    if best is None:
        return None if shown["ring_kind"] == "islands" else \
            f"{done}: no cycle is left, but the kind is {shown['ring_kind']}"
    score = score_of(shown)
    if score < 0.99 * best - 1e-6:
        return f"{done}: score {score}, optimum {best}"
    if shown["bound"] < best * (1 - 1e-5):
        return f"{done}: bound {shown['bound']} below the optimum {best}"
    return None


def permute(rota, machine, seed, before):
    """Whole rings may become shared ones of the same score, no more."""
    machine = copy.deepcopy(machine)
    machine.permute(random.Random(seed))
    shown = show(rota, machine.text(), machine.suffix)
    if isinstance(before["score"], dict):
        return None if shown["score"] == before["score"] else \
            f"permuted: hops {shown['score']} instead of {before['score']}"
    if shown["ring_kind"] == "direct":
        assert abs(score_of(shown) - shown["score"]) < 1e-3, "the score is not that of the rings"
    return None if abs(shown["score"] - before["score"]) < 1e-3 else \
        f"permuted: {shown['score']} instead of {before['score']}"


def perturb_other(rota, machine, seed, before):
    rng = random.Random(seed)
    machine = copy.deepcopy(machine)
    what = rng.choice([what for what in ("link", "gpu", "nic")
                       if copy.deepcopy(machine).remove(what, random.Random(0))] or ["link"])
    done = machine.remove(what, rng)
    if done is None:  # two GPUs and nothing else
        return None
    shown = show(rota, machine.text(), machine.suffix)
    fresh = [line for line in shown["warnings"] if line not in before["warnings"]]
    # Of two devices the one that is left has nothing to be compared with.
    lone = what == "nic" and len(before["nics"]) == 2 and len(shown["nics"]) == 1
    words = {"link": "[Ll]ink", "gpu": "GPU|no device", "nic": "NIC|no device"}[what]
    if len(before["gpus"]) > 2 and not lone and not any(re.search(words, line) for line in fresh):
        return f"{done} taken out, and no warning tells: {fresh}"
    return None


def main():
    rota, folder, count = sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3])
    truth = json.loads((folder / "expected.json").read_text(encoding="utf-8"))["files"]
    names = sys.argv[4:] or sorted(
        name for name in truth if truth[name].get("version") != "3.0" and
        truth[name].get("ring_kind", "no-or-one-gpu") != "no-or-one-gpu")
    tried = failed = 0
    for name in names:
        machine = opened(folder / name)
        before = show(rota, machine.text(), machine.suffix)
        for seed in range(count):
            problems = []
            try:
                problems = [perturb_direct(rota, machine, seed)
                            if truth[name]["ring_kind"] == "direct" else
                            perturb_other(rota, machine, seed, before),
                            permute(rota, machine, seed, before)]
            except (AssertionError, RuntimeError, KeyError) as error:
                problems = [repr(error)]
            tried += 1
            for problem in filter(None, problems):
                print(f"{name}, seed {seed}: {problem}")
                failed += 1
    print(f"{tried} perturbations of {len(names)} files, {failed} not as expected")
    return 1 if failed or tried == 0 else 0


sys.exit(main())
