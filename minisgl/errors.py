"""What a user can do wrong: one exception class per mistake, each carrying the numbers and the remedy.

Everything here is raised before a page, a row or a tensor is taken, so catching one and going on is always safe.
A broken rule of the engine itself is never one of these: that is an ``AssertionError`` or a :class:`LedgerError`.
"""


class MinisglError(Exception):
    """Base of every error a user of minisgl can cause."""


class ConfigError(MinisglError, ValueError):
    """An engine setting, or a combination of settings, that cannot work."""


class FixedSettingError(ConfigError):
    """A setting that cannot change in the middle of a run."""


class ModelNotFoundError(MinisglError, FileNotFoundError):
    """The model's folder, file or name does not lead to a model."""


class ModelFormatError(MinisglError, ValueError):
    """The model was found but cannot be run: unknown architecture, missing or left-over weights, damaged file."""


class RequestError(MinisglError, ValueError):
    """A request that can never be served. The engine refuses it, under ``uid``, and serves the others."""

    uid: int | None = None


class PromptTypeError(RequestError):
    """The prompt is neither a text nor a row of token ids, or holds something that is not a token id."""


class EmptyPromptError(RequestError):
    """The prompt has no tokens."""


class TokenOutOfVocabularyError(RequestError):
    """A token id is negative or not below the model's vocabulary size."""


class PromptTooLongError(RequestError):
    """The prompt leaves no room for a single new token within ``max_seq_len``."""


class PoolTooSmallError(RequestError):
    """The request's worst case needs more pages than the whole KV pool has."""


class SamplingParamsError(RequestError):
    """A sampling parameter out of its range: ``max_tokens < 1``, NaN temperature, ``top_p`` outside (0, 1] ..."""


class UnknownRequestError(MinisglError, KeyError):
    """No request has this uid."""

    def __str__(self) -> str:  # KeyError would print the message's repr
        return self.args[0]


class UnknownQuestionError(MinisglError, ValueError):
    """``explain`` knows no such question."""


class ConditionError(MinisglError, ValueError):
    """A condition to run until, or to look for, that cannot be read."""


class ForkError(MinisglError, ValueError):
    """A run that cannot be taken up again at that step, or not with that change."""


class EngineClosedError(MinisglError, RuntimeError):
    """The engine was closed; its pool is gone."""


class TraceError(MinisglError, ValueError):
    """A trace that cannot be read, or a step that it does not hold."""


class TraceFormatError(TraceError):
    """The file is not a trace, or it is damaged."""


class TraceVersionError(TraceError):
    """The file is of a newer major version than this minisgl can read."""


class TraceNotFoundError(TraceError, FileNotFoundError):
    """There is no such file."""


class TraceWriteError(MinisglError, OSError):
    """The trace cannot be saved under this name."""


class TruncatedTraceWarning(UserWarning):
    """The file was cut short; what is whole of it is kept."""


class UnknownEventsWarning(UserWarning):
    """The file holds events of types that this version does not know; they are left out."""


class QuizError(MinisglError, ValueError):
    """A quiz that cannot be made: there is no such topic, or nothing in the run to ask about."""


class TourError(MinisglError, ValueError):
    """A tour that cannot be made: a place in its text that is none, or that the run does not hold."""


class WorkloadError(MinisglError, ValueError):
    """A workload that cannot be read, written or generated; of a file, its line is named."""


class CostError(MinisglError, ValueError):
    """A cost model that cannot be made: too few timed batches to fit, a model or a device that no table lists."""


class MissingLibraryError(MinisglError, ImportError):
    """A library that minisgl can use but does not need is not installed."""


class LedgerError(AssertionError):
    """The engine broke a rule of its own bookkeeping (a page freed twice, two owners ...). Always a bug in minisgl."""


class GhostPageError(LedgerError):
    """A request was about to read the KV of a freed page. Always a bug in minisgl; found with ``poison=True``."""
