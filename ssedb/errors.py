"""What can go wrong in a way that the user can mend."""


class ConfigError(ValueError):
    """Bad input. The message is one line that holds the value and the remedy; the command line exits with 2."""


class FolderInUse(ConfigError):
    """Another process has the run's folder."""


class TrainingError(RuntimeError):
    """Training cannot go on. The command line says what is saved, and exits with 1.

    Attributes:
        may_pass: whether another try may succeed, as after a process has died; NaN comes again.
    """

    def __init__(self, message: str, *, may_pass: bool = False) -> None:
        super().__init__(message)
        self.may_pass = may_pass


def one_line(error: BaseException) -> str:
    """Return the kind of an error and what it says, as one line."""
    said = " ".join(str(error).split())
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


class Note(UserWarning):
    """Something the user should know that stops nothing; the command line prints it as one line."""
