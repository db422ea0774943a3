// What `parkade --help` and `parkade help COMMAND` print.
#pragma once

#include <string>
#include <string_view>

namespace parkade {

// `topic` is a command's name; empty: all commands. Lines of at most 100 columns.
std::string CliHelp(std::string_view topic);

// Words of `text` in lines of at most `columns` (0: 100), each behind `indent`, which counts.
std::string CliParagraph(std::string_view text, std::string_view indent, std::size_t columns);

}  // namespace parkade
