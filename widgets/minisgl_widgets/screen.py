"""Screen: what a dashboard shows, the views and the two lines above them."""

from __future__ import annotations

from html import escape

from minisgl_widgets.controls import Controls
from minisgl_widgets.driver import Driver
from minisgl_widgets.feed import Feed
from minisgl_widgets.proof import Proof
from minisgl_widgets.stage import Stage
from minisgl_widgets.static_pool import summary

PROVEN = 2_000  # steps at most whose record is verified without being asked: a fifth of a second
CLOSED = "the engine was closed"


class Screen:
    """Brings views, lines and lists up to date with the engine. But for what a browser says, on the engine thread.

    A run that is over is verified once a browser has drawn its end. So that is for whoever looks; and browsers are not
    heard before the cells that wait are done, so it delays none of them.
    """

    def __init__(self, driver: Driver, controls: Controls) -> None:
        self._driver, self._controls = driver, controls
        self.stage = Stage(driver.feed, live=True, on_request=self._resync, on_drawn=self._drawn)
        self.proof = Proof(self._proven)

    def due_in(self) -> float:
        """Seconds until it may be shown again."""
        return self.stage.due_in()

    def looked_at(self) -> int:
        """The step that somebody looks at."""
        return self.stage.looked_at()

    def begin_again(self, feed: Feed) -> None:
        """Show another run instead."""
        self.stage.begin_again(feed)

    def show(self) -> None:
        """Send the new steps, and say how things are."""
        driver, controls = self._driver, self._controls
        self.stage.publish()
        if driver.set_anew:
            driver.set_anew = False
            controls.settings.show(driver.llm.config)
        history, notices = driver.feed.history, driver.notices
        now = history.at(history.last)
        requests = f"{now.counters['running']} running, {now.counters['waiting']} waiting"
        state = self._state()
        if state == CLOSED:
            self.stage.live = False
            controls.turn_off()
        else:
            controls.wait(driver.back is not None)
        if driver.back:
            said = [driver.back.progress(), "Pause ends it here, all else waits until it is there"]
        else:
            said = [f"after step {now.step}", requests, self.proof.said(driver.feed), notices.note]
        line = " · ".join(filter(None, said))
        between = " · " if driver.back else " "
        title = f"{state}{between}{line} ({summary(now)})"
        controls.say(f"<b>{escape(state)}</b>{between}{escape(line)}", title, notices.errors)

    def _state(self) -> str:
        driver = self._driver
        elsewhere, driver.elsewhere = driver.elsewhere, False
        idle = driver.idle
        if idle is None:
            return CLOSED
        if driver.back:
            return f"going back to step {driver.back.to}"
        if driver.thread.running:
            return "running"
        if idle:
            return "idle"
        return "run by another cell" if elsewhere else "paused"

    # -- from any thread -----------------------------------------------------------------------------------------------

    def _resync(self) -> None:
        thread = self._driver.thread
        if thread.over:
            self.stage.resync()
        else:
            thread.put(self.stage.resync, at_once=True)

    def _drawn(self, step: int) -> None:
        """A browser shows everything up to this step."""
        driver = self._driver
        history = driver.feed.history
        if driver.idle and step == history.last and 0 < step - history.first <= PROVEN and not driver.thread.over:
            self.proof.wish(driver.feed)

    def _proven(self) -> None:
        if not self._driver.thread.over:
            self._driver.thread.put(self.show, at_once=True)

    def freeze(self, why: str) -> None:
        """The engine thread has ended: the views stay as they are, the controls are off."""
        self.stage.publish()
        self.stage.live = False
        self._controls.turn_off()
        history = self._driver.feed.history
        said = f"It holds steps {history.first} to {history.last}, which can be scrubbed as before."
        self._controls.say(f"<b>{escape(why)}</b> · {said}", f"{why} · {said}", self._driver.notices.errors)
