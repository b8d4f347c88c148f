"""What each route of OpenAI's API takes and gives. `dialect` puts each beside its path."""

from tenuto.errors import (
    AlreadyDecided,
    Conflict,
    ContextTooLong,
    GenerationFailed,
    IdempotencyMismatch,
    LegNotFound,
    MissingToolResults,
    NotFound,
    Overloaded,
    SessionBusy,
    SessionDamaged,
    SessionPaused,
    ShuttingDown,
    StoreFailed,
    TemplateFailed,
    TenutoError,
    ToolFailed,
    UnknownPrevious,
    UnsupportedParameter,
    UpgradeRequired,
)
from tenuto.runtime.dialects.openai.chat.shapes import STREAMED, ChatAnswer
from tenuto.runtime.dialects.openai.chat.wire import ChatBody
from tenuto.runtime.dialects.openai.completions.shapes import CompletionAnswer
from tenuto.runtime.dialects.openai.completions.wire import CompletionBody
from tenuto.runtime.dialects.openai.conversations.shapes import ConversationAnswer, DeletedConversation, OneItem
from tenuto.runtime.dialects.openai.conversations.wire import CreateBody, ItemsBody, UpdateBody
from tenuto.runtime.dialects.openai.embeddings.shapes import EmbeddingsAnswer
from tenuto.runtime.dialects.openai.embeddings.wire import EmbeddingsBody
from tenuto.runtime.dialects.openai.native_completions.answer import NativeAnswer, NativePiece, NativeText
from tenuto.runtime.dialects.openai.native_completions.infill import InfillBody
from tenuto.runtime.dialects.openai.native_completions.wire import NativeCompletionBody
from tenuto.runtime.dialects.openai.properties import PropsAnswer, SlotsAnswer
from tenuto.runtime.dialects.openai.rerank import RanksAnswer, RerankBody
from tenuto.runtime.dialects.openai.responses.events import STREAMED as RESPONSE_EVENTS
from tenuto.runtime.dialects.openai.responses.list_shapes import CompactedAnswer, DeletedResponse, ItemList
from tenuto.runtime.dialects.openai.responses.shapes import ResponseAnswer
from tenuto.runtime.dialects.openai.responses.wire import CompactBody, InputBody, ResponsesBody
from tenuto.runtime.dialects.openai.tokens import DetokenizeBody, PromptAnswer, TextAnswer, TokenizeBody, TokensAnswer
from tenuto.runtime.dialects.openai.usage import TokenCount
from tenuto.runtime.http.routes import Doc, Parameter, Stream
from tenuto.sessions import ids

GENERATING: tuple[type[TenutoError], ...] = (
    UnsupportedParameter,
    IdempotencyMismatch,
    MissingToolResults,
    ContextTooLong,
    TemplateFailed,
    NotFound,
    Conflict,
    SessionBusy,
    SessionPaused,
    Overloaded,
    ShuttingDown,
    GenerationFailed,
    StoreFailed,
    ToolFailed,
)
"""What a request that generates may be answered with."""

_KEY = Parameter(
    "Idempotency-Key",
    {"type": "string", "minLength": 1, "maxLength": 255},
    "For 24 hours, a retry with the same key and body gets the first request's answer.",
    "header",
)
_HEADER_SESSION = Parameter(
    "X-Tenuto-Session",
    {"type": "string", "pattern": ids.PATTERN},
    "The same as `session_id` in the body.",
    "header",
)
_EVENTS = Parameter(
    "X-Tenuto-Events", {"type": "string", "enum": ["0", "1"]}, "1: send named events for the server's tools.", "header"
)

