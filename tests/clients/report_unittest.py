"""Runs the unittest cases of a module and prints a line of JSON for each: {"test", "result", "reason"}.

python3 report_unittest.py MODULE [NAME-TO-LEAVE-OUT ...]
"""

import json
import sys
import unittest


class Report(unittest.TestResult):
    def say(self, test, result, reason=""):
        line = json.dumps({"test": test._testMethodName, "result": result, "reason": str(reason)})
        print("\n" + line, flush=True)

    def addSuccess(self, test):
        self.say(test, "passed")

    def addFailure(self, test, err):
        self.say(test, "failed", err[1])

    def addError(self, test, err):
        name = getattr(test, "_testMethodName", None)
        if name is None:
            raise err[1]
        self.say(test, "failed", repr(err[1]))

    def addSkip(self, test, reason):
        self.say(test, "skipped", reason)


def cases(suite):
    for item in suite:
        yield from cases(item) if isinstance(item, unittest.TestSuite) else [item]


module, *left_out = sys.argv[1:]
chosen = [t for t in cases(unittest.defaultTestLoader.loadTestsFromName(module)) if t._testMethodName not in left_out]
unittest.TestSuite(chosen).run(Report())
