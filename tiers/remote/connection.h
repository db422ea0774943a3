// Exchanges over one connection: requests out, replies in, in order.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "tiers/remote/reply.h"
#include "tiers/remote/request.h"
#include "tiers/remote/stream.h"

namespace parkade::remote {

struct Traffic {
  std::atomic<std::uint64_t> bytes_in{0};   // received
  std::atomic<std::uint64_t> bytes_out{0};  // sent
};

// Where a value goes, and until when.
struct ValueTarget {
  absl::Time first_byte;  // for sending and for the reply's first line
  // `size` bytes that stay until the call returns; null: this value is not wanted. Called at most
  // once.
  std::function<char*(std::size_t size)> allocate;
  std::function<absl::Time(std::size_t size)> deadline_after;  // for all of it
};

// One exchange at a time, one thread at a time. A connection whose exchange failed or was left in
// the middle is not usable() any more.
class Connection {
 public:
  // `traffic` outlives it.
  Connection(std::unique_ptr<Stream> stream, Traffic* traffic);

  // Begins an exchange: `request` has as many commands as `replies` says, and at least one.
  void Start(Request request, std::size_t replies);

  // Waits for all exchanges begun on `connections`, at most until `deadline`; goes on with the
  // others when one fails. One status each: Unavailable, DeadlineExceeded, Internal (not Redis).
  static std::vector<absl::Status> Finish(absl::Span<Connection* const> connections,
                                          absl::Time deadline);
  // Of the last finished exchange.
  std::vector<Reply> TakeReplies() { return std::move(replies_); }

  // Finishes an exchange of one GET, receiving straight into the target's memory. Nothing: the
  // value is there; else the server's reply in its place, nil or an error. ResourceExhausted: it
  // was not wanted. Others as in Finish; what was received before an error stays in the target's
  // memory.
  absl::StatusOr<std::optional<Reply>> FinishValue(const ValueTarget& target);

  bool usable() const { return !busy_; }
  // Whether it can still be used after it lay idle. Costs a system call.
  bool Quiet() { return !busy_ && stream_->Quiet(); }

 private:
  // Moves what moves without waiting; true: the exchange is over.
  absl::StatusOr<bool> Advance();
  absl::Status Send();
  absl::StatusOr<std::size_t> Read(char* to, std::size_t size);
  absl::Status Take(std::string_view bytes);
  absl::Status TakeReady();
  absl::StatusOr<std::string_view> ReadFirstLine(char* buffer, std::size_t size,
                                                 absl::Time deadline, std::size_t* received);
  absl::StatusOr<std::optional<Reply>> ReadOrdinary(std::string_view received, absl::Time deadline);
  absl::Status ReadValue(std::string_view received, std::size_t size, const ValueTarget& target);
  absl::Status ReadExactly(char* to, std::size_t size, absl::Time deadline);
  short events() const;

  const std::unique_ptr<Stream> stream_;
  Traffic* const traffic_;
  ReplyReader reader_;
  Request request_;
  std::vector<Reply> replies_;
  std::size_t expected_ = 0;
  bool busy_ = false;  // an exchange is not over
};

}  // namespace parkade::remote
