"""A job in this process, and lines to it that break as they are told."""

from fdml.cluster.frames import Frame
from fdml.cluster.lines import LineLost


class Doubling:
    """Doubles an array."""

    def run(self, task):
        return Frame({"done": task.facts["number"]}, {"x": task.arrays["x"] * 2})


class FaultyLine:
    """A line to `Doubling`; `faults` say by turns what becomes of what is asked, over all lines that share them."""

    def __init__(self, number, faults, opened):
        self.machine = f"machine {number}"
        self._faults = faults
        self.ended = False
        opened.append(self)

    def ask(self, task, seconds):
        fault = self._faults.pop(0) if self._faults else None
        if fault == "lost":
            raise LineLost("is gone")
        if fault == "old answer":
            return Frame({"fence": task.facts["fence"] - 1})
        if fault is not None:
            return Frame({"fence": task.facts["fence"], "error": fault, "text": "no"})
        result = Doubling().run(task)
        return Frame({**result.facts, "fence": task.facts["fence"]}, result.arrays)

    def end(self):
        self.ended = True
