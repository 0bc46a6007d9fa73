"""Computes the figures of a run's views again, from raw rows, and prints each that differs.

A second implementation, after docs/database.md: it shares no code with benchmesh and reads op_intervals, tasks and
daemon_samples, with the facts of steps beside them. The last lines are the number of figures compared, by view.

    recompute.py DATABASE RUN
"""

import collections
import json
import math
import sqlite3
import struct
import sys
import zlib

S = 1_000_000
MIB = 1048576.0
# A second may lack this much at its edges: workers start within microseconds.
SLACK = S // 20
LONG_NS = 1_000_000_000

compared = collections.Counter()
differences = []


def differ(view, where, column, is_value, why):
    differences.append(f"{view} {where} {column}: {is_value!r}, {why}")


def same(view, where, row, column, expected, relative=1e-9, absolute=1e-9):
    """Compares a column with its expected value; None is only equal to None."""
    compared[view] += 1
    value = row[column]
    if value is None or expected is None:
        if value is not expected:
            differ(view, where, column, value, f"computed {expected!r}")
    elif isinstance(expected, str):
        if value != expected:
            differ(view, where, column, value, f"computed {expected!r}")
    elif not math.isclose(value, expected, rel_tol=relative, abs_tol=absolute):
        differ(view, where, column, value, f"computed {expected!r}")


def within(view, where, column, value, low, high):
    compared[view] += 1
    if value is None or not low * (1 - 1e-9) - 1e-9 <= value <= high * (1 + 1e-9) + 1e-9:
        differ(view, where, column, value, f"not within {low!r} and {high!r}")


# Histograms: HdrHistogram's V2 encoding in its DEFLATE wrapping, of two significant digits.


def slots(blob):
    """Counts by slot."""
    cookie, length = struct.unpack_from(">II", blob)
    assert cookie & ~0xF0 == 0x1C849304, hex(cookie)
    plain = zlib.decompress(blob[8 : 8 + length])
    cookie, length, _, digits, _, _, _ = struct.unpack_from(">IIIIQQd", plain)
    assert cookie & ~0xF0 == 0x1C849303 and digits == 2, (hex(cookie), digits)
    counts, slot, at, end = {}, 0, 40, 40 + length
    while at < end:
        word, shift = 0, 0
        while True:
            byte = plain[at]
            at += 1
            if shift == 56:
                word |= byte << shift
                break
            word |= (byte & 0x7F) << shift
            shift += 7
            if byte & 0x80 == 0:
                break
        value = (word >> 1) ^ -(word & 1)
        if value < 0:
            slot -= value
        else:
            if value:
                counts[slot] = value
            slot += 1
    return counts


def highest(slot):
    """The largest value of a slot: 256 of 1 ns, then 128 for each doubling."""
    if slot < 256:
        return slot
    bucket = slot // 128 - 1
    return ((slot % 128 + 129) << bucket) - 1


class Latencies:
    """Merged histograms with their exact sums."""

    def __init__(self):
        self.count, self.sum, self.squares, self.counts = 0, 0.0, 0.0, collections.Counter()
        self.least, self.most = None, None

    def add(self, row, kind):
        count = row[f"{kind}_count"]
        if not count:
            return
        self.count += count
        self.sum += row[f"{kind}_sum_ns"]
        self.squares += row[f"{kind}_sum_squares_ns2"]
        least, most = row[f"{kind}_min_ns"], row[f"{kind}_max_ns"]
        self.least = least if self.least is None else min(self.least, least)
        self.most = most if self.most is None else max(self.most, most)
        own = slots(row[f"{kind}_histogram"])
        assert sum(own.values()) == count, (sum(own.values()), count)
        self.counts.update(own)

    def mean_ms(self):
        return self.sum / self.count / 1e6 if self.count else None

    def stddev_ms(self):
        if not self.count:
            return None
        mean = self.sum / self.count
        return math.sqrt(max(0.0, self.squares / self.count - mean * mean)) / 1e6

    def quantile_ms(self, q):
        if not self.count:
            return None
        rank = max(1, math.ceil(q * self.count))
        if rank >= self.count:
            return self.most / 1e6
        seen = 0
        for slot in sorted(self.counts):
            seen += self.counts[slot]
            if seen >= rank:
                return min(max(highest(slot), self.least), self.most) / 1e6
        return self.most / 1e6

    def max_ms(self):
        return self.most / 1e6 if self.count else None


# Raw rows.


class Task:
    """A task, and when it was active."""

    def __init__(self, row, step, ramp_us, rows):
        self.id, self.client = row["id"], row["client"]
        self.part, self.state = row["part"], row["state"]
        self.group = row["group_name"] or ""
        self.row, self.rows = row, rows
        last = max((one["at_us"] + one["span_us"] for one in rows), default=None)
        self.start = row["start_us"]
        if self.start is None and rows:
            self.start = step["start_us"]
        self.end = row["ended_us"] if row["ended_us"] is not None else last
        self.is_active = self.start is not None and self.end is not None
        if self.is_active:
            self.end = max(self.end, self.start)
            self.begun = self.start + (row["skew_us"] or 0)
            self.measured = self.start + ramp_us
            done = row["first_done_us"]
            self.done = min(self.end if done is None else done, self.end)

    def left_early(self):
        return self.row["ended_us"] is None or self.state in ("lost", "failed")


