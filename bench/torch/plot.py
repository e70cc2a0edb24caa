"""Draws what collectives.py and training.py have measured: time over bytes, one SVG per operation,
and steps with and without communication, one per number of ranks.

    python plot.py FILE.jsonl FOLDER
"""
import collections
import json
import math
import pathlib
import sys

WIDTH, HEIGHT, LEFT, BOTTOM = 560, 340, 70, 50
COLOURS = {"rota": "#c0392b", "gloo": "#2c3e50"}


def draw(title, curves):
    points = [p for curve in curves.values() for p in curve]
    low_x, high_x = (f(math.log2(x) for x, _ in points) for f in (min, max))
    low_y, high_y = (f(math.log10(y) for _, y in points) for f in (min, max))

    def place(x, y):
        return (LEFT + (math.log2(x) - low_x) / (high_x - low_x or 1) * (WIDTH - LEFT - 110),
                HEIGHT - BOTTOM - (math.log10(y) - low_y) / (high_y - low_y or 1)
                * (HEIGHT - BOTTOM - 40))

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
             'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" '
             f'fill="white"/><text x="{LEFT}" y="22" font-size="15">{title}</text>']
    for power in range(math.ceil(low_y), math.floor(high_y) + 1):
        y = place(2 ** low_x, 10 ** power)[1]
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - 110}" y1="{y:.1f}" y2="{y:.1f}" '
                     f'stroke="#ddd"/><text x="{LEFT - 8}" y="{y + 4:.1f}" '
                     f'text-anchor="end">{10 ** power:g} us</text>')
    for x in sorted({x for x, _ in points}):
        label = f"{x >> 20}M" if x >= 1 << 20 else f"{x >> 10}K" if x >= 1024 else str(x)
        parts.append(f'<text x="{place(x, 10 ** low_y)[0]:.1f}" y="{HEIGHT - BOTTOM + 20}" '
                     f'text-anchor="middle">{label}</text>')
    for i, (name, curve) in enumerate(sorted(curves.items())):
        colour = COLOURS.get(name.split()[0], "#888")
        dash = ' stroke-dasharray="5 3"' if "tcp" in name else ""
        path = " ".join("%.1f,%.1f" % place(*p) for p in sorted(curve))
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" '
                     f'stroke-width="2"{dash}/><text x="{WIDTH - 104}" y="{50 + 18 * i}" '
                     f'fill="{colour}">{name}</text>')
    return "\n".join(parts) + "</svg>\n"


def draw_steps(title, rows):
    """A bar for each run: computation, and what communication adds to it."""
    longest = max(row["step_ms"] for row in rows)
    height = 60 + 34 * len(rows)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
             'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" '
             f'fill="white"/><text x="{LEFT}" y="22" font-size="15">{title}</text>']
    for i, row in enumerate(rows):
        y, scale = 40 + 34 * i, (WIDTH - LEFT - 190) / longest
        alone, exposed = row["alone_ms"] * scale, max(row["exposed_ms"], 0) * scale
        name = row["backend"] + (" tcp" if row["transport"] == "tcp" else "")
        parts.append(f'<text x="8" y="{y + 15}">{row["model"]} {name}</text>'
                     f'<rect x="{LEFT + 50}" y="{y}" width="{alone:.1f}" height="22" fill="#ccc"/>'
                     f'<rect x="{LEFT + 50 + alone:.1f}" y="{y}" width="{exposed:.1f}" height="22" '
                     f'fill="{COLOURS[row["backend"]]}"/>'
                     f'<text x="{LEFT + 58 + alone + exposed:.1f}" y="{y + 15}">'
                     f'{row["step_ms"]:.1f} ms, {row["exposed_ms"]:.1f} exposed</text>')
    return "\n".join(parts) + "</svg>\n"


def write(path, text):
    path.write_text(text)
    print(path)


def main():
    source, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    curves = collections.defaultdict(lambda: collections.defaultdict(list))
    steps = collections.defaultdict(list)
    for line in open(source):
        row = json.loads(line)
        if "model" in row:
            steps[row["ranks"]].append(row)
            continue
        name = row["backend"] + (" tcp" if row["transport"] == "tcp" else "")
        curves[row["operation"], row["ranks"]][name].append((row["bytes"], row["us"]))
    for (operation, ranks), of_name in curves.items():
        write(folder / f"{operation}-{ranks}.svg", draw(f"{operation}, {ranks} ranks", of_name))
    for ranks, rows in steps.items():
        write(folder / f"training-{ranks}.svg", draw_steps(f"a step, {ranks} ranks", rows))


if __name__ == "__main__":
    main()
