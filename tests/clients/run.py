"""Runs client libraries' tests against beanstalkd-legacy and trellis with one slot and with four; script/clients
calls it, with the folder of the built programs.

The packages come from pip and npm, pinned and held against hashes, into a folder that is removed again. Each suite
gets a server of its own for each kind of server. doc/compatibility.md is both the report and the expectation: a
number in its first table or a failure that its second one does not name fails the run, and so does one that is
named and does not come. The last line is "N passed, N failed, N skipped", counting suites and kinds of servers.

Exit codes: 0 all as the document says; 1 not so; 77 nothing was wrong, but something could not be run.
"""

import collections
import concurrent.futures
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
DOCUMENT = HERE.parent.parent / "doc" / "compatibility.md"
SERVERS = ("beanstalkd-legacy", "1 slot", "4 slots")

# Suites at a time: most of their time is waiting for delays and deadlines.
AT_A_TIME = 6
# How long a suite may take, in seconds; the longest takes some fifteen.
SUITE_SECONDS = 120
# How long one of nodestalker's scripts may take: those that end do so within one.
SCRIPT_SECONDS = 5

Result = collections.namedtuple("Result", "test result reason")
Suite = collections.namedtuple("Suite", "client language run")


# --- packages ---


def fetch_python(work):
    run_or_skip(
        ["python3", "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check"]
        + ["--require-hashes", "--dest", work / "dist", "-r", HERE / "requirements.txt"],
        work,
    )
    for package in (work / "dist").iterdir():
        shutil.unpack_archive(package, work / "python", None if package.suffix == ".gz" else "zip")


def fetch_node(work):
    folder = work / "node"
    folder.mkdir()
    for name in ("package.json", "package-lock.json"):
        shutil.copy(HERE / name, folder)
    # No package's own install script is run.
    run_or_skip(["npm", "ci", "--silent", "--ignore-scripts", "--no-audit", "--no-fund"], folder)


class Skipped(Exception):
    """Something that this machine lacks."""


def run_or_skip(command, folder):
    if shutil.which(command[0]) is None:
        raise Skipped(f"there is no {command[0]} here")
    done = subprocess.run([str(word) for word in command], cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        words = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        raise Skipped(f"{' '.join(map(str, command[:4]))} failed: {words[-1]}")


# --- suites: each takes the folder of the packages, a copy of its own to work in, and a port ---


def greenstalk(packages, copy, port):
    return unittest_of(HERE, "check_greenstalk", packages / "python", port)


def pystalk(packages, copy, port):
    return unittest_of(HERE, "check_pystalk", packages / "python", port)


def pystalkd(packages, copy, port):
    folder = copy / "pystalkd"
    shutil.copytree(packages / "python" / "pystalkd-1.3.0", folder)
    set_port(folder, ("*.py", "pystalkd/*.py"), port)
    # Left out: one dials an address outside this machine; the other reserves from a tube that it did not put to,
    # without a timeout, and is not in the package's own list either.
    return unittest_of(folder, "test", packages / "python", port, "test_wrong_connection", "test_timedelta")


def fivebeans(packages, copy, port):
    folder = node_copy(packages, copy, "fivebeans")
    set_port(folder, ("lib/*.js", "test/*.js", "test/fixtures/*"), port)
    return mocha(packages, folder, ["-t", "8000", "test/"], port)


def jackd(packages, copy, port):
    shutil.copy(HERE / "check_jackd.js", copy)
    (copy / "node_modules").symlink_to(packages / "node" / "node_modules")
    return mocha(packages, copy, ["check_jackd.js"], port)


def nodestalker(packages, copy, port):
    folder = node_copy(packages, copy, "nodestalker")
    results = []
    for script in sorted(folder.glob("tests/test_*.js")):
        # BEANSTALKD is its own word for "a real server, not the mock".
        environment = {**os.environ, "BEANSTALKD": "1", "BEANSTALK_PORT": str(port)}
        try:
            done = subprocess.run(
                ["node", script], cwd=folder, env=environment, capture_output=True, text=True, timeout=SCRIPT_SECONDS
            )
            reason = next((line for line in done.stderr.splitlines() if "Error" in line), done.stderr[-200:])
            results.append(Result(script.stem, "failed" if done.returncode else "passed", reason))
        except subprocess.TimeoutExpired:
            results.append(Result(script.stem, "failed", f"did not end within {SCRIPT_SECONDS} s"))
    return results


def unittest_of(folder, module, packages, port, *left_out):
    environment = {**os.environ, "BEANSTALK_PORT": str(port), "PYTHONPATH": f"{folder}:{packages}"}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    command = ["python3", HERE / "report_unittest.py", module, *left_out]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=SUITE_SECONDS
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"test"')]
    if done.returncode != 0 or not lines:
        raise RuntimeError(f"{module} ended with {done.returncode}: {done.stderr[-1000:]}")
    return [Result(**json.loads(line)) for line in lines]


def mocha(packages, folder, arguments, port):
    command = ["node", packages / "node" / "node_modules" / "mocha" / "bin" / "_mocha", "-R", "json", *arguments]
    environment = {**os.environ, "BEANSTALK_PORT": str(port)}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=SUITE_SECONDS
    )
    start = done.stdout.find('{\n  "stats"')
    if start < 0:
        raise RuntimeError(f"mocha ended with {done.returncode}: {done.stderr[-1000:]}")
    report, _ = json.JSONDecoder().raw_decode(done.stdout[start:])
    names = {"passes": "passed", "failures": "failed", "pending": "skipped"}
    return [
        Result(test["fullTitle"], word, test.get("err", {}).get("message", ""))
        for key, word in names.items()
        for test in report[key]
    ]


