// Commands as the bytes that go to a server.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"

namespace parkade::remote {

// Small words are copied, large ones (kReferenced bytes and more) are sent from where they are and
// must stay there. One thread at a time.
class Request {
 public:
  static constexpr std::size_t kReferenced = 16 << 10;

  void Add(absl::Span<const std::string_view> words);
  void Clear();

  // The next bytes to send, at most `most` pieces; returns their number, 0: all is sent.
  std::size_t Next(iovec* pieces, std::size_t most) const;
  void Sent(std::size_t bytes);
  bool sent() const { return first_ == pieces_.size(); }

 private:
  struct Piece {
    const char* bytes;  // null: the next `size` bytes of text_
    std::size_t size;
  };
  void AddText(std::string_view text);

  std::string text_;
  std::vector<Piece> pieces_;
  // What is sent: all pieces before `first_`, `offset_` bytes of that one, `text_at_` is where its
  // text (if it has some) begins.
  std::size_t first_ = 0;
  std::size_t offset_ = 0;
  std::size_t text_at_ = 0;
};

}  // namespace parkade::remote
