"""What a codec makes of images: where they stand, what is hidden and why, and which files are images at all."""

from collections.abc import Sequence

import numpy as np
import pytest
from PIL import Image as Picture

from tenuto.pipelines.chat_template import ChatTemplate
from tenuto.pipelines.codec import TemplateCodec
from tenuto.pipelines.image_files import MAX_PIXELS, decoded
from tenuto.pipelines.images import Image, ImageText, Piece, UnreadableImage
from tenuto.pipelines.scripted import TEMPLATE, ScriptedTokenizer
from tenuto.sessions.image_tokens import image_span, is_image_token
from tenuto.sessions.items import AssistantItem, Attachment, Item, ToolCall, ToolResultItem, ToolSpec, UserItem
from tests.pipelines.pictures import encoded, picture

BEGIN, END = 1, 2


class Reader:
    """Reads every picture as two pieces between two tokens, and what is none not at all."""

    def __init__(self, identity: bytes = b"reader") -> None:
        self.identity = identity
        self.reads = 0

    def read(self, image: Image) -> ImageText:
        self.reads += 1
        decoded(image.data)
        spans = [image_span(f"{image.digest} {number}", 3) for number in (0, 1)]
        pieces = tuple(Piece(image, number, span) for number, span in enumerate(spans))
        return ImageText((BEGIN, *spans[0], END, *spans[1]), pieces)


def codec(template: str = TEMPLATE, reader: Reader | None = None) -> TemplateCodec:
    return TemplateCodec("scripted", ScriptedTokenizer(), template, images=reader or Reader())


def png(seed: int) -> Attachment:
    return Attachment("image", "image/png", picture(seed))


def rendered(codec: TemplateCodec, items: Sequence[Item], before: int = 0) -> list[list[int]]:
    suffix = codec.suffix(items[:before], items[before:], [], ended=False)
    return [list(span) for span in suffix.items]


def test_images_stand_before_the_text_that_came_with_them() -> None:
    made = codec()
    one, other = png(1), png(2)
    (whole,) = rendered(made, [UserItem("look", (one, other))])
    (text,) = rendered(made, [UserItem("look")])
    pieces = made.pieces([UserItem("look", (one, other))])
    spans = [piece.span for piece in pieces]
    images = [token for begin in (0, 2) for token in (BEGIN, *spans[begin], END, *spans[begin + 1])]
    at = whole.index(spans[0][0]) - 1
    assert whole[at : at + len(images)] == images
    assert [*whole[:at], *whole[at + len(images) :]] == text
    assert made.info.modalities == {"text", "image"}


def test_what_is_new_is_rendered_the_same_after_images() -> None:
    made = codec()
    call = ToolCall("c", "shoot", "{}")
    items: list[Item] = [
        UserItem("look", (png(1),)),
        AssistantItem(calls=(call,)),
        ToolResultItem("c", "shoot", "x", attachments=(png(2),)),
    ]
    at_once = rendered(made, items)
    one_by_one = [rendered(made, items[: place + 1], place)[0] for place in range(len(items))]
    assert one_by_one == at_once
    assert sum(map(is_image_token, at_once[2])) == 6


@pytest.mark.parametrize(
    ("attachment", "why"),
    [
        (Attachment("audio", "audio/wav", "aGk="), "the model reads text and images only"),
        (Attachment("image", "image/*", uri="https://example.org/a.png"), "images are not fetched from where they lie"),
        (Attachment("image", "image/png", "aGk="), "it is none of PNG, JPEG, WEBP, GIF, BMP"),
    ],
)
def test_a_note_says_why_the_model_does_not_see_something(attachment: Attachment, why: str) -> None:
    made = codec()
    (tokens,) = rendered(made, [UserItem("look", (attachment,))])
    assert made.unseen(attachment) == why
    assert f"look\n[{attachment.kind}: {attachment.mime_type}, not shown: {why}]" in made.detokenize(tokens)
    assert made.pieces([UserItem("look", (attachment,))]) == ()


def test_a_model_of_text_alone_reads_notes() -> None:
    made = TemplateCodec("scripted", ScriptedTokenizer(), TEMPLATE)
    (tokens,) = rendered(made, [UserItem("look", (png(1),))])
    assert "[image: image/png, not shown: the model reads text only]" in made.detokenize(tokens)
    assert made.info.modalities == {"text"}
    assert made.unseen(png(1)) == "the model reads text only"


def test_a_ledger_is_of_one_projector() -> None:
    plain = TemplateCodec("scripted", ScriptedTokenizer(), TEMPLATE)
    assert len({each.fingerprint([]) for each in (plain, codec(), codec(reader=Reader(b"other")))}) == 3


def test_a_template_without_a_place_for_images_makes_a_model_of_text() -> None:
    made = codec("{% for message in messages %}{{ message.role }}: {{ message.content | tojson }}\n{% endfor %}")
    assert made.info.modalities == {"text"}
    (tokens,) = rendered(made, [UserItem("look", (png(1),))])
    assert "not shown: the model reads text only" in made.detokenize(tokens)


def test_a_template_without_a_place_in_results_has_a_note_there() -> None:
    template = (
        "{% for message in messages %}{{ message.role }}: "
        "{{ (message.content | tojson) if message.role == 'tool' else message.content }}\n{% endfor %}"
        "{{ tools | tojson if tools }}"
    )
    made = codec(template)
    items: list[Item] = [UserItem("x"), AssistantItem("y"), ToolResultItem("c", "f", "z", attachments=(png(1),))]
    result = made.detokenize(rendered(made, items)[2])
    assert "has no place for images here" in result
    assert made.info.modalities == {"text", "image"}


def test_equal_images_are_read_as_one() -> None:
    made = codec()
    one, again = png(1), Attachment("image", "image/jpeg", "".join(list(picture(1))))
    assert made.pieces([UserItem("", (one,))]) == made.pieces([UserItem("", (again,))])


def test_pictures_are_decoded_as_they_are_looked_at() -> None:
    red = Picture.new("RGB", (2, 3), "red")
    turned = red.getexif()
    turned[0x0112] = 6  # held upright: a quarter of a turn
    assert decoded(encoded(red, "JPEG", exif=turned)).shape == (2, 3, 3)
    clear = Picture.new("RGBA", (1, 1), (255, 0, 0, 0))
    assert decoded(encoded(clear)).tolist() == [[[255, 255, 255]]]
    grey = Picture.fromarray(np.full((2, 2), 7, np.uint8))
    for kind in ("PNG", "BMP", "GIF", "WEBP"):
        assert decoded(encoded(grey, kind)).shape == (2, 2, 3)


def test_a_picture_of_too_many_pixels_is_not_decoded() -> None:
    side = int(MAX_PIXELS**0.5) + 1
    with pytest.raises(UnreadableImage, match=f"{side} x {side} pixels"):
        decoded(encoded(Picture.new("1", (side, side))))


def test_a_chat_template_says_whether_it_takes_images() -> None:
    assert ChatTemplate(TEMPLATE, {}).takes_images
    spec = ToolSpec("f", "", {"type": "object"})
    assert codec().suffix([], [UserItem("x", (png(1),))], [spec], ended=False)