class Step:
    """A step's raw rows and its window."""

    def __init__(self, db, row):
        self.row = row
        self.groups = {
            one["name"]: one
            for one in db.execute("SELECT * FROM step_groups WHERE step_id = ?", [row["id"]])
        }
        tasks = db.execute(
            "SELECT *, coalesce(client_index, task_index) AS client FROM tasks WHERE step_id = ? ORDER BY part, id",
            [row["id"]],
        ).fetchall()
        starts = [one["start_us"] for one in tasks if one["start_us"] is not None]
        self.start = row["start_us"] if row["start_us"] is not None else min(starts, default=0)
        self.tasks = []
        for one in tasks:
            rows = db.execute(
                "SELECT * FROM op_intervals WHERE task_id = ? ORDER BY at_us", [one["id"]]
            ).fetchall()
            self.tasks.append(Task(one, row, self.ramp_us(one["group_name"]), rows))
        clients = collections.defaultdict(list)
        for task in self.tasks:
            clients[task.client].append(task)
        gone = {client for client, parts in clients.items() if parts[-1].left_early()}
        # If every client left early, the window is that of all.
        self.gone = gone if len(gone) < len(clients) else set()
        self.clients = clients
        active = [task for task in self.tasks if task.is_active]
        self.measured_from = min((task.measured for task in active), default=None)
        self.last_done = max((task.end for task in active), default=None)
        self.window, self.spanned, self.overlaps = self.find_window()

    def params(self, group):
        return json.loads(self.groups[group]["params"] if group else self.row["params"])

    def ramp_us(self, group):
        ramp = self.params(group).get("ramp_time")
        if ramp is None:
            return 0
        units = {"us": 1, "ms": 1000, "s": S, "m": 60 * S, "h": 3600 * S}
        if isinstance(ramp, (int, float)):
            return round(ramp * S)
        number = ramp.rstrip("umsh")
        return round(float(number) * units[ramp[len(number) :]])

    def stays(self, task):
        return task.client not in self.gone

    def find_window(self):
        """The time in which all clients were active: its longest part in which none was away."""
        staying = [task for task in self.tasks if self.stays(task) and task.is_active]
        if not staying:
            return None, 0, None
        parts = collections.defaultdict(list)
        for task in staying:
            parts[task.client].append(task)
        first = [own[0] for own in parts.values()]
        last_begun = max(task.begun for task in first)
        begin = max(last_begun, max(task.measured for task in first))
        end = min(max(task.done for task in own) for own in parts.values())
        overlaps = last_begun < min(max(task.end for task in own) for own in parts.values())
        if not overlaps or begin >= end:
            return None, 0, overlaps
        # The instants at which the set of active clients can change.
        edges = {begin, end}
        for task in staying:
            edges |= {task.begun, task.measured, task.done}
        edges = sorted(edge for edge in edges if begin <= edge <= end)

        def all_active(at):
            return all(
                any(max(task.begun, task.measured) <= at < task.done for task in own)
                for own in parts.values()
            )

        best, since = None, None
        for edge in edges:
            if edge < end and all_active(edge):
                since = edge if since is None else since
                continue
            if since is not None and (best is None or edge - since > best[1] - best[0]):
                best = (since, edge)
            since = None
        return best, end - begin, overlaps

    def rows(self, group, op, ramp):
        """Tasks with their rows of one operation."""
        for task in self.tasks:
            for row in task.rows:
                if task.group == group and row["op"] == op and row["ramp"] == ramp:
                    yield task, row

    def keys(self):
        return sorted({(t.group, r["op"]) for t in self.tasks for r in t.rows if not r["ramp"]})

    def seconds(self, group, op, ramp, only_staying):
        """The seconds of one operation: lines of the grid, and rows that are wider joined. By the first line: the lines
        after the last one, the end, the tasks, and the rows."""
        joined = []
        for task, row in self.rows(group, op, ramp):
            if only_staying and not self.stays(task):
                continue
            begin, end = row["at_us"], row["at_us"] + row["span_us"]
            if task.is_active and task.end > begin:
                end = min(end, task.end)
            first = (begin + 1000 - self.start) // S
            last = max(first, (end - 1001 - self.start) // S)
            # The seconds of a task that starts between two of the step count in those that they begin in.
            periods = max(1, -((end - begin - 1000) // -S))
            if last + 1 - first > periods:
                line = self.start + first * S
                begin, end, last = line, end - begin + line, first + periods - 1
            joined.append([first, last + 1, begin, end, {task.id}, [row]])
        joined.sort(key=lambda one: one[0])
        result = []
        for one in joined:
            if result and one[0] < result[-1][1]:
                known = result[-1]
                known[1] = max(known[1], one[1])
                known[2], known[3] = min(known[2], one[2]), max(known[3], one[3])
                known[4] |= one[4]
                known[5] += one[5]
            else:
                result.append(one)
        for one in result:
            line = self.start + one[0] * S
            # An instant within a millisecond of a line is on it.
            begin = one[2] if one[2] - line >= 1000 else line
            one[2] = begin
            one[3] = max(begin + 1, min(one[3], self.start + one[1] * S))
        return result


def work_within(step, group, op, window):
    """Operations and bytes in the window: estimate, least and most of each. Rows across an edge count by time."""
    ops, bytes_, is_long = [0.0, 0.0, 0.0], [0.0, 0.0, 0.0], False
    for task, row in step.rows(group, op, 0):
        if not step.stays(task):
            continue
        begin = max(row["at_us"], task.measured) if task.is_active else row["at_us"]
        end = row["at_us"] + row["span_us"]
        if task.is_active and begin < task.end:
            end = min(end, task.end)
        share = max(0, min(end, window[1]) - max(begin, window[0])) / max(1, end - begin)
        is_long |= row["service_count"] > 0 and row["service_max_ns"] >= LONG_NS
        for sums, value in ((ops, row["ops"]), (bytes_, row["bytes"])):
            sums[0] += value * share
            sums[1] += value if share == 1 else 0
            sums[2] += value if share > 0 else 0
    return ops, bytes_, is_long


# v_results.


def check_results(db, run, steps):
    view = "v_results"
    rows = db.execute("SELECT * FROM v_results WHERE run_id = ?", [run]).fetchall()
    found = {(row["step_id"], row["group_name"] or "", row["op"]): row for row in rows}
    expected = {(step.row["id"], *key) for step in steps for key in step.keys()}
    compared[view] += 1
    if set(found) != expected:
        differ(view, run, "rows", sorted(set(found) ^ expected), "in one of both only")
    for step in steps:
        for group, op in step.keys():
            row = found.get((step.row["id"], group, op))
            if row is not None:
                check_result(step, group, op, row)


def check_result(step, group, op, row):
    view, where = "v_results", f"step {step.row['id']} {step.row['mode']} {group} {op}"
    own = list(step.rows(group, op, 0))
    service, response = Latencies(), Latencies()
    for _, one in own:
        service.add(one, "service")
        response.add(one, "response")
    total = {name: sum(one[name] for _, one in own) for name in ("ops", "bytes", "errors")}
    for name, value in total.items():
        same(view, where, row, name, value)
    same(view, where, row, "mean_ms", service.mean_ms())
    same(view, where, row, "stddev_ms", service.stddev_ms(), 1e-3, 1e-6)
    for name, q in (("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999)):
        same(view, where, row, f"{name}_ms", service.quantile_ms(q))
    same(view, where, row, "max_ms", service.max_ms())
    same(view, where, row, "response_p99_ms", response.quantile_ms(0.99))
    if service.count:
        ordered = [row[f"{name}_ms"] for name in ("p50", "p90", "p95", "p99", "p999", "max")]
        if ordered != sorted(ordered) or not service.least / 1e6 <= row["mean_ms"] <= row["max_ms"]:
            differ(view, where, "percentiles", ordered, "are not in order")

    of_group = [task for task in step.tasks if task.group == group]
    active = [task for task in of_group if task.is_active]
    clients = {task.row["agent_id"] for task in of_group}
    if step.row["workload"] != "network":
        same(view, where, row, "clients", len(clients))
    cpu = [t.row["cpu_user_us"] + t.row["cpu_system_us"] for t in of_group if t.row["cpu_user_us"] is not None]
    same(view, where, row, "client_cpu_s", sum(cpu) / 1e6 if cpu else None)
    skews = [abs(t.row["skew_us"]) for t in of_group if t.row["skew_us"] is not None]
    same(view, where, row, "max_skew_ms", max(skews) / 1e3 if skews else None)
    errors = [t.row["skew_error_us"] for t in of_group if t.row["skew_error_us"] is not None]
    same(view, where, row, "skew_error_ms", max(errors) / 1e3 if errors else None)

    window = step.window
    last_done = max(t.end for t in active) - min(t.measured for t in active)
    same(view, where, row, "window_s", (window[1] - window[0]) / 1e6 if window else None)
    same(view, where, row, "last_done_s", last_done / 1e6)
    check_rates(step, group, op, row, total, last_done, where)
    check_seconds(step, group, op, row, where)
    flags = json.loads(row["flags"])
    for name in row.keys():
        if name.startswith("flag_"):
            same(view, where, row, name, int(name[5:].replace("_", "-") in flags))
    same(view, where, row, "flag_errors", int(any(r["errors"] for t in step.tasks for r in t.rows if not r["ramp"])))
    same(view, where, row, "flag_no_overlap", int(step.overlaps is False))
    same(view, where, row, "flag_partial", int(any(task.left_early() for task in step.tasks)))


def check_rates(step, group, op, row, total, last_done, where):
    view, window = "v_results", step.window
    is_window = bool(
        step.overlaps and window and window[1] - window[0] >= 2.5 * S and step.spanned * 2 >= last_done
    )
    headline = row["headline"]
    work = work_within(step, group, op, window) if window else None
    # With operations of a second and more, too much of the window's work may be unknown.
    allowed = {"window" if is_window else "last-done"} if step.overlaps else {"none"}
    if is_window and work[2]:
        allowed.add("last-done")
    compared[view] += 1
    if headline not in allowed:
        differ(view, where, "headline", headline, f"computed {sorted(allowed)}")
    if headline == "none":
        same(view, where, row, "ops_per_s", None)
        same(view, where, row, "mib_per_s", None)
    elif headline == "last-done":
        same(view, where, row, "ops_per_s", total["ops"] * 1e6 / last_done)
        same(view, where, row, "mib_per_s", total["bytes"] * 1e6 / last_done / MIB)
    elif work is not None:
        length = (window[1] - window[0]) / 1e6
        for column, (estimate, least, most), unit in (("ops_per_s", work[0], 1), ("mib_per_s", work[1], MIB)):
            if work[2]:
                # An operation of seconds may end after the window, and counts in it with a part of its time.
                most += max(most, total["ops"] if unit == 1 else total["bytes"])
                within(view, where, column, row[column], 0 if unit == 1 else least / length / unit * 0.5, most / length / unit)
            else:
                same(view, where, row, column, estimate / length / unit, 1e-9)
                within(view, where, column, row[column], least / length / unit, most / length / unit)


def check_seconds(step, group, op, row, where):
    """The whole seconds of the window: those that lack at most SLACK at an edge, and whose rate is known."""
    view, window = "v_results", step.window
    lines = range(0)
    if window:
        first = -((window[0] - step.start - SLACK) // -S)
        lines = range(first, (window[1] - step.start + SLACK) // S)
    known, unknown, covered = [], 0, 0
    for begin, until, from_us, end_us, _, rows in step.seconds(group, op, 0, True):
        inside = len(range(max(begin, lines.start), min(until, lines.stop)))
        count = (end_us - from_us + SLACK) // S
        covered += inside
        if inside < until - begin or count < until - begin:
            unknown += inside
            if inside == until - begin and count:
                # Wide, and ends within a second: as many as are whole.
                unknown -= count
                known += [rates(rows, from_us, end_us)] * count
            continue
        known += [rates(rows, from_us, end_us)] * count
    known += [(0.0, 0.0)] * (len(lines) - covered)
    same(view, where, row, "seconds", len(known) or None)
    if not known:
        for column in ("zero_seconds", "ops_per_s_min", "ops_per_s_max", "ops_per_s_stddev"):
            same(view, where, row, column, None)
        return
    same(view, where, row, "zero_seconds", sum(one == (0, 0) for one in known))
    for place, name, unit in ((0, "ops_per_s", 1), (1, "mib_per_s", MIB)):
        values = [one[place] / unit for one in known]
        mean = sum(values) / len(values)
        deviation = math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1)) if len(values) > 1 else 0.0
        same(view, where, row, f"{name}_min", min(values))
        same(view, where, row, f"{name}_max", max(values))
        same(view, where, row, f"{name}_stddev", deviation, 1e-5, 1e-3 / (1 if unit == 1 else 1))
        most = max(sum(one["ops" if unit == 1 else "bytes"] for one in rows) for *_, rows in step.seconds(group, op, 0, True))
        within(view, where, f"{name}_max", row[f"{name}_max"], 0, most / unit / 0.95)
        if row["headline"] == "window" and (lines.stop - lines.start) * S >= 0.95 * (window[1] - window[0]) and not unknown:
            within(view, where, name, row[name], min(values) * 0.95, max(values) * 1.05)


def rates(rows, from_us, end_us):
    span = end_us - from_us
    return tuple(sum(one[name] for one in rows) * 1e6 / span for name in ("ops", "bytes"))


# v_timeline.


def check_timeline(db, run, steps):
    view = "v_timeline"
    found = collections.defaultdict(dict)
    for row in db.execute("SELECT * FROM v_timeline WHERE run_id = ?", [run]):
        found[row["step_id"]][(row["group_name"] or "", row["op"], row["ramp"], row["at_us"])] = row
    for step in steps:
        stored = found[step.row["id"]]
        expected = set()
        keys = {(t.group, r["op"], r["ramp"]) for t in step.tasks for r in t.rows}
        for group, op, ramp in sorted(keys):
            for _, _, from_us, end_us, tasks, rows in step.seconds(group, op, ramp, False):
                expected.add((group, op, ramp, from_us))
                row = stored.get((group, op, ramp, from_us))
                if row is not None:
                    check_second(step, row, from_us, end_us, tasks, rows)
            check_fastest(step, stored, group, op, ramp)
        compared[view] += 1
        if set(stored) != expected:
            differ(view, step.row["id"], "rows", sorted(set(stored) ^ expected), "in one of both only")


def check_second(step, row, from_us, end_us, tasks, rows):
    view = "v_timeline"
    where = f"step {step.row['id']} {row['op']} second {row['second']}"
    span = end_us - from_us
    begun = step.row["start_us"]
    same(view, where, row, "second", None if begun is None else (from_us - begun) / 1e6)
    same(view, where, row, "span_s", span / 1e6)
    same(view, where, row, "tasks", len(tasks))
    service, response = Latencies(), Latencies()
    for one in rows:
        service.add(one, "service")
        response.add(one, "response")
    for name in ("ops", "errors"):
        same(view, where, row, name, sum(one[name] for one in rows))
    ops, moved = rates(rows, from_us, end_us)
    is_whole = span >= S - SLACK
    same(view, where, row, "ops_per_s", ops if is_whole else None)
    same(view, where, row, "mib_per_s", moved / MIB if is_whole else None)
    same(view, where, row, "mean_ms", service.mean_ms())
    for name, q in (("p50_ms", 0.5), ("p99_ms", 0.99)):
        same(view, where, row, name, service.quantile_ms(q))
        same(view, where, row, f"response_{name}", response.quantile_ms(q))
    same(view, where, row, "max_ms", service.max_ms())
    same(view, where, row, "response_max_ms", response.max_ms())


def check_fastest(step, stored, group, op, ramp):
    """No rate is beyond what a whole second of the raw rows held."""
    own = [row for key, row in stored.items() if key[:3] == (group, op, ramp)]
    most = max(sum(one["ops"] for one in rows) for *_, rows in step.seconds(group, op, ramp, False))
    for row in own:
        if row["ops_per_s"] is not None:
            within("v_timeline", f"step {step.row['id']} {op}", "ops_per_s", row["ops_per_s"], 0, most / 0.95)


# v_client_timeline.


def check_client_timeline(db, run, steps):
    """Each row is one raw row: percentiles from its own histogram, rates by the part of it in which the task ran."""
    view = "v_client_timeline"
    found = {}
    for row in db.execute("SELECT * FROM v_client_timeline WHERE run_id = ?", [run]):
        found[(row["task_id"], row["op"], row["ramp"], row["at_us"])] = row
    names = dict(db.execute("SELECT agent_id, name FROM run_agents WHERE run_id = ?", [run]))
    expected = set()
    for step in steps:
        for task in step.tasks:
            for raw in task.rows:
                key = (task.id, raw["op"], raw["ramp"], raw["at_us"])
                expected.add(key)
                if key in found:
                    check_client_second(step, task, raw, found[key], names)
    compared[view] += 1
    if set(found) != expected:
        differ(view, run, "rows", sorted(set(found) ^ expected), "in one of both only")


def check_client_second(step, task, raw, row, names):
    view = "v_client_timeline"
    where = f"step {step.row['id']} task {task.id} {raw['op']} second {row['second']}"
    begin, end = raw["at_us"], raw["at_us"] + raw["span_us"]
    if task.row["ended_us"] is not None and task.row["ended_us"] > begin:
        end = min(end, task.row["ended_us"])
    # An instant within a millisecond of a line is on it.
    after = begin - step.row["start_us"]
    line = (after + 1000) // S * S
    same(view, where, row, "second", (line if -1000 <= after - line < 1000 else after) / 1e6)
    same(view, where, row, "client", names[task.row["agent_id"]])
    same(view, where, row, "step_id", step.row["id"])
    same(view, where, row, "span_s", (end - begin) / 1e6)
    for name in ("ops", "errors", "in_flight"):
        same(view, where, row, name, raw[name])
    ops, moved = rates([raw], begin, end)
    is_whole = end - begin >= S - SLACK
    same(view, where, row, "ops_per_s", ops if is_whole else None)
    same(view, where, row, "mib_per_s", moved / MIB if is_whole else None)
    service, response = Latencies(), Latencies()
    service.add(raw, "service")
    response.add(raw, "response")
    same(view, where, row, "mean_ms", service.mean_ms())
    same(view, where, row, "p50_ms", service.quantile_ms(0.5))
    same(view, where, row, "p99_ms", service.quantile_ms(0.99))
    same(view, where, row, "max_ms", service.max_ms())
    same(view, where, row, "response_p99_ms", response.quantile_ms(0.99))
    same(view, where, row, "response_max_ms", response.max_ms())


# v_daemon_usage and v_cost.


def value_at(points, at):
    """By a line between the readings around the instant; the nearest one outside of all. The instant and the value."""
    before = [point for point in points if point[0] <= at]
    after = [point for point in points if point[0] >= at]
    if not before or not after:
        end = (before or after)[-1 if before else 0]
        return end
    (a, low), (b, high) = before[-1], after[0]
    return at, low if a == b else low + (high - low) * (at - a) / (b - a)


def near(samples, measured):
    """Samples in the step, and at most 5 s around it."""
    low, high = measured[0] - 5 * S, measured[1] + 5 * S
    return [one for one in samples if low <= one["at_us"] <= high]


AMOUNTS = {"read_mib": ("read_bytes", MIB), "written_mib": ("write_bytes", MIB)}
MAXIMA = {"threads": ("threads", 1), "fds": ("fds", 1), "vsz_mib": ("vsz_bytes", MIB), "swap_mib": ("swap_bytes", MIB)}


def check_usage(db, run, steps):
    """Returns the CPU time of each step's daemons that serve the target, by name."""
    view = "v_daemon_usage"
    names = {row[1] for row in db.execute("PRAGMA table_info(daemon_samples)")}
    by_name = collections.defaultdict(list)
    for row in db.execute("SELECT * FROM v_daemon_usage WHERE run_id = ?", [run]):
        step = steps.get(row["step_id"])
        if step is None:
            continue
        where = f"step {row['step_id']} {row['name']} {row['instance']}"
        daemon = db.execute("SELECT * FROM daemons WHERE id = ?", [row["daemon_id"]]).fetchone()
        cpus = db.execute("SELECT cpus FROM hosts WHERE id = ?", [daemon["host_id"]]).fetchone()[0]
        samples = db.execute(
            "SELECT * FROM daemon_samples WHERE daemon_id = ? ORDER BY at_us", [row["daemon_id"]]
        ).fetchall()
        measured = (step.measured_from, step.last_done)
        samples = near(samples, measured)
        born = daemon["born_us"]
        is_new = born is not None and measured[0] - 5 * S <= born <= measured[1]

        def counter(pick):
            points = [(one["at_us"], pick(one)) for one in samples if pick(one) is not None]
            if is_new and points and points[0][0] > born:
                points.insert(0, (born, 0))
            return points

        def used(points):
            (a, low), (b, high) = (value_at(points, at) for at in measured)
            return a, b, high - low

        points = counter(lambda one: one["cpu_user_us"] + one["cpu_system_us"])
        begin, end, cpu = used(points)
        same(view, where, row, "sampled_s", (end - begin) / 1e6)
        same(view, where, row, "cpu_s", min(cpu, (end - begin) * cpus) / 1e6, 1e-9, 3e-6)
        same(view, where, row, "cpu_percent", row["cpu_s"] * 100e6 / (end - begin), 1e-9)
        same(view, where, row, "cpu_s", row["cpu_user_s"] + row["cpu_system_s"])
        user = used(counter(lambda one: one["cpu_user_us"]))[2]
        same(view, where, row, "cpu_user_s", min(user, cpu) / 1e6, 1e-9, 3e-6)
        # Whatever happened between two readings.
        inner = [value for at, value in points if begin <= at <= end]
        outer = [max((p for p in points if p[0] <= begin), default=points[0])[1], min((p for p in points if p[0] >= end), default=points[-1])[1]]
        error = row["cpu_error_s"]
        within(view, where, "cpu_s", row["cpu_s"], 0, min(outer[1] - outer[0], (end - begin) * cpus) / 1e6 + 1e-6)
        if len(inner) > 1:
            within(view, where, "cpu_s", row["cpu_s"], (inner[-1] - inner[0]) / 1e6 - 3e-6, math.inf)
        within(view, where, "cpu_error_s", error, 0, max(outer[1] - outer[0], 0) / 1e6 + 1e-6)
        if row["idle_cpu_percent"] is not None:
            within(view, where, "idle_cpu_percent", row["idle_cpu_percent"], 0, 100 * cpus)
        check_after(view, where, row, points, counter(lambda one: one["write_bytes"]), measured[1])
        check_gauges(view, where, row, samples, (begin, end), measured)
        for column, (name, unit) in AMOUNTS.items():
            if column in row.keys():
                amounts = counter(lambda one, name=name: one[name])
                value = used(amounts)[2] / unit if amounts else None
                same(view, where, row, column, value, 1e-9, 2 / unit)
        for column, (name, unit) in MAXIMA.items():
            if column in row.keys() and name in names:
                check_maximum(view, where, row, column, samples, name, unit, (begin, end), measured)
        if row["serves_target"]:
            by_name[(row["step_id"], row["name"])].append((row, cpu))
    return by_name


def check_after(view, where, row, cpu, written, end):
    """What it did from the step's end until it was idle."""
    if row["after_s"] is None:
        return
    until = end + round(row["after_s"] * 1e6)
    for column, points, unit in (("after_cpu_s", cpu, 1e6), ("after_written_mib", written, MIB)):
        if points and row[column] is not None:
            same(view, where, row, column, (value_at(points, until)[1] - value_at(points, end)[1]) / unit, 1e-9, 3 / unit)


def nearest(samples, name, at):
    known = [one for one in samples if one[name] is not None]
    return min(known, key=lambda one: abs(one["at_us"] - at))[name] if known else None


def check_gauges(view, where, row, samples, sampled, measured):
    first, last = (nearest(samples, "rss_bytes", at) for at in sampled)
    inside = [one["rss_bytes"] for one in samples if measured[0] <= one["at_us"] <= measured[1]]
    everything = [value for value in [*inside, first, last] if value is not None]
    same(view, where, row, "rss_first_mib", first / MIB)
    same(view, where, row, "rss_last_mib", last / MIB)
    same(view, where, row, "rss_min_mib", min(everything) / MIB)
    same(view, where, row, "rss_max_mib", max(everything) / MIB)
    if row["rss_peak_mib"] is not None:
        peaks = [one["rss_peak_bytes"] or 0 for one in samples]
        within(view, where, "rss_peak_mib", row["rss_peak_mib"], row["rss_max_mib"], max([*peaks, *everything]) / MIB)


def check_maximum(view, where, row, column, samples, name, unit, sampled, measured):
    inside = [one[name] for one in samples if measured[0] <= one["at_us"] <= measured[1]]
    known = [value for value in [*inside, nearest(samples, name, sampled[1])] if value is not None]
    if known:
        within(view, where, column, row[column], min(known) / unit, max(known) / unit)


def check_cost(db, run, steps, by_name):
    view, seen = "v_cost", set()
    for row in db.execute("SELECT * FROM v_cost WHERE run_id = ?", [run]):
        key = (row["step_id"], row["name"])
        seen.add(key)
        where, step, own = f"step {key[0]} {key[1]}", steps[row["step_id"]], by_name.get(key, [])
        same(view, where, row, "daemons", len(own))
        same(view, where, row, "cpu_s", sum(cpu for _, cpu in own) / 1e6, 1e-9, 1e-5)
        same(view, where, row, "cpu_error_s", sum(one["cpu_error_s"] for one, _ in own))
        ops = sum(r["ops"] for t in step.tasks for r in t.rows if not r["ramp"])
        moved = sum(r["bytes"] for t in step.tasks for r in t.rows if not r["ramp"])
        same(view, where, row, "ops", ops)
        same(view, where, row, "bytes", moved)
        is_one = len(step.groups) < 2 and step.overlaps is not False
        same(view, where, row, "load_groups", len(step.groups))
        same(view, where, row, "cpu_us_per_op", row["cpu_s"] * 1e6 / ops if ops and is_one else None)
        same(view, where, row, "cpu_s_per_gib", row["cpu_s"] / (moved / 2**30) if moved and is_one else None)
        after = [one["after_cpu_s"] for one, _ in own]
        after = None if None in after else sum(after)
        same(view, where, row, "after_cpu_s", after)
        until_idle = (row["cpu_s"] + after) * 1e6 / ops if after is not None and ops and is_one else None
        same(view, where, row, "cpu_us_per_op_until_idle", until_idle)
    compared[view] += 1
    if seen != set(by_name):
        differ(view, run, "rows", sorted(seen ^ set(by_name)), "in one of both only")


def check_cost_by_daemon(db, run, steps, by_name):
    """Each daemon's part of v_cost."""
    view, seen = "v_cost_by_daemon", set()
    usage = {(key[0], one["daemon_id"]): (one, cpu) for key, own in by_name.items() for one, cpu in own}
    for row in db.execute("SELECT * FROM v_cost_by_daemon WHERE run_id = ?", [run]):
        key = (row["step_id"], row["daemon_id"])
        seen.add(key)
        if key not in usage:
            continue
        where, step, (one, cpu) = f"step {key[0]} {row['name']} {row['pid']}", steps[row["step_id"]], usage[key]
        for name in ("host", "name", "instance", "pid", "after_s", "after_cpu_s"):
            same(view, where, row, name, one[name])
        same(view, where, row, "cpu_s", cpu / 1e6, 1e-9, 1e-5)
        ops = sum(r["ops"] for t in step.tasks for r in t.rows if not r["ramp"])
        moved = sum(r["bytes"] for t in step.tasks for r in t.rows if not r["ramp"])
        same(view, where, row, "ops", ops)
        is_one = len(step.groups) < 2 and step.overlaps is not False
        same(view, where, row, "cpu_us_per_op", row["cpu_s"] * 1e6 / ops if ops and is_one else None)
        same(view, where, row, "cpu_s_per_gib", row["cpu_s"] / (moved / 2**30) if moved and is_one else None)
    compared[view] += 1
    if seen != set(usage):
        differ(view, run, "rows", sorted(seen ^ set(usage)), "in one of both only")


# v_links.


def link_of(step, tasks):
    """The figures of one link in one step."""
    overlaps = step.overlaps is not False
    found = collections.defaultdict(list)
    for task in tasks:
        if not task.is_active:
            continue
        mode = step.groups[task.group]["mode"] if task.group else step.row["mode"]
        seconds = (task.end - task.measured) / 1e6
        by_op = collections.defaultdict(list)
        for row in task.rows:
            if not row["ramp"]:
                by_op[row["op"]].append(row)
        if mode.startswith("udp"):
            found["is_udp"].append(True)
        for op, rows in by_op.items():
            latencies = Latencies()
            for row in rows:
                latencies.add(row, "service")
            ops, moved = (sum(row[name] for row in rows) for name in ("ops", "bytes"))
            found["errors"].append(sum(row["errors"] for row in rows))
            if op == ("receive" if mode == "udp-stream" else "send") and overlaps:
                found["mib_per_s"].append(moved / seconds / MIB)
            if op in ("lost", "receive", "request"):
                found["sent"].append(ops)
                found["lost"].append(ops if op == "lost" else 0)
            if op == "jitter" and latencies.count:
                found["jitter_us"].append(latencies.mean_ms() * 1e3)
            if op == "ping" and latencies.count:
                found["rtt_min_us"].append(latencies.least / 1e3)
                found["rtt_p50_us"].append(latencies.quantile_ms(0.5) * 1e3)
                found["rtt_p99_us"].append(latencies.quantile_ms(0.99) * 1e3)
            if op == "request":
                if overlaps:
                    found["requests_per_s"].append(ops / seconds)
                if latencies.count:
                    found["request_p50_us"].append(latencies.quantile_ms(0.5) * 1e3)
                    found["request_p99_us"].append(latencies.quantile_ms(0.99) * 1e3)
    return found


def check_links(db, run, steps):
    view, links = "v_links", collections.defaultdict(list)
    names = dict(db.execute("SELECT id, name FROM agents"))
    for step in steps.values():
        ends = collections.defaultdict(list)
        for task in step.tasks:
            if task.row["peer_agent_id"] is not None:
                ends[(task.row["agent_id"], task.row["peer_agent_id"])].append(task)
        for (a, b), tasks in ends.items():
            key = (step.row["loop"], step.row["repeat"], step.row["phase"], step.row["cell"], names[a], names[b])
            links[key].append((step, link_of(step, tasks)))
    seen = set()
    for row in db.execute("SELECT * FROM v_links WHERE run_id = ?", [run]):
        key = tuple(row[name] for name in ("loop", "repeat", "phase", "cell", "from_agent", "to_agent"))
        seen.add(key)
        where, of_steps = f"{key[2]} {key[4]} to {key[5]}", [found for _, found in links[key]]
        total = [sum(found["mib_per_s"]) for found in of_steps if found["mib_per_s"]]
        same(view, where, row, "mib_per_s", max(total, default=None))
        lost = [
            100 * sum(found["lost"]) / sum(found["sent"]) for found in of_steps if found["is_udp"] and sum(found["sent"])
        ]
        same(view, where, row, "lost_percent", max(lost, default=None))
        same(view, where, row, "jitter_us", max((v for f in of_steps for v in f["jitter_us"]), default=None))
        least = [min(found["rtt_min_us"]) for found in of_steps if found["rtt_min_us"]]
        same(view, where, row, "rtt_min_us", min(least, default=None))
        for name in ("rtt_p50_us", "rtt_p99_us"):
            worst = [max(found[name]) for found in of_steps if found[name]]
            same(view, where, row, name, min(worst, default=None))
        asked = [found for found in of_steps if found["requests_per_s"]]
        most = max(asked, key=lambda found: sum(found["requests_per_s"]), default=None)
        same(view, where, row, "requests_per_s", sum(most["requests_per_s"]) if most else None)
        for name in ("request_p50_us", "request_p99_us"):
            same(view, where, row, name, max(most[name]) if most and most[name] else None)
        same(view, where, row, "errors", sum(sum(found["errors"]) for found in of_steps))
        flags = {flag for step, _ in links[key] for flag in json.loads(step.row["flags"])}
        compared[view] += 1
        if set(json.loads(row["flags"])) != flags:
            differ(view, where, "flags", row["flags"], f"computed {sorted(flags)}")
    compared[view] += 1
    if seen != set(links):
        differ(view, run, "rows", sorted(seen ^ set(links)), "in one of both only")


def main(path, run):
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    db.row_factory = sqlite3.Row
    rows = db.execute(
        "SELECT * FROM steps WHERE run_id = ? AND start_us IS NOT NULL AND state IN ('done', 'failed', 'stopped')", [run]
    )
    steps = {row["id"]: Step(db, row) for row in rows.fetchall()}
    # A cell that was repeated has the results of its newest attempt.
    attempts = db.execute("SELECT ordinal, max(attempt) FROM steps WHERE run_id = ? GROUP BY ordinal", [run])
    newest = {tuple(row) for row in attempts}
    current = {
        id: step for id, step in steps.items() if (step.row["ordinal"], step.row["attempt"]) in newest
    }
    check_results(db, run, current.values())
    check_timeline(db, run, steps.values())
    check_client_timeline(db, run, steps.values())
    by_name = check_usage(db, run, steps)
    of_current = {key: own for key, own in by_name.items() if key[0] in current}
    check_cost(db, run, current, of_current)
    check_cost_by_daemon(db, run, current, of_current)
    check_links(db, run, current)
    for line in differences:
        print("differs:", line)
    for view, count in sorted(compared.items()):
        print(f"compared: {view} {count}")


main(sys.argv[1], int(sys.argv[2]))
