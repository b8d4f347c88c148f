// llama.cpp's own parser of answers, line by line: reads JSON objects on stdin, writes what it made of each on stdout.
//
// A line in:  {"template": TEXT, "tools": [...], "text": TEXT, "bos": TEXT, "eos": TEXT, "kwargs": {...},
//              "parallel": BOOL, "reasoning": "auto"|"none", "tool_choice": "auto"|"required"|"none"}
// A line out: {"format", "opening", "message": {content, reasoning_content, tool_calls: [{name, arguments, id}]}},
//             with "error" in place of the message where the parser refused the text, and alone where the template failed
#include "chat.h"
#include "log.h"

#include <exception>
#include <iostream>
#include <map>
#include <memory>
#include <string>

namespace {

struct prepared {
    common_chat_params params;
    common_peg_arena   parser;
};

std::string text_of(const common_json & line, const char * key, const std::string & otherwise) {
    return line.contains(key) ? line.at(key).get<std::string>() : otherwise;
}

prepared prepare(const common_json & line) {
    auto templates = common_chat_templates_init(nullptr, line.at("template").get<std::string>(),
                                                text_of(line, "bos", ""), text_of(line, "eos", ""));
    common_chat_templates_inputs inputs;
    common_chat_msg user;
    user.role    = "user";
    user.content = "Hey there!";
    inputs.messages            = { user };
    inputs.tools               = common_chat_tools_parse_oaicompat(line.at("tools"));
    inputs.tool_choice         = common_chat_tool_choice_parse_oaicompat(text_of(line, "tool_choice", "auto"));
    inputs.parallel_tool_calls = !line.contains("parallel") || line.at("parallel").get<bool>();
    inputs.reasoning_format    = common_reasoning_format_from_name(text_of(line, "reasoning", "auto"));
    if (line.contains("kwargs")) {
        for (const auto & item : line.at("kwargs").items()) {
            inputs.chat_template_kwargs[item.key()] = item.value().dump();
            if (item.key() == "enable_thinking") {
                inputs.enable_thinking = item.value().get<bool>();
            }
        }
    }
    prepared made;
    made.params = common_chat_templates_apply(templates.get(), inputs);
    if (!made.params.parser.empty()) {
        made.parser.load(made.params.parser);
    }
    return made;
}

common_json message_of(const prepared & made, const std::string & text) {
    common_chat_parser_params params(made.params);
    const auto message = common_chat_peg_parse(made.parser, text, false, params);
    auto       calls   = common_json::array();
    for (const auto & call : message.tool_calls) {
        common_json one;
        one["name"]      = call.name;
        one["arguments"] = call.arguments;
        one["id"]        = call.id;
        calls.push_back(one);
    }
    common_json said;
    said["content"]           = message.content;
    said["reasoning_content"] = message.reasoning_content;
    said["tool_calls"]        = calls;
    return said;
}

common_json judge(const std::string & text) {
    const auto  line = common_json::parse(text);
    const auto  made = prepare(line);
    common_json out;
    out["format"]  = common_chat_format_name(made.params.format);
    out["opening"] = made.params.generation_prompt;
    try {
        out["message"] = message_of(made, line.at("text").get<std::string>());
    } catch (const std::exception & error) {
        out["error"] = std::string(error.what());
    }
    return out;
}

}  // namespace

int main() {
    common_log_pause(common_log_main());
    std::string line;
    while (std::getline(std::cin, line)) {
        common_json out;
        try {
            out = judge(line);
        } catch (const std::exception & error) {
            out          = common_json();
            out["error"] = std::string(error.what());
        }
        std::cout << out.dump() << std::endl;
    }
}
