"""What requests of several dialects say of the model's reasoning in the same way: variables of its chat template."""

from typing import Annotated, Any

from pydantic import Field

from tenuto.errors import InvalidRequest
from tenuto.pipelines.template_variables import MOST_VARIABLES, NO_VARIABLES, TemplateVariables
from tenuto.runtime.http.body import at_most

Effort = Annotated[str, Field(pattern=r"^[a-z]{1,16}$")]
"""`none`, `minimal`, `low`, `medium`, `high`, or another word that a template may know."""

TemplateArguments = Annotated[dict[str, Any], Field(max_length=MOST_VARIABLES), at_most(MOST_VARIABLES)]
KWARGS = "chat_template_kwargs"


def template_variables(values: dict[str, Any] | None) -> TemplateVariables:
    """The variables that a request names.

    Raises:
        InvalidRequest: one is none that a request may set, or they are too much.
    """
    if not values:
        return NO_VARIABLES
    try:
        return TemplateVariables.of(values)
    except ValueError as error:
        raise InvalidRequest(f"{KWARGS}: {error}", KWARGS) from None
