"""The rows of the tables that come from the code. The functions make what is more than an attribute of a row."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, get_args

from field_meanings import meaning_of, structs_of
from tables import Content, Key, code, grouped, link_pages, table

from txnwatch.cli.main import COMMANDS, DISTRIBUTIONS, parser
from txnwatch.cli.one_shot import choices
from txnwatch.config import RunSettings
from txnwatch.metrics.table import METRICS
from txnwatch.owners.id_shapes import SHAPES
from txnwatch.state.abort.rules import REFUSALS
from txnwatch.state.audit.audit_check import SEVERITY_MEANS, AuditCheck, Basis, CheckGroup, RemedyLine
from txnwatch.state.audit.audit_table import CHECKS
from txnwatch.state.audit.left_out import NO_CHECKS
from txnwatch.state.detection.proof import PHASE_MEANS, TRANSITIONS, BarrierShows, Output, Phase
from txnwatch.state.detection.reading import LACKS, READING_TRANSITIONS, Lack, ReadingEffect
from txnwatch.state.detection.span import EFFECTS
from txnwatch.state.evidence.outcome import DOUBTS
from txnwatch.state.evidence.screening import ExpectedEnd
from txnwatch.state.incidents.claims import BELIEVED, OwnState
from txnwatch.state.incidents.life import LIFE, Known, step
from txnwatch.state.model.facts import Fact
from txnwatch.state.model.incident import ExpectedOutcome, OutcomeDoubt
from txnwatch.state.model.verdicts import VERDICTS, Verdict
from txnwatch.state.telling.ends import whether_text
from txnwatch.state.telling.statements import REASON_MEANS
from txnwatch.streaming.source.options import KNOWN, parse_options
from txnwatch.streaming.source.rows import FACTS, HISTORY, FinishedTransaction, ReadRange, ddl_of, kind_of

ROOT = Path(__file__).resolve().parent.parent
_TYPES = {
    "Bootstrap": "list of host:port, comma-separated",
    "Path": "path of a file",
    "Prefixes": "list of strings",
    "RedisUrl": "URL",
    "RegistryUrl": "http:// or https:// URL, or several of them, comma-separated",
    "Regex": "regular expression",
    "SparkConf": "table of strings or numbers",
    "Text": "string",
    "ClusterName": "a-z, A-Z, 0-9, `.`, `_` and `-`, at most 63 characters",
    "NotEmpty": "text that is not empty",
    "TopicName": "name of a topic",
}
_LIMITS = (("gt", "exclusiveMinimum"), ("ge", "minimum"), ("le", "maximum"))  # of pydantic, behind a validator or not
_NOT_WORTH_NAMING = (1 << 31) - 1
# Spark programs write the names of options in camel case; the source compares them in lower case.
OPTIONS = (
    *("kafka.bootstrap.servers", "subscribe", "subscribePattern", "startingOffsets", "endingOffsets", "episodes"),
    *("maxOffsetsPerTrigger", "maxBytesPerSecond", "firstPattern", "maxReadMsPerTrigger", "inputPartitions"),
    *("buckets", "censusPattern", "censusIntervalMs", "healIntervalMs", "foreignPattern", "metadataRefreshMs"),
    *("listTimeoutMs", "readPatienceMs", "coordinatorView", "driverFile", "packed", "statePartitions"),
)
# The fields of the parsed options that have another name than the option; a time is in seconds there.
_FIELDS = {"coordinatorView": "coordinator_access", "maxReadMsPerTrigger": "max_read_s"}
_WITHOUT_DEFAULT = ("kafka.bootstrap.servers", "subscribe", "subscribePattern")
KINDS = {kind_of(of): of for of in (FinishedTransaction, ReadRange, *get_args(Fact))}


def _phases() -> str:
    def after(shows: BarrierShows) -> Key:
        return lambda row: _next(row[0], shows)

    return table(
        {"phase": 0, "meaning": 1, **{str(shows): after(shows) for shows in BarrierShows}}, PHASE_MEANS.items()
    )


def _next(phase: Phase, shows: BarrierShows) -> str | None:
    after = TRANSITIONS.get((phase, shows))
    if after is None:
        return None
    return f"{after.phase}" + (f"; {after.output}" if after.output is not Output.NOTHING else "")


def _ends() -> list[dict[str, object]]:
    rows = []
    for event, effect in EFFECTS.items():
        left, proof = "unchanged", "starts again" if effect.restarts_proof else "continues"
        if effect.end is not None:
            left, proof = f"ends: `{effect.end}`", None
        elif effect.keeps_first_batch:
            left = "only its first batch is left"
        rows.append({"event": event, "left": left, "proof": proof, "why": effect.why})
    return rows


def _life() -> str:
    def after(known: Known) -> Key:
        return lambda row: str(step(known, row[0]))

    return table(
        {"what happens": "0.value", **{str(known): after(known) for known in Known}, "why": "1.why"}, LIFE.items()
    )


def _believed() -> str:
    def used(row: tuple[OwnState, frozenset[str]]) -> str:
        everything = len(row[1]) == len(BELIEVED[OwnState.NOTHING])
        return "all; its command is built anew" if everything else ", ".join(f"`{name}`" for name in sorted(row[1]))

    return table({"what the watcher has": "0.value", "what it uses of the record": used}, BELIEVED.items())


def _forms_of_ids() -> list[dict[str, object]]:
    return [
        {"of": one, "form": re.sub("<([^<>:]+)(:[^<>]+)?>", r"<\1>", one.form), "rule": one.rule.value or "never"}
        for one in SHAPES
    ]


def _lacks() -> list[dict[str, object]]:
    return [
        {"lack": lack, "of": of, "includes": ", ".join(one for one in Lack if one in of.includes) or None}
        for lack, of in LACKS.items()
    ]


def _readings() -> list[dict[str, object]]:
    return [
        {"before": before, "after": after, "effect": None if after.effect is ReadingEffect.NOTHING else after.effect}
        for before, after in READING_TRANSITIONS.items()
    ]


def _event_fields() -> str:
    """The fields of the Avro schema; a nested record has a table of its own."""
    schema = json.loads((ROOT / "sinks" / "delivery" / "incident_event.avsc").read_text())
    columns: dict[str, Key] = {
        "field": "{name!c}",
        "type": lambda row: _avro_type(row["type"]),
        "meaning": lambda row: link_pages(row["doc"]),
    }
    records = _records("Fields", schema["fields"])
    return "\n\n".join(f"## {heading}\n\n{table(columns, fields)}" for heading, fields in records)


def _records(heading: str, fields: list[dict[str, Any]]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    yield heading, fields
    for field in fields:
        for kind in field["type"] if isinstance(field["type"], list) else [field["type"]]:
            inner = kind.get("items", kind) if isinstance(kind, dict) else kind
            if isinstance(inner, dict):
                yield from _records(code(field["name"]), inner["fields"])


def _avro_type(kind: object) -> str:
    if isinstance(kind, list):
        return ", ".join(map(_avro_type, kind))
    if isinstance(kind, dict):
        return f"array of {_avro_type(kind['items'])}" if kind["type"] == "array" else str(kind["type"])
    return str(kind)


def _settings() -> list[tuple[str, str, str | None, str]]:
    schemas = RunSettings.model_json_schema()["properties"]
    return [
        (
            name,
            _setting_type(name, schemas[name]),
            "required" if field.is_required() else None if field.default is None else code(json.dumps(field.default)),
            link_pages(str(field.description)),
        )
        for name, field in RunSettings.model_fields.items()
    ]


def _setting_type(name: str, schema: dict[str, Any]) -> str:
    values = choices(RunSettings.model_fields[name])
    if values:
        return f"one of {', '.join(map(code, values))}"
    alias = str(RunSettings.__annotations__[name]).removesuffix(" | None")
    if alias in _TYPES:
        return _TYPES[alias]
    number = next((kind for kind in schema.get("anyOf", ()) if kind["type"] != "null"), schema)
    above, least, most = (number.get(one, number.get(other)) for one, other in _LIMITS)
    if number["type"] == "number":
        return f"number, more than {above}, at most {most}"
    highest = f", at most {most}" if most < _NOT_WORTH_NAMING else ""
    return f"integer, at least {above + 1 if least is None else least}{highest}"


def _commands() -> str:
    """Every command with its flags, from the parser; the settings have a page of their own."""
    top = parser((*COMMANDS, *DISTRIBUTIONS))
    found = next(action for action in top._actions if isinstance(action, argparse._SubParsersAction))  # noqa: SLF001
    return "\n\n".join(_command(name, command) for name, command in found.choices.items())


def _command(name: str, command: argparse.ArgumentParser) -> str:
    parts = [f"## txnwatch {name}", str(command.description)]
    if name in DISTRIBUTIONS:
        parts.append(f"This command is in the package `{DISTRIBUTIONS[name]}`: [installing](install.md).")
    actions = (action for action in command._actions if action.help != argparse.SUPPRESS)  # noqa: SLF001
    flags = [action for action in actions if action.dest != "help"]
    if RunSettings.model_fields.keys() <= {action.dest for action in flags}:
        parts.append("It has these flags, and a flag for each of the [settings](configuration.md).")
        flags = [action for action in flags if action.dest not in RunSettings.model_fields]
    shown = [table({"flag": _flag, "meaning": _flag_meaning}, flags)] if flags else ["It has no flags."]
    return "\n\n".join([*parts, *shown])


def _flag(action: argparse.Action) -> str:
    placeholder = f"{{{','.join(action.choices)}}}" if action.choices else action.dest.upper()
    value = "" if action.nargs == 0 else f" {action.metavar or placeholder}"
    names = [one for one in action.option_strings if not one.startswith("--")] + action.option_strings[-1:]
    return code(f"{', '.join(names)}{value}" if names else action.metavar)


def _flag_meaning(action: argparse.Action) -> str:
    return link_pages((action.help or "").replace("%(default)s", str(action.default)).replace("%%", "%"))


def _options() -> list[tuple[str, str | None, str]]:
    """The options of the source.

    Raises:
        ValueError: an option is missing in OPTIONS.
    """
    if sorted(map(str.lower, OPTIONS)) != sorted(KNOWN):
        raise ValueError("expected OPTIONS with every option of the source")
    defaults = parse_options({"kafka.bootstrap.servers": "broker:9092", "subscribe": "topic"})

    def default(name: str) -> str | None:
        if name in _WITHOUT_DEFAULT:
            return None
        derived = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
        value = getattr(defaults, _FIELDS.get(name, re.sub("_ms$", "_s", derived)))
        in_unit = round(value * 1000) if "Ms" in name and value is not None else value
        return None if value is None else code(str(in_unit).lower())

    return [(name, default(name), KNOWN[name.lower()]) for name in OPTIONS]


def _fields() -> list[tuple[str, str, str]]:
    return [
        (f"{kind}.{field.name}", meaning_of(of, field.name), ddl_of(field.type))
        for kind, of in KINDS.items()
        for field in (HISTORY if kind in HISTORY.schema.names else FACTS).schema.field(kind).type
    ]


def _structs() -> list[tuple[str, str, str]]:
    return [
        (f"{kind_of(of)}.{name}", meaning_of(of, name), ", ".join(places))
        for of, places in structs_of(KINDS).items()
        for name in of.__annotations__
    ]


def _checks_of_audit() -> str:
    """A section for each check: the names are anchors that findings link to."""
    parts = []
    for check in CHECKS:
        about = f"About: {check.group}; {', '.join(check.severities)}. Asks: {check.asks}"
        issues = f" Issues: {', '.join(check.issues)}." if check.issues else ""
        parts += [
            f"### {check.name}",
            f"{about}. Right beyond `find-hanging`: {check.right}.{issues}",
            f"**Fires.** {check.fires[0].upper()}{check.fires[1:]}.",
            f"**Silent.** {check.silent[0].upper()}{check.silent[1:]}.",
            *([f"**Incidents that fit.** {'; '.join(map(str, check.explains))}."] if check.explains else []),
            table({"applies to": "applies", "remedy": "text", "command": _command_of_remedy}, check.remedies.values())
            if any(remedy.command for remedy in check.remedies.values())
            else table({"applies to": "applies", "remedy": "text"}, check.remedies.values()),
        ]
    return "\n\n".join(parts)


def _command_of_remedy(line: RemedyLine) -> str | None:
    plan = " --reassignment-json-file PLAN" if line.reassigns else ""
    return code(f"{' '.join(line.command)}{plan}") if line.command else None


_HEALTHY: Final = "test_a_healthy_cluster"


def _proofs_of_audit() -> str:
    """Each check: which tests fired it on real brokers, where it was silent, and whether its remedy ended it."""
    path = ROOT / "tests" / "audit-proofs.json"
    rows: list[dict[str, Any]] = list(json.loads(path.read_text()).values())
    healthy = {row["version"] for row in rows if row["test"].startswith(_HEALTHY)}

    def by_test(of: Iterable[dict[str, Any]]) -> str | None:
        found: dict[str, list[str]] = {}
        for row in of:
            what = row["test"].removeprefix("test_").replace("_", " ")
            found.setdefault(what, []).append(row["version"])
        return "; ".join(f"{what} ({', '.join(sorted(versions)[::-1])})" for what, versions in found.items()) or None

    def ended(row: dict[str, Any]) -> str:
        how = " and ".join(code(one) for one in row["commands"]) or "by hand"
        return f"{how}, and {'it was only ' + row['left'][0] if row['left'] else 'it was gone'}"

    def in_order(versions: Iterable[str]) -> str:
        return ", ".join(sorted(set(versions))[::-1])

    def line(check: AuditCheck) -> dict[str, Any]:
        own = [row for row in rows if row["check"] == check.name]
        # What a test has not changed was there before it.
        less = [row for row in own if len(row["left"]) < len(row["severities"])]
        fired = [row for row in own if row["was_silent"] or row in less]
        on_healthy = {row["version"] for row in own if row["test"].startswith(_HEALTHY)}
        always = in_order(on_healthy - {row["version"] for row in fired})
        silent = {"a healthy cluster": in_order(healthy - on_healthy)}
        silent["the cluster before it was made bad"] = in_order(row["version"] for row in own if row["was_silent"])
        ends: dict[str, list[str]] = {}
        for row in less:
            ends.setdefault(ended(row), []).append(row["version"])
        return {
            "check": check.name,
            "fired": "; ".join(filter(None, (by_test(fired), always and f"each cluster (info; {always})"))) or None,
            "silent": "; ".join(f"{where} ({versions})" for where, versions in silent.items() if versions) or None,
            "followed": "; ".join(f"{how} ({in_order(of)})" for how, of in ends.items()) or None,
            "right": check.right,
        }

    columns: dict[str, Key] = {
        "check": "{check!c}",
        "fired on real brokers by": "fired",
        "silent on": "silent",
        "remedy followed": "followed",
        "right beyond `find-hanging`": "right",
    }
    return table(columns, [line(check) for check in CHECKS])


def audit_schema() -> str:
    """docs/schemas/audit.schema.json: the JSON output of `txnwatch audit`."""
    text = {"type": "string"}
    nullable = {"type": ["string", "null"]}
    texts = {"type": "array", "items": text}
    row: dict[str, object] = {
        "severity": {"enum": [*map(str, SEVERITY_MEANS)]},
        "check": {"enum": [check.name for check in CHECKS]},
        "group": {"enum": [*map(str, CheckGroup)]},
        "subject": text,
        "finding": text,
        "basis": {"enum": [*map(str, Basis)]},
        "affected": {"type": "integer", "minimum": 0},
        "examples": texts,
        "evidence": {"type": "array", "items": _object({"request": text, "field": text, "value": text})},
        "remedies": {"type": "array", "items": _object({"text": text, "command": nullable})},
        "issues": texts,
        "exposed_ids": {"type": ["integer", "null"]},
        "transactional_ids": texts,
        "owners": texts,
        "incidents": {"type": ["integer", "null"]},
        "incident_ids": texts,
        "docs": text,
    }
    unexplained: dict[str, object] = {
        "incident_id": text,
        "verdict": {"enum": [*map(str, Verdict)]},
        "expected_outcome": {"enum": [*map(str, ExpectedOutcome)]},
        "outcome_doubt": {"enum": [*map(str, OutcomeDoubt), None]},
    }
    envelope: dict[str, object] = {
        "command": {"const": "audit"},
        "version": text,
        "cluster_id": text,
        "complete": {"type": "boolean"},
        "not_checked": {"type": "array", "items": _object({"what": text, "why": text})},
        "left_out": {"type": "array", "items": _object({"count": {"type": "integer"}, "what": text, "why": text})},
        "rows": {"type": "array", "items": _object(row)},
        "unexplained_incidents": {"type": "array", "items": _object(unexplained)},
    }
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **_object(envelope)}
    return f"{json.dumps(schema, indent=2)}\n"


def _object(properties: dict[str, object]) -> dict[str, object]:
    return {
        "type": "object",
        "properties": properties,
        "required": [*properties],
        "additionalProperties": False,
    }


def _verdicts() -> list[dict[str, object]]:
    return [{**rule._asdict(), "ends": whether_text(ExpectedEnd(rule.ends_by))} for rule in VERDICTS]


def _decisions() -> str:
    pages = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    titles = ((page.name, page.read_text().partition("\n")[0].removeprefix("# ")) for page in pages)
    return "\n".join(f"- [{title}]({name})" for name, title in titles)


BLOCKS: dict[str, Callable[[], Content]] = {
    "verdicts": _verdicts,
    "reasons of hanging": lambda: [*REASON_MEANS.items()],
    "phases of the proof": _phases,
    "what ends a span": _ends,
    "life of an incident": _life,
    "what is believed of a record": _believed,
    "forms of ids": _forms_of_ids,
    "what a reading lacks": _lacks,
    "how a reading changes": _readings,
    "refusals": lambda: REFUSALS,
    "doubts": lambda: [*DOUBTS.items()],
    "fields of an event": _event_fields,
    "settings": _settings,
    "commands": _commands,
    "options of the source": _options,
    "kinds of rows": lambda: [(kind, " ".join(str(of.__doc__).split("\n\n")[0].split())) for kind, of in KINDS.items()],
    "fields of rows": _fields,
    "structs in fields": _structs,
    "decisions": _decisions,
    "severities of the audit": lambda: [*SEVERITY_MEANS.items()],
    "proofs of the audit": _proofs_of_audit,
    "exposures without a check": lambda: [*NO_CHECKS],
    "checks of the audit": _checks_of_audit,
    **{f"metrics: {group}": partial(list, specs) for group, specs in grouped(METRICS, "group").items()},
}
