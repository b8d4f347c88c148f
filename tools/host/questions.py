"""A server's elicitation as a question of ours, and a person's reply as its result. Bounded: servers are strangers."""

from urllib.parse import urlsplit

from mcp_types import ElicitRequestFormParams, ElicitRequestParams, ElicitRequestURLParams, ElicitResult

from tenuto.sessions.items import JsonObject
from tenuto.sessions.questions import Question, QuestionMode
from tenuto.tools.asking import Action, CannotAsk, Reply
from tenuto.tools.forms import problem_of_form

MOST_MESSAGE = 8_192
MOST_URL = 8_192


def question_of(server: str, params: ElicitRequestParams, resume: JsonObject | None = None) -> Question:
    """What is asked. Raises CannotAsk where it cannot be shown to a person."""
    if len(params.message) > MOST_MESSAGE:
        raise CannotAsk(f"the question is refused: its message has more than {MOST_MESSAGE} characters")
    match params:
        case ElicitRequestFormParams():
            schema = dict(params.requested_schema)
            if (problem := problem_of_form(schema)) is not None:
                raise CannotAsk(f"the form is refused: {problem}")
            return Question(server, QuestionMode.FORM, params.message, schema, resume=resume)
        case ElicitRequestURLParams():
            if (problem := _problem_of_url(params.url)) is not None:
                raise CannotAsk(f"the link is refused: {problem}")
            return Question(server, QuestionMode.URL, params.message, url=params.url, resume=resume)


def result_of(question: Question, reply: Reply) -> ElicitResult:
    """What the server gets to read. Nothing that a person typed goes with a link, or without their yes."""
    has_content = reply.action is Action.ACCEPT and question.mode is QuestionMode.FORM
    return ElicitResult(action=reply.action.value, content=(reply.content or {}) if has_content else None)


def _problem_of_url(url: str) -> str | None:
    if len(url) > MOST_URL:
        return f"it has more than {MOST_URL} characters"
    try:
        parts = urlsplit(url)
    except ValueError:
        return "it is not a URL"
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return "it does not begin with http:// or https:// and a host"
    if not url.isprintable() or parts.username is not None:
        return "it has characters that do not show, or a user's name"
    return None
