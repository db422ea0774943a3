// Shell completion, from the command table.
#pragma once

#include <string>
#include <string_view>

namespace parkade {

// The script for "bash", "zsh" or "fish"; empty for another shell. It offers commands, the options
// of the command that stands on the line, their values where they are known, files and folders. It
// asks no server.
std::string CliCompletion(std::string_view shell);

}  // namespace parkade
