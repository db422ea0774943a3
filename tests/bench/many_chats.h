// A large made-up library of conversations: what a disk tier's catalogue says about it, and a
// directory that holds that catalogue with segment files of the right names and sizes but without
// bytes in them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "parkade/identity.h"
#include "parkade/image.h"

namespace parkade::bench {

// Half of the conversations are forks: each shares its first tokens with one of a few roots.
// Everything follows from the seed; nothing is kept. Thread compatible.
class ManyChats {
 public:
  ManyChats(std::uint32_t conversations, std::uint32_t tokens, std::uint32_t parks,
            std::uint64_t seed);

  std::uint32_t conversations() const { return conversations_; }
  std::uint32_t parks() const { return parks_; }  // of each conversation
  Digest128 identity() const;
  StateLayout const& layout() const { return layout_; }

  // All tokens of a conversation, the shared ones included.
  std::vector<Token> Tokens(std::uint32_t conversation) const;
  // Its parks in order, for a directory with this secret. Checksums are made up.
  std::vector<ParkRecord> Parks(std::uint32_t conversation, const Digest128& secret) const;

  // Whether segments have their heads, from which a catalogue can be rebuilt.
  enum class Segments { kEmpty, kHeads };
  // Makes the directory, which must not be there yet.
  absl::Status WriteDirectory(const std::string& directory, Segments segments) const;
  // The same by a process that is killed right after its last write: RocksDB's log and lock are
  // left as they are. To be called while this program has one thread.
  absl::Status WriteDirectoryAndDie(const std::string& directory) const;

 private:
  bool IsFork(std::uint32_t conversation) const;
  std::uint32_t RootOf(std::uint32_t conversation) const;
  ConversationId IdOf(std::uint32_t conversation) const;
  absl::Status Write(const std::string& directory, Segments segments,
                     const std::function<void()>& before_close) const;
  absl::Status WriteParks(const std::string& directory, const Digest128& secret, Segments segments,
                          const std::function<void()>& before_close) const;

  const std::uint32_t conversations_;
  const std::uint32_t tokens_;
  const std::uint32_t parks_;
  const std::uint64_t seed_;
  StateLayout layout_;
  StageMap stages_;
};

}  // namespace parkade::bench
