"""What can go wrong in a way that the user can mend."""


class ConfigError(ValueError):
    """Bad input. The message is one line that holds the value and the remedy; the command line exits with 2."""


class FolderInUse(ConfigError):
    """Another process has the run's folder."""


class TrainingError(RuntimeError):
    """Training cannot go on. The command line says what is saved, and exits with 1."""
