"""Where chat templates run: Hugging Face's dialect of Jinja in a sandbox, in which no rendering takes for ever.

A template comes with a model, so it is as little known as the model. Whatever loops or makes text pays for it from the
rendering's budget first. Nothing of messages or slots is known here.
"""

import functools
import threading
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

import jinja2
from jinja2 import meta, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from tenuto.pipelines import template_growth
from tenuto.pipelines.template_budget import Budget

_LONGEST = 1 << 20
"""Characters of a template; the longest in use has some ten thousand."""
_LEFT_OUT_FILTERS, _LEFT_OUT_GLOBALS = ("urlize",), ("lipsum",)  # slow by themselves, and of use to web pages only
# These look at one value of what they are given, or at none; so they cost the same for a long conversation.
_CHEAP = frozenset(
    {"attr", "count", "d", "default", "first", "last", "length"}
    | {"boolean", "callable", "defined", "false", "integer", "iterable", "mapping", "none", "number", "sequence"}
    | {"true", "undefined"}
)
_CALL = 8
"""Units; most are calls of macros, with a frame of their own."""
_SCANNING = frozenset({"copy", "count", "index"})
_CHANGING = frozenset({"append", "pop"})
"""What templates do to lists of their own, as Kimi's do to remember the ids of calls."""


class BoundedTemplate:
    """A compiled template. Safe for any thread.

    Raises:
        TemplateError: the text is no template, or it is too long.
    """

    def __init__(self, environment: "BoundedEnvironment", text: str) -> None:
        if len(text) > _LONGEST:
            raise jinja2.TemplateError(f"it has {len(text)} characters; {_LONGEST} are the most")
        self._environment = environment
        environment.begin(Budget())  # what is constant in a template is computed when it is compiled
        self._template = environment.from_string(text)
        self.reads = frozenset(meta.find_undeclared_variables(environment.parse(text)) - environment.globals.keys())
        """The names that it looks up where it does not set them itself in any case."""

    def render(self, **variables: Any) -> str:
        """Render it.

        Raises:
            Overrun: it loops for too long, or makes too much text.
        """
        self._environment.begin(Budget(variables.values()))
        return self._template.render(variables)


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """The sandbox, whose loops, calls, filters, operators and outputs spend the budget of this thread's rendering."""

    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "%", "**"})

    def __init__(self, to_json: Callable[..., str]) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[_GenerationTag, "jinja2.ext.loopcontrols"],
            finalize=self._output,
        )
        self._local = threading.local()
        vars(self)["concat"] = self._concat  # in place of "".join
        self.filters["tojson"] = to_json
        for name in _LEFT_OUT_FILTERS:
            del self.filters[name]
        for name in _LEFT_OUT_GLOBALS:
            del self.globals[name]
        tables: tuple[dict[str, Any], ...] = (self.filters, self.tests)
        for table in tables:
            for name, function in table.items():
                table[name] = self._paid(name, function)
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = lambda form: datetime.now().strftime(form)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """A text has the attributes of any text: a template does not see what stands behind a message's. Of what can
        change, only a list that the template has made does."""
        if type(obj) is list and attr in _CHANGING:
            return self._budget.may_change(obj)
        return super().is_safe_attribute(obj, attr, value) and not (isinstance(obj, str) and not hasattr(str, attr))

    def begin(self, budget: Budget) -> None:
        """What this thread renders next has so much to spend."""
        self._local.budget = budget

    @property
    def _budget(self) -> Budget:
        budget: Budget = self._local.budget
        return budget

    @property
    def paid_round(self) -> bool:
        """A loop goes round. True, so that it can stand before a condition; no call, as it is read so often."""
        self._local.budget.spend()
        return True

    def scanned(self, value: Any) -> Any:
        """A value is about to be compared, searched or cut."""
        if hasattr(value, "__len__"):
            self._budget.spend_bytes(self._budget.weigh(value) if not isinstance(value, str) else len(value))
        return value

    def joined(self, *values: Any) -> str:
        """Values as one text."""
        self._budget.spend_bytes(sum(map(self._budget.weigh, values)))
        return "".join(map(str, values))

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805 -- as the base has it
        """Call an object from a template."""
        if getattr(__obj, "__self__", None) is __self:
            return __obj(*args)  # put here by ourselves, and paid for where it is defined
        budget = __self._budget
        budget.spend(_CALL)
        if not isinstance(__obj, Macro):
            method = getattr(__obj, "__wrapped__", __obj)
            __self._spend_on_call(budget, method, [*args, *kwargs.values()])
        return super().call(__context, __obj, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Compute what stands on both sides of an operator."""
        budget = self._budget
        if operator == "+" and isinstance(left, str) and isinstance(right, str):
            budget.spend_bytes(len(left) + len(right))
            return left + right
        budget.spend_bytes(template_growth.binary(budget, operator, left, right))
        return super().call_binop(context, operator, left, right)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Look something up; a tuple is hashed anew each time."""
        if isinstance(argument, tuple):
            self.scanned(argument)
        return super().getitem(obj, argument)

    def _generate(self, source: nodes.Template, *args: Any, **kwargs: Any) -> str:
        paying: nodes.Template = _Paying().visit(source)
        paying.set_environment(self)
        return super()._generate(paying, *args, **kwargs)

    def _spend_on_call(self, budget: Budget, method: Any, given: list[Any]) -> None:
        owner, name = getattr(method, "__self__", None), getattr(method, "__name__", "")
        touched = sum(budget.weigh(each) for each in given if hasattr(each, "__len__"))
        if isinstance(owner, (str, bytes, int)):
            touched += budget.weigh(owner) * 4  # the parts of a text that is split
            grown = template_growth.GROWTH.get(name)
            touched += grown(budget, owner, given) if grown else 0
        elif name in _SCANNING:
            touched += budget.weigh(owner)
        elif isinstance(owner, list) and name in _CHANGING:
            budget.change(owner, given)
        budget.spend_bytes(touched)

    def _paid(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """A filter or test that pays for what it is given and for what it will make."""
        grown = template_growth.GROWTH.get(name)
        skipped = 1 if hasattr(function, "jinja_pass_arg") else 0  # an environment or a context comes first

        @functools.wraps(function)
        def paid(*args: Any, **kwargs: Any) -> Any:
            budget = self._budget
            budget.spend()
            if name not in _CHEAP:
                value, *given = [*args[skipped:], *kwargs.values()] or [None]
                touched = budget.weigh(value) + sum(map(budget.weigh, given))
                budget.spend_bytes(touched + (grown(budget, value, given) if grown else 0))
            return function(*args, **kwargs)

        return paid

    def _output(self, value: Any) -> Any:
        if not isinstance(value, str):
            self._budget.spend_bytes(self._budget.weigh(value))
        return value

    def _concat(self, pieces: Iterable[str]) -> str:
        found = list(pieces)
        self._budget.spend_bytes(sum(map(len, found)))
        return "".join(found)


class _Paying(NodeTransformer):
    """Puts the environment's counters where a template loops, compares, cuts and joins."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802 -- the base class names it
        self.generic_visit(node)
        paid = nodes.EnvironmentAttribute("paid_round", lineno=node.lineno)
        node.body.insert(0, nodes.ExprStmt(paid, lineno=node.lineno))
        if node.test is not None:
            node.test = nodes.And(paid, node.test, lineno=node.lineno)
        return node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        searched = any(operand.op in ("in", "notin") for operand in node.ops)
        if searched or (not _is_short(node.expr) and not any(_is_short(operand.expr) for operand in node.ops)):
            for operand in node.ops:
                if not _is_short(operand.expr):
                    operand.expr = _call("scanned", [operand.expr], node)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _call("joined", node.nodes, node)

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        if isinstance(node.arg, nodes.Slice):
            node.node = _call("scanned", [node.node], node)
        return node


def _is_short(node: nodes.Expr) -> bool:
    """Whether a value is written in the template."""
    return isinstance(node, nodes.Const) or (
        isinstance(node, (nodes.List, nodes.Tuple)) and all(map(_is_short, node.items))
    )


def _call(name: str, arguments: list[nodes.Expr], near: nodes.Node) -> nodes.Call:
    """A call of the environment's own, which no name of a template can hide."""
    lineno = near.lineno
    return nodes.Call(nodes.EnvironmentAttribute(name, lineno=lineno), arguments, [], None, None, lineno=lineno)


def _raise_exception(message: object) -> None:
    raise jinja2.TemplateError(str(message))


class _GenerationTag(Extension):
    """`{% generation %}` marks what a model is trained on; in rendering it is transparent."""

    tags = {"generation"}  # noqa: RUF012 -- the base class declares it so

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        next(parser.stream)
        return list(parser.parse_statements(("name:endgeneration",), drop_needle=True))
