#include "tiers/remote/request.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace parkade::remote {

void Request::AddText(std::string_view text) {
  if (pieces_.empty() || pieces_.back().bytes != nullptr) pieces_.push_back({nullptr, 0});
  pieces_.back().size += text.size();
  text_.append(text);
}

void Request::Add(absl::Span<const std::string_view> words) {
  AddText(absl::StrCat("*", words.size(), "\r\n"));
  for (const std::string_view word : words) {
    AddText(absl::StrCat("$", word.size(), "\r\n"));
    if (word.size() < kReferenced) {
      AddText(word);
    } else {
      pieces_.push_back({word.data(), word.size()});
    }
    AddText("\r\n");
  }
}

void Request::Clear() {
  text_.clear();
  pieces_.clear();
  first_ = offset_ = text_at_ = 0;
}

std::size_t Request::Next(iovec* pieces, std::size_t most) const {
  std::size_t text = text_at_;
  std::size_t offset = offset_;
  std::size_t count = 0;
  for (std::size_t i = first_; i < pieces_.size() && count < most; ++i) {
    const Piece& piece = pieces_[i];
    const char* bytes = piece.bytes != nullptr ? piece.bytes : text_.data() + text;
    // writev doesn't write.
    pieces[count++] = {const_cast<char*>(bytes + offset), piece.size - offset};
    if (piece.bytes == nullptr) text += piece.size;
    offset = 0;
  }
  return count;
}

void Request::Sent(std::size_t bytes) {
  while (first_ < pieces_.size()) {
    const Piece& piece = pieces_[first_];
    const std::size_t step = std::min(bytes, piece.size - offset_);
    offset_ += step;
    bytes -= step;
    if (offset_ < piece.size) return;
    if (piece.bytes == nullptr) text_at_ += piece.size;
    offset_ = 0;
    ++first_;
  }
}

}  // namespace parkade::remote