CHAT = Doc(
    "Chat",
    "Chat with a model",
    ChatAnswer,
    "OpenAI's chat completions, with sessions and server-side tools.",
    body=ChatBody,
    parameters=(_HEADER_SESSION, _KEY, _EVENTS),
    errors=GENERATING,
    events=Stream(
        "With `stream`: chunks of the answer as OpenAI has them, the last of them `[DONE]`; and the named events"
        " `agentic_tool_call_progress` and `agentic_tool_approval_required`, to those who ask for them.",
        STREAMED,
        last="[DONE]",
    ),
    example={"messages": [{"role": "user", "content": "What is 12 * 7?"}], "session_id": "homework"},
)
CHAT_TOKENS = Doc(
    "Chat",
    "Count the tokens of a chat",
    TokenCount,
    "How many tokens the model would read of a chat request, as llama-server tells it.",
    body=ChatBody,
    parameters=(_HEADER_SESSION,),
    errors=GENERATING,
    example={"messages": [{"role": "user", "content": "What is 12 * 7?"}]},
)
RESPONSES = Doc(
    "Chat",
    "Get a response from a model",
    ResponseAnswer,
    "OpenAI's responses, with sessions and server-side tools.",
    body=ResponsesBody,
    parameters=(_HEADER_SESSION, _KEY, _EVENTS),
    errors=(*GENERATING, AlreadyDecided, UnknownPrevious),
    events=Stream("With `stream`: the events of a response as OpenAI has them.", RESPONSE_EVENTS),
    example={"input": "What is 12 * 7?"},
)
RESPONSES_SOCKET = Doc(
    "Chat",
    "Create responses over a WebSocket",
    None,
    "A WebSocket opens here. Its client sends `response.create` with the fields of a POST, and gets the events of that"
    " response as messages; then it may send the next one. A request that does not ask for a WebSocket is told so.",
    errors=(UpgradeRequired, Overloaded),
)
COMPACT = Doc(
    "Chat",
    "Compact a conversation",
    CompactedAnswer,
    "The user's messages and a summary by the model, which can be sent as the input of what comes next.",
    body=CompactBody,
    errors=(*GENERATING, UnknownPrevious),
    example={"input": [{"role": "user", "content": "What is 12 * 7?"}]},
)
INPUT_TOKENS = Doc(
    "Chat",
    "Count the tokens of an input",
    TokenCount,
    "How many tokens the model would read of a request for a response.",
    body=InputBody,
    parameters=(_HEADER_SESSION,),
    errors=(*GENERATING, UnknownPrevious),
    example={"input": "What is 12 * 7?"},
)
_STORED = (LegNotFound, StoreFailed)
RESPONSE = Doc(
    "Chat",
    "Get a stored response",
    ResponseAnswer,
    "The response as it stands, or the stream of its events, which may begin in its middle.",
    parameters=(
        Parameter(
            "stream", {"type": "string", "enum": ["true", "false", "1", "0"]}, "true: the events of the response."
        ),
        Parameter("starting_after", {"type": "integer", "minimum": 0}, "Only the events after this sequence number."),
    ),
    errors=_STORED,
    events=Stream("With `stream`: the events of a response as OpenAI has them.", RESPONSE_EVENTS),
)
CANCEL_RESPONSE = Doc(
    "Chat",
    "Cancel a stored response",
    ResponseAnswer,
    "Stops the response if it is under way, and gives it as it is then.",
    errors=(*_STORED, SessionBusy),
)
DELETE_RESPONSE = Doc(
    "Chat",
    "Delete a stored response",
    DeletedResponse,
    "Stops the response if it is under way. Its conversation keeps what was said.",
    errors=(*_STORED, SessionBusy),
)
_PAGE = (
    Parameter("after", {"type": "string"}, "The id of the last item of the page before."),
    Parameter("limit", {"type": "integer", "minimum": 1, "maximum": 100, "default": 20}, "The most to give."),
    Parameter("order", {"type": "string", "enum": ["asc", "desc"], "default": "desc"}, "desc: the newest first."),
)
INPUT_ITEMS = Doc(
    "Chat",
    "List the items that a stored response answers",
    ItemList,
    parameters=_PAGE,
    errors=(*_STORED, Conflict),
)
_OF_CONVERSATION = (NotFound, SessionDamaged, Overloaded, StoreFailed)
_CHANGING = (*_OF_CONVERSATION, SessionBusy, SessionPaused, Conflict)
CREATE_CONVERSATION = Doc(
    "Conversations",
    "Begin a conversation",
    ConversationAnswer,
    "A conversation is a session, whose id it has.",
    body=CreateBody,
    body_required=False,
    errors=(UnsupportedParameter, Overloaded, StoreFailed),
    example={"items": [{"role": "user", "content": "What is 12 * 7?"}], "metadata": {"topic": "homework"}},
)
CONVERSATION = Doc("Conversations", "Get a conversation", ConversationAnswer, errors=_OF_CONVERSATION)
UPDATE_CONVERSATION = Doc(
    "Conversations",
    "Change a conversation's metadata",
    ConversationAnswer,
    body=UpdateBody,
    errors=_OF_CONVERSATION,
    example={"metadata": {"topic": "homework"}},
)
DELETE_CONVERSATION = Doc(
    "Conversations",
    "Delete a conversation",
    DeletedConversation,
    "Its items and responses go with it. What is under way in it is cancelled.",
    errors=(NotFound, SessionBusy, Overloaded, StoreFailed),
)
ITEMS = Doc("Conversations", "List a conversation's items", ItemList, parameters=_PAGE, errors=_OF_CONVERSATION)
ADD_ITEMS = Doc(
    "Conversations",
    "Add items to a conversation",
    ItemList,
    "At its end, without asking a model.",
    body=ItemsBody,
    errors=(UnsupportedParameter, *_CHANGING),
    example={"items": [{"role": "user", "content": "What is 12 * 7?"}]},
)
ITEM = Doc("Conversations", "Get an item of a conversation", OneItem, errors=_OF_CONVERSATION)
DELETE_ITEM = Doc(
    "Conversations",
    "Delete an item of a conversation",
    ConversationAnswer,
    "A call goes with its output. What comes after it stays, and is read anew with the next response.",
    errors=_CHANGING,
)
COMPLETIONS = Doc(
    "Chat",
    "Complete a text",
    CompletionAnswer,
    "OpenAI's older completions: raw text, without sessions or tools.",
    body=CompletionBody,
    errors=GENERATING,
    events=Stream(
        "With `stream`: pieces of the texts as OpenAI has them, the last of them `[DONE]`.",
        (CompletionAnswer,),
        last="[DONE]",
    ),
    example={"prompt": "Once upon a time", "max_tokens": 16},
)
NATIVE_COMPLETIONS = Doc(
    "Chat",
    "Complete texts as llama-server does",
    NativeAnswer,
    "Texts that go on from prompts, without a session, template or tools; an answer for each prompt.",
    body=NativeCompletionBody,
    errors=GENERATING,
    events=Stream("With `stream`: pieces of the texts, and what each text's end brings.", (NativePiece, NativeText)),
    example={"prompt": "Once upon a time", "n_predict": 16},
)
INFILL = Doc(
    "Chat",
    "Fill a gap as llama-server does",
    NativeAnswer,
    "A text that stands between two others, for models whose vocabulary has tokens for that.",
    body=InfillBody,
    errors=GENERATING,
    events=Stream("With `stream`: pieces of the text, and what its end brings.", (NativePiece, NativeText)),
    example={"input_prefix": "def one():\n    return ", "input_suffix": "\n", "n_predict": 16},
)
_READING: tuple[type[TenutoError], ...] = (ContextTooLong, NotFound, Overloaded, ShuttingDown, GenerationFailed)
EMBEDDINGS = Doc(
    "Texts",
    "Make embeddings of texts",
    EmbeddingsAnswer,
    "OpenAI's embeddings, for models that embed.",
    body=EmbeddingsBody,
    errors=(UnsupportedParameter, *_READING),
    example={"input": ["The sky is blue.", "Grass is green."]},
)
RERANK = Doc(
    "Texts",
    "Rank documents by how well they answer a question",
    RanksAnswer,
    "As llama-server has it, for models that rank.",
    body=RerankBody,
    errors=_READING,
    example={"query": "What colour is the sky?", "documents": ["The sky is blue.", "Grass is green."]},
)
TOKENIZE = Doc(
    "Chat",
    "Tokenise a text, or a chat as the model would read it",
    TokensAnswer,
    "Give one of `content`, `prompt` and `messages`; with `messages`, any field of a chat request.",
    body=TokenizeBody,
    errors=GENERATING,
    example={"content": "Hello", "with_pieces": True},
)
DETOKENIZE = Doc(
    "Chat",
    "Turn tokens back into text",
    TextAnswer,
    body=DetokenizeBody,
    errors=(NotFound,),
    example={"tokens": [72, 105]},
)
APPLY_TEMPLATE = Doc(
    "Chat",
    "Show a chat as the model would read it",
    PromptAnswer,
    "As llama-server has it, for any chat request. Nothing is generated, and nothing is kept.",
    body=ChatBody,
    parameters=(_HEADER_SESSION,),
    errors=GENERATING,
    example={"messages": [{"role": "user", "content": "What is 12 * 7?"}]},
)
_OF_MODEL = Parameter("model", {"type": "string"}, "The model; the first, if absent.")
PROPS = Doc(
    "Models",
    "Show what a model has room for",
    PropsAnswer,
    "As llama-server has it.",
    parameters=(_OF_MODEL,),
    errors=(NotFound,),
)
SLOTS = Doc(
    "Models",
    "List a model's slots",
    SlotsAnswer,
    "As llama-server has them, without anything of what is said in them.",
    parameters=(_OF_MODEL,),
    errors=(NotFound,),
)
