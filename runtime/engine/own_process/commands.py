"""Commands to an engine as bytes. Those that begin a round are pickled: they come from this program alone."""

import pickle
import struct
from collections.abc import Sequence
from dataclasses import replace

from tenuto.runtime.engine.messages import Cancel, Command, Forget, Hint, Read, Release, Stop, Submit
from tenuto.runtime.engine.own_process.frames import Kind, frame
from tenuto.sessions.tokens import Tokens

_COUNT = struct.Struct("<q")
_HINT = struct.Struct("<dd")


def encoded(command: Command) -> bytes:
    """A command as a frame.

    Raises:
        TypeError: it is none for an engine that generates.
    """
    match command:
        case Submit():
            packed = replace(command, tokens=_packed(command.tokens), said=_packed(command.said))
            return frame(Kind.SUBMIT, pickle.dumps(packed, pickle.HIGHEST_PROTOCOL))
        case Cancel(sequence=sequence):
            return frame(Kind.CANCEL, sequence.encode())
        case Read(sequence=sequence, tokens=tokens):
            return frame(Kind.READ, _COUNT.pack(tokens) + sequence.encode())
        case Release(sequence=sequence):
            return frame(Kind.RELEASE, sequence.encode())
        case Hint(sequence=sequence, expected_s=expected_s, spread_s=spread_s):
            return frame(Kind.HINT, _HINT.pack(expected_s, spread_s) + sequence.encode())
        case Forget(sequence=sequence, kept_as=kept_as):
            name = sequence.encode()
            return frame(Kind.FORGET, _COUNT.pack(len(name)) + name + kept_as.encode())
        case Stop():
            return frame(Kind.STOP)
        case _:
            raise TypeError(f"{type(command).__name__} is no command for an engine that generates")


def decoded(kind: Kind, payload: bytes) -> Command:
    """The command in a frame.

    Raises:
        ValueError: it is a frame of another kind.
    """
    match kind:
        case Kind.SUBMIT:
            command: Submit = pickle.loads(payload)
            return command
        case Kind.CANCEL:
            return Cancel(payload.decode())
        case Kind.READ:
            return Read(payload[_COUNT.size :].decode(), _COUNT.unpack_from(payload)[0])
        case Kind.RELEASE:
            return Release(payload.decode())
        case Kind.HINT:
            return Hint(payload[_HINT.size :].decode(), *_HINT.unpack_from(payload))
        case Kind.FORGET:
            end = _COUNT.size + _COUNT.unpack_from(payload)[0]
            return Forget(payload[_COUNT.size : end].decode(), payload[end:].decode())
        case Kind.STOP:
            return Stop()
        case _:
            raise ValueError(f"{kind.name} is no command")


def _packed(tokens: Sequence[int]) -> Sequence[int]:
    """In four bytes each. What is no token stays as it is: the engine refuses it."""
    try:
        return Tokens(tokens)
    except (OverflowError, TypeError):
        return tokens
