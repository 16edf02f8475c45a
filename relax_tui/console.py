"""Drawing the console: the only place that starts Textual."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from relax.arguments.environment import state_home
from relax_tui.terminal import Capabilities, tty_kept_clean

if TYPE_CHECKING:
    from relax_tui.launch import DriverDied, Launch
    from relax_tui.looking import LookingApp
    from relax_tui.sources.base import RunSource
    from relax_tui.steering import Outcome


def draw(
    run_dir: Path | None,
    capabilities: Capabilities,
    *,
    launch: Launch | None = None,
    read_only: str = "",
    mouse: bool = False,
    foreign: Sequence[Path] = (),
) -> Outcome:
    """Runs the console until the person leaves it.

    Args:
        run_dir: The run to show; None for the list of runs.
        capabilities: What the terminal can do.
        launch: The driver, when we have just started it.
        read_only: Why no commands are wanted; '' when they are.
        mouse: Whether the console takes the mouse from the terminal.
        foreign: Logs and dumps of another engine's run; ``run_dir`` is the first.

    Returns:
        Exit code and words for the shell.
    """
    # Textual takes a third of a second; `ls` and `show` do without it.
    from relax_tui.app import ConsoleApp  # noqa: PLC0415
    from relax_tui.steering import Outcome  # noqa: PLC0415

    def open_run(folder: Path, app: LookingApp) -> RunSource:
        if foreign and folder == foreign[0]:
            from relax_tui.sources.foreign import ForeignSource  # noqa: PLC0415

            return ForeignSource(foreign)
        # The event log's readers are not needed for the first paint.
        from relax_tui.messages import DriverEnded  # noqa: PLC0415
        from relax_tui.sources.run_folder import RunFolderSource  # noqa: PLC0415

        def died(error: DriverDied) -> None:
            app.post_message(DriverEnded(str(error), error.returncode))

        ours = launch if launch is not None and launch.run_dir == folder else None
        return RunFolderSource(folder, launch=ours, read_only=read_only, on_died=died)

    with tty_kept_clean(state_home() / "relax" / "console.log"):
        app = ConsoleApp(open_run, run_dir=run_dir, capabilities=capabilities)
        outcome = app.run(mouse=mouse)
    if app.return_code and outcome is None:
        return Outcome(returncode=app.return_code, words="the console failed")
    return outcome or Outcome()
