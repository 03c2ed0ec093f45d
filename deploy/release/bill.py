#!/usr/bin/env python3
"""What a binary is made of, from what cargo knows.

    cargo metadata --format-version 1 --locked --filter-platform TARGET | bill.py sbom Cargo.lock > fairlane.cdx.json
    cargo metadata --format-version 1 --locked --filter-platform TARGET | bill.py licences Cargo.lock > THIRD-PARTY.md

`sbom` is CycloneDX 1.6; `licences` lists every crate with its licence and the texts that it brings. Only what ends up in the
binary counts: no dev-dependencies, and no build scripts' dependencies.
"""

import json
import os
import re
import sys
import tomllib


def linked(metadata):
    """The packages that the root is linked from, the root first, and who needs whom."""
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    root = metadata["resolve"]["root"]
    needs, open_ = {}, [root]
    while open_:
        one = open_.pop()
        if one in needs:
            continue
        # Kind null is a normal dependency, beside "dev" and "build".
        normal = [dep["pkg"] for dep in nodes[one]["deps"] if any(kind["kind"] is None for kind in dep["dep_kinds"])]
        needs[one] = sorted(normal)
        open_.extend(normal)
    packages = {package["id"]: package for package in metadata["packages"]}
    rest = sorted((packages[one] for one in needs if one != root), key=lambda p: (p["name"], p["version"]))
    return packages[root], rest, needs


def purl(package):
    return f"pkg:cargo/{package['name']}@{package['version']}"


def licence(package):
    """An SPDX expression; older crates separate choices by a slash."""
    return re.sub(r"\s*/\s*", " OR ", package["license"] or "") or "LicenseRef-see-the-crate"


def checksums(lock):
    with open(lock, "rb") as file:
        return {(p["name"], p["version"]): p.get("checksum") for p in tomllib.load(file)["package"]}


def sbom(metadata, lock):
    root, packages, needs = linked(metadata)
    sums = checksums(lock)
    refs = {package["id"]: purl(package) for package in [root, *packages]}

    def component(package):
        one = {
            "type": "library",
            "bom-ref": purl(package),
            "name": package["name"],
            "version": package["version"],
            "purl": purl(package),
            "licenses": [{"expression": licence(package)}],
        }
        if package["repository"]:
            one["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
        if sums.get((package["name"], package["version"])):
            one["hashes"] = [{"alg": "SHA-256", "content": sums[package["name"], package["version"]]}]
        return one

    main = component(root) | {"type": "application"}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": main},
        "components": [component(package) for package in packages],
        "dependencies": [
            {"ref": refs[one], "dependsOn": sorted({refs[need] for need in needs[one]})} for one in sorted(needs, key=refs.get)
        ],
    }


def texts(package):
    """The licence files that lie in a crate's source, by name."""
    folder = os.path.dirname(package["manifest_path"])
    names = [name for name in sorted(os.listdir(folder)) if re.match(r"(LICEN[CS]E|COPYING|NOTICE|COPYRIGHT)", name, re.IGNORECASE)]
    for name in names:
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            with open(path, encoding="utf-8", errors="replace") as file:
                yield name, file.read().strip()


def licences(metadata, _lock):
    root, packages, _ = linked(metadata)
    out = [f"# What {root['name']} {root['version']} is made of\n", "| crate | version | licence |", "| --- | --- | --- |"]
    out += [f"| {p['name']} | {p['version']} | {licence(p)} |" for p in packages]
    # Many crates bring the same text: each stands once, with all that bring it.
    kept = {}
    for package in packages:
        for _, text in texts(package):
            kept.setdefault(text, []).append(f"{package['name']} {package['version']}")
    for text, crates in kept.items():
        out += ["", "## " + ", ".join(crates), "", *("    " + line for line in text.splitlines())]
    return "\n".join(line.rstrip() for line in out)


if __name__ == "__main__":
    forms = {"sbom": lambda *a: json.dumps(sbom(*a), indent=1), "licences": licences}
    if len(sys.argv) != 3 or sys.argv[1] not in forms:
        sys.exit(__doc__)
    print(forms[sys.argv[1]](json.load(sys.stdin), sys.argv[2]))