def node_copy(packages, copy, name):
    """A package with its tests, to be changed; what it requires is found from beside it."""
    shutil.copytree(packages / "node" / "node_modules" / name, copy / name)
    (copy / "node_modules").symlink_to(packages / "node" / "node_modules")
    return copy / name


def set_port(folder, patterns, port):
    """Tests that know one port only: nothing else in them is changed."""
    for path in (path for pattern in patterns for path in folder.glob(pattern) if path.is_file()):
        data = path.read_bytes()
        path.write_bytes(data.replace(b"11300", str(port).encode()))


SUITES = (
    Suite("greenstalk", "Python", greenstalk),
    Suite("pystalk", "Python", pystalk),
    Suite("pystalkd", "Python", pystalkd),
    Suite("fivebeans", "Node", fivebeans),
    Suite("jackd", "Node", jackd),
    Suite("nodestalker", "Node", nodestalker),
)


# --- servers ---


def start(programs, kind):
    """A server that answers, and its port."""
    for _ in range(20):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        program = ["beanstalkd-legacy"] if kind == "beanstalkd-legacy" else ["trellis", "--slots", kind.split()[0]]
        command = [programs / program[0], *program[1:], "-l", "127.0.0.1", "-p", str(port)]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + 20
        while server.poll() is None and time.monotonic() < until:
            try:
                with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
                    client.sendall(b"list-tube-used\r\n")
                    if client.recv(100).startswith(b"USING"):
                        return server, port
            except OSError:
                time.sleep(0.02)
        stop(server)  # somebody took the port meanwhile
    raise RuntimeError(f"{kind} did not start")


def stop(server):
    server.terminate()
    try:
        server.wait(15)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def run_on(programs, packages, suite, kind):
    server, port = start(programs, kind)
    try:
        with tempfile.TemporaryDirectory() as copy:
            return suite.run(packages, pathlib.Path(copy), port)
    finally:
        stop(server)


# --- the document ---


def table(text, heading):
    """The rows of the table under a heading, without its head."""
    lines = text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("|")][2:]


def written_counts(text):
    """(client, server) -> what the document says: "31" or "30 of 31"."""
    return {(row[0], kind): row[4 + at] for row in table(text, "Results") for at, kind in enumerate(SERVERS)}


def written_failures(text, suite, kind):
    """Names of the tests that fail there, and of those that do so now and then."""
    always, by_chance = set(), set()
    for client, test, where, _reason in table(text, "Failures"):
        where, _, chance = where.partition(", ")
        if client == suite.client and where in ("all", kind):
            (by_chance if chance else always).add(test.strip("`"))
    return always, by_chance


def once_each(results):
    """A test whose body and clean-up both failed has said so twice."""
    by_name = {}
    for result in results:
        if result.test not in by_name or result.result == "failed":
            by_name[result.test] = result
    return list(by_name.values())


def counts(results):
    ran = [result for result in results if result.result != "skipped"]
    passed = sum(result.result == "passed" for result in ran)
    return str(passed) if passed == len(ran) else f"{passed} of {len(ran)}"


def judge(suite, kind, results, text):
    """What is not as the document says, a line each."""
    failed = {result.test: result.reason for result in results if result.result == "failed"}
    named, _ = written_failures(text, suite, kind)
    for test in sorted(failed.keys() - named):
        yield f"{test}: {' '.join(str(failed[test]).split())[:300]}"
    for test in sorted(named - failed.keys()):
        yield f"{test}: named under Failures, and did not fail"
    written = written_counts(text).get((suite.client, kind), "nothing")
    if written != counts(results):
        yield f"{counts(results)} passed, and the table says {written}"


def main(programs):
    text = DOCUMENT.read_text()
    work = pathlib.Path(tempfile.mkdtemp(prefix="trellis-clients-"))
    tally = collections.Counter()
    try:
        lacking = {}
        for language, fetch in (("Python", fetch_python), ("Node", fetch_node)):
            try:
                fetch(work)
            except Skipped as reason:
                lacking[language] = reason
        with concurrent.futures.ThreadPoolExecutor(AT_A_TIME) as pool:
            runs = {
                (suite, kind): pool.submit(run_on, programs, work, suite, kind)
                for suite in SUITES
                if suite.language not in lacking
                for kind in SERVERS
            }
        for suite in SUITES:
            for kind in SERVERS:
                if suite.language in lacking:
                    word, faults = "SKIPPED", [str(lacking[suite.language])]
                else:
                    try:
                        _, by_chance = written_failures(text, suite, kind)
                        results = [
                            Result(test, "passed", "") if test in by_chance else Result(test, result, reason)
                            for test, result, reason in once_each(runs[suite, kind].result())
                        ]
                        faults = list(judge(suite, kind, results, text))
                        word = "failed" if faults else f"{counts(results)} passed, as expected"
                    except Exception as error:  # one suite that can't be run hides no other
                        word, faults = "failed", [repr(error)]
                tally["skipped" if word == "SKIPPED" else "failed" if faults else "passed"] += 1
                print(f"{suite.client} on {kind}: {word}")
                for fault in faults:
                    print(f"    {fault}")
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print(f"{tally['passed']} passed, {tally['failed']} failed, {tally['skipped']} skipped")
    return 1 if tally["failed"] else 77 if tally["skipped"] else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve()))
