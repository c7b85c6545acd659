"""``fairqueue simulate``."""

from __future__ import annotations

from pathlib import Path

from tests.cli.command import Place

ROOT = Path(__file__).resolve().parents[2]
WORKLOAD = """
duration: 4
workers: {concurrency: 1}
limits: {tenant: 1}
tenants:
- name: acme
  messages: {arrivals: {regular: 1}, run: %s}
- name: beta
  count: 2
  messages: {arrivals: {poisson: 1}, run: 0.1}
"""


def write(place: Place, name: str, run: float) -> None:
    (place.directory / name).write_text(WORKLOAD % run, encoding="utf-8")


def test_the_same_file_gives_the_same_bytes(place: Place) -> None:
    write(place, "now.yaml", 0.5)
    first, second = (place.run("simulate", "now.yaml", "--json") for _ in range(2))
    assert (first.status, first.err) == (0, "")
    assert first.out == second.out
    (run,) = first.json["runs"]
    assert (run["workload"], run["seed"], run["sent"] > 4) == ("now.yaml", 1, True)
    assert [(entry["name"], entry["tenants"]) for entry in run["entries"]] == [("acme", 1), ("beta", 2)]


def test_two_files_side_by_side(place: Place) -> None:
    write(place, "now.yaml", 0.5)
    write(place, "then.yaml", 2)
    path = str(place.directory)
    done = place.call_bare("simulate", f"{path}/now.yaml", "--compare", f"{path}/then.yaml", "--seed", "5")
    assert (done.status, done.err) == (0, "")
    assert [cells[:2] for cells in done.lines[:4]] == [
        ["now.yaml", "acme"], ["then.yaml", "acme"], ["now.yaml", "beta x2"], ["then.yaml", "beta x2"],
    ]  # fmt: skip
    assert done.lines[0][2:5] == ["4", "4", "0"]
    assert done.lines[1][4] == "2"
    assert ["then.yaml", "tenant:acme", "1"] in [cells[:3] for cells in done.lines[4:]]


def test_what_is_wrong_is_one_line(place: Place) -> None:
    (place.directory / "w.yaml").write_text("duration: 4\ntenant: []\n", encoding="utf-8")
    done = place.call_bare("simulate", str(place.directory / "w.yaml"))
    assert done.status == 2
    assert "w.yaml: unknown key 'tenant' in the workload (did you mean 'tenants'?)" in done.error


def test_the_example_prints_what_the_guide_says(place: Place) -> None:
    done = place.run("simulate", str(ROOT / "examples" / "workload.yaml"))
    assert (done.status, done.err) == (0, "")
    assert done.lines
    text = (ROOT / "docs" / "guides" / "simulate.md").read_text(encoding="utf-8")
    for cells in done.lines:
        assert " ".join(cells) in " ".join(text.split()), cells
