"""What a workload file may say, and how it is told what is wrong with it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from fairqueue import ConfigurationError
from fairqueue.simulate import load_workload, workload_of

MESSAGES: dict[str, Any] = {"arrivals": {"poisson": 1}, "run": 1}
TENANT: dict[str, Any] = {"name": "acme", "messages": MESSAGES}
SMALL: dict[str, Any] = {"duration": 60, "workers": {}, "tenants": [TENANT]}


def stream(**more: Any) -> dict[str, Any]:
    return {"tenants": [{**TENANT, "messages": [MESSAGES, {**MESSAGES, **more}]}]}


def booked(count: int = 1, org: str = "o", **guarantees: int) -> dict[str, Any]:
    """Tenants with these guarantees, the last of them `count` times and in `org`, the others in `o`, which has four slots."""
    names = list(guarantees)
    tenants = [
        {
            "name": name,
            "guaranteed": guarantees[name],
            "messages": [MESSAGES, {**MESSAGES, "metadata": {"org": org if name == names[-1] else "o"}}],
            "count": count if name == names[-1] else 1,
        }
        for name in names
    ]
    return {"limits": {"tenant": None, "org": {"key": "org", "own": {"o": 4}}}, "tenants": tenants}


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"sed": 1}, "unknown key 'sed' in the workload (did you mean 'seed'?)"),
    ({"duration": 0}, "expected duration to be a number from 0.001"),
    ({"duration": float("inf")}, "expected duration to be a number from 0.001"),
    ({"seed": -1}, "expected seed to be an integer from 0"),
    ({"scheduler": "fare"}, "did you mean 'fair'?"),
    ({"scheduler": "drr", "quantum": 0}, "expected quantum to be a number from 0.001 to 1,000, got 0"),
    ({"quantum": 2}, "expected no quantum"),
    ({"charge": "money"}, "expected charge to be 'cost' or 'time', got 'money'"),
    ({"workers": []}, "expected workers to be a list of at least one"),
    ({"workers": {"concurency": 3}}, "unknown key 'concurency' in workers (did you mean 'concurrency'?)"),
    ({"workers": [{}, {"processes": 0}]}, "expected workers[1].processes to be an integer from 1"),
    ({"workers": {"pools": []}}, "expected workers.pools to be a list of at least one pool"),
    ({"tenants": []}, "expected tenants to be a list of at least one"),
    ({"tenants": [TENANT, TENANT]}, "expected every tenant once, got 'acme' more than once"),
    ({"tenants": ["acme"]}, "expected tenants[0] to be a mapping"),
    ({"tenants": [{"name": "acme"}]}, "expected tenants[0].messages, got none"),
    ({"tenants": [{**TENANT, "name": 7}]}, "expected tenants[0].name to be text, got 7"),
    ({"tenants": [{**TENANT, "limit": 3}]}, "limits.tenant is not declared"),
    ({"limits": {"tenant": -1}}, "expected limits.tenant to be an integer from 0 to 2147483647"),
    ({"limits": {"model": 3}}, "expected the key of limit 'model'"),
    ({"limits": {"tenant": {"own": {"a": 10**30}}}}, "expected limits.tenant.own.a to be an integer from 0 to"),
    (
        {"limits": {"tenant": 2}, "tenants": [{**TENANT, "guaranteed": 3}]},
        "expected what acme is guaranteed to be at most its limit of 2, got 3",
    ),
    ({"limits": {"model": {"key": "m", "own": {"large": "2"}}}}, "expected limits.model.own.large to be an integer"),
    (stream(run=-1), "expected tenants[0].messages[1].run to be a number from 0"),
    (stream(run={"normal": 1}), "unknown key 'normal' in tenants[0].messages[1].run"),
    (stream(run={}), "expected tenants[0].messages[1].run to be one of fixed, uniform"),
    (stream(run={"uniform": [2, 1]}), "expected tenants[0].messages[1].run.uniform[1] to be a number from 2"),
    (stream(run={"uniform": 2}), "expected tenants[0].messages[1].run.uniform to be a list"),
    (stream(run={"lognormal": {"p50": 2, "p95": 1}}), "expected tenants[0].messages[1].run.lognormal.p95"),
    (stream(arrivals={"regular": 0}), "expected tenants[0].messages[1].arrivals.regular to be a number from 1e-09"),
    (stream(arrivals={"regular": 1, "poisson": 1}), "arrivals to be one of poisson, regular, burst"),
    (stream(arrivals={"regular": 1, "every": 1}), "every beside burst, got it beside regular"),
    (stream(arrivals={"burst": 2, "every": 0}), "expected tenants[0].messages[1].arrivals.every to be a number"),
    (stream(cost="runs"), "expected tenants[0].messages[1].cost to be a number from 0.001"),
    (stream(expires=0), "expected tenants[0].messages[1].expires to be a number from 0.001"),
    ({"tenants": {**TENANT, "weight": 0}}, "expected tenants.weight to be a number from 0.01 to 100, got 0"),
    ({"scheduler": "fifo", "tenants": {**TENANT, "weight": 2}}, "the scheduler is fifo, which ignores tenants"),
    ({"tenants": {**TENANT, "backlog": -1}}, "expected tenants.backlog to be an integer from 0"),
    ({"tenants": {**TENANT, "rate": {"n": 1}}}, "a tenant has a limit or a rate, but limits.tenant is not declared"),
    ({"tenants": {**TENANT, "rate": {"per": 1}}}, "expected tenants.rate.n, got none"),
    ({"limits": {"tenant": {"rates": {"a": {"n": 1, "per": 1e9}}}}}, "limits.tenant.rates.a: expected per to be"),
    ({"tenants": {**TENANT, "guaranteed": 2}}, "a tenant has a guarantee, but limits.tenant is not declared"),
    (booked(gold=4, silver=1), "the guarantees of those who use org o to be at most its limit of 4, got 5"),
    (booked(gold=2, silver=2, count=2), "the guarantees of those who use org o to be at most its limit of 4, got 6"),
    ({"pauses": [{"from": 3}]}, "expected pauses[0] to be of at least one of tenant, queue, pool"),
    ({"pauses": {"pool": "p", "from": 3, "until": 2}}, "expected pauses.until to be a number from 3"),
    (stream(metadata={"model": 4}), "expected tenants[0].messages[1].metadata.model to be text, got 4"),
    (stream(arrivals={"poisson": 1e6}), "at most 10,000,000 messages, got about 60,000,060: a shorter duration"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "said"), WRONG, ids=[said for _, said in WRONG])
def test_what_is_wrong_is_named_by_its_place(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        workload_of(SMALL | change)
    assert said in str(caught.value)


@pytest.mark.parametrize("kept", [booked(gold=2, silver=2), booked(gold=4, silver=4, org="other")])
def test_guarantees_that_can_be_kept_are_taken(kept: dict[str, Any]) -> None:
    """Up to the limit of a shared group; others of another group, or of one without a limit, do not count."""
    assert set(workload_of(SMALL | kept).guarantees) == {"gold", "silver"}


def test_what_is_left_out_has_its_default() -> None:
    found = workload_of(SMALL)
    assert (found.seed, found.scheduler, found.limits, found.capacity, found.expected_messages) == (
        1,
        "fair",
        (),
        100,
        60,
    )
    (acme,) = found.tenants
    (messages,) = acme.streams
    assert (messages.queue, messages.pool, messages.priority, messages.cost) == ("default", "default", 0, 1)


def test_several_alike_are_counted_and_numbered() -> None:
    limits = {"limits": {"tenant": {"default": 3, "own": {"acme-02": 9}}}}
    found = workload_of(SMALL | limits | {"tenants": [{**TENANT, "count": 10, "limit": 5}]})
    assert found.tenants[0].names()[1] == "acme-02"
    assert found.own_limits["tenant", "acme-10"] == 5
    assert found.expected_messages == 600


def test_yaml_and_json_say_the_same(tmp_path: Path) -> None:
    as_json, as_yaml = tmp_path / "w.json", tmp_path / "w.yaml"
    as_json.write_text(json.dumps(SMALL))
    as_yaml.write_text(
        "duration: 60\nworkers: {}\ntenants:\n- name: acme\n  messages: {arrivals: {poisson: 1}, run: 1}\n"
    )
    found = [load_workload(path) for path in (as_json, as_yaml)]
    assert found[0].tenants[0].streams[0].arrivals == found[1].tenants[0].streams[0].arrivals
    assert found[0].workers == found[1].workers


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("w.yaml", b"tenants: [", "expected YAML, got: while parsing"),
        ("w.yaml", b"{duration: &a [*a], workers: {}, tenants: []}", "expected duration to be a number"),
        (
            "w.yaml",
            b"a: !!python/object:os.system {}",
            "expected YAML, got: could not determine a constructor",
        ),
        ("w.yaml", b"", "expected the workload to be a mapping of names to values, got None"),
        ("w.yaml", b"\xff", "no text in UTF-8"),
        ("w.json", b"{", "expected JSON, got: "),
        ("w.json", b"[" * 100_000 + b"]" * 100_000, "expected JSON, got: "),
        ("w.toml", None, "cannot read the workload"),
    ],
)
def test_a_file_that_is_none_is_refused(name: str, text: bytes | None, said: str, tmp_path: Path) -> None:
    path = tmp_path / name
    if text is not None:
        path.write_bytes(text)
    with pytest.raises(ConfigurationError) as caught:
        load_workload(path)
    assert said in str(caught.value)
    assert str(path) in str(caught.value)


def test_without_pyyaml_json_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    path = tmp_path / "w.json"
    path.write_text(json.dumps(SMALL))
    assert load_workload(path).duration_s == 60
    with pytest.raises(ConfigurationError, match="PyYAML: pip install pyyaml, or write it as JSON"):
        load_workload(path.rename(tmp_path / "w.yaml"))
