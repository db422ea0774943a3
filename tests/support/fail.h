// What a test or a benchmark can't go on without: the exception fails the one and ends the other.
#pragma once

#include <stdexcept>
#include <string>

namespace parkade::test {

[[noreturn]] inline void Fail(const std::string& what) { throw std::runtime_error(what); }

}  // namespace parkade::test
