"""Makes the logs in tests/data/wal-stock with a stock server, and what that server makes of them.

    python3 tests/wal_fixtures.py --server 'COMMAND -l 127.0.0.1 -p {port}'

The server gets `-b DIR -s 4096 -f0` on top. It is driven through every record it can write (put, move of a
live job, bury, kick, release with a delay, delete), killed, and started again on a copy; `expected.tsv` is what
the second one reports of every job. Replay counts one burial too many for a buried job: that is taken off.
"""

import argparse
import pathlib
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile

TARGET = pathlib.Path(__file__).parent / "data" / "wal-stock"
FIELDS = ("tube", "state", "pri", "delay", "ttr", "reserves", "timeouts", "releases", "buries", "kicks")


class Server:
    def __init__(self, command, directory):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        words = shlex.split(command.format(port=port)) + ["-b", str(directory), "-s", "4096", "-f0"]
        self.process = subprocess.Popen(words)
        while True:
            try:
                self.stream = socket.create_connection(("127.0.0.1", port)).makefile("rwb")
                break
            except ConnectionRefusedError:
                if self.process.poll() is not None:
                    raise SystemExit(f"the server ended: {words}")

    def say(self, line, body=None):
        self.stream.write(line.encode() + b"\r\n" + (body + b"\r\n" if body is not None else b""))
        self.stream.flush()
        reply = self.stream.readline().decode().split()
        if reply[0] in ("OK", "FOUND", "RESERVED"):
            data = self.stream.read(int(reply[-1]) + 2)[:-2]
            return reply, data
        return reply, None

    def put(self, tube, pri, delay, body):
        self.say(f"use {tube}")
        reply, _ = self.say(f"put {pri} {delay} 60 {len(body)}", body)
        assert reply[0] == "INSERTED", reply
        return int(reply[1])

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.stream.close()


def fill(server):
    """Every kind of record, over several files, with enough deletions that live jobs are moved."""
    keep = [server.put("emails", 10 + n, 0, b"keep %d" % n) for n in range(4)]
    late = server.put("a-b/c;d.$_()+", 0, 1000000, b"")
    for n in range(60):
        gone = server.put("passing", 0, 0, b"x" * 90)
        assert server.say(f"delete {gone}")[0] == ["DELETED"]
    bury = [server.put("graves", 5, 0, b"\r\n%d\r\n" % n) for n in range(3)]
    server.say("watch emails"), server.say("watch graves")
    for job in (bury[2], bury[0], bury[1], keep[1]):
        assert server.say(f"reserve-job {job}")[0][0] == "RESERVED"
        assert server.say(f"bury {job} 7")[0] == ["BURIED"]
    assert server.say(f"kick-job {keep[1]}")[0] == ["KICKED"]
    server.say(f"reserve-job {keep[2]}")
    assert server.say(f"release {keep[2]} 99 500000")[0] == ["RELEASED"]
    server.say(f"reserve-job {keep[3]}")
    server.put("Emails", 4294967295, 0, bytes(range(256)))
    assert server.say(f"delete {late}")[0] == ["DELETED"]
    server.put("x" * 200, 1, 1000000, b"last")


def report(server, highest):
    rows = []
    for job in range(1, highest + 1):
        reply, text = server.say(f"stats-job {job}")
        if reply[0] == "OK":
            pairs = dict(line.split(": ", 1) for line in text.decode().splitlines()[1:])
            if pairs["state"] == "buried":
                pairs["buries"] = str(int(pairs["buries"]) - 1)
            body = server.say(f"peek {job}")[1]
            tube = pairs["tube"].strip('"')
            rows.append([str(job), tube] + [pairs[field] for field in FIELDS[1:]] + [body.hex() or "-"])
    server.say("use graves")
    order = []
    while (reply := server.say("peek-buried")[0])[0] == "FOUND":
        order.append(reply[1])
        server.say(f"delete {reply[1]}")
    return rows, order


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True)
    command = parser.parse_args().server
    with tempfile.TemporaryDirectory() as scratch:
        first, second = pathlib.Path(scratch, "first"), pathlib.Path(scratch, "second")
        first.mkdir()
        server = Server(command, first)
        fill(server)
        server.kill()
        shutil.copytree(first, second)
        server = Server(command, second)
        rows, order = report(server, 200)
        server.kill()
        shutil.rmtree(TARGET, ignore_errors=True)
        TARGET.mkdir(parents=True)
        for log in first.glob("binlog.*"):
            TARGET.joinpath(log.name).write_bytes(log.read_bytes())
        lines = ["# id " + " ".join(FIELDS) + " body; then the buried jobs of graves, first to be kicked first"]
        lines += ["\t".join(row) for row in rows] + ["order\t" + "\t".join(order)]
        TARGET.joinpath("expected.tsv").write_text("\n".join(lines) + "\n")
        print("\n".join(lines))


if __name__ == "__main__":
    main()
