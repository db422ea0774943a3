// What a Redis server answers, and the parser (hiredis') that makes it from bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

struct redisReader;

namespace parkade::remote {

struct Reply {
  enum class Kind { kNil, kStatus, kInteger, kBytes, kArray, kError };
  Kind kind = Kind::kNil;
  std::string bytes;         // of kStatus, kBytes and kError (its first word is a code: "OOM ...")
  std::int64_t integer = 0;  // of kInteger
  std::vector<Reply> elements;  // of kArray
};

// One thread at a time.
class ReplyReader {
 public:
  ReplyReader();
  ~ReplyReader();
  ReplyReader(const ReplyReader&) = delete;
  ReplyReader& operator=(const ReplyReader&) = delete;

  // Copies `bytes`. An error (Internal: not the protocol, or more elements than any answer to us
  // has) stays.
  absl::Status Feed(std::string_view bytes);
  // The next whole reply, nothing if more bytes are needed.
  absl::StatusOr<std::optional<Reply>> Next();
  // No bytes wait that no reply was made of.
  bool empty() const;

 private:
  struct Free {
    void operator()(redisReader* reader) const;
  };
  std::unique_ptr<redisReader, Free> reader_;
};

}  // namespace parkade::remote
