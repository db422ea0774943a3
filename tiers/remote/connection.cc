#include "tiers/remote/connection.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace parkade::remote {
namespace {

constexpr std::size_t kReadBytes = 16 << 10;
constexpr std::size_t kPiecesAtOnce = 64;
// '$', at most 20 digits, CR and LF.
constexpr std::size_t kLongestValueLine = 32;
constexpr std::size_t kWakeBytes = 1 << 20;

absl::Status NotRedis(const char* what) {
  return absl::InternalError(absl::StrCat("the answer is not Redis': ", what));
}

}  // namespace

Connection::Connection(std::unique_ptr<Stream> stream, Traffic* traffic)
    : stream_(std::move(stream)), traffic_(traffic) {}

void Connection::Start(Request request, std::size_t replies) {
  request_ = std::move(request);
  replies_.clear();
  replies_.reserve(replies);
  expected_ = replies;
  busy_ = true;
}

short Connection::events() const {
  // Replies are taken while commands are still being sent: neither side can block the other.
  const int sending = request_.sent() ? 0 : stream_->write_events();
  return static_cast<short>(sending | stream_->read_events());
}

absl::Status Connection::Send() {
  while (!request_.sent()) {
    iovec pieces[kPiecesAtOnce];
    const absl::StatusOr<std::size_t> sent =
        stream_->Write(pieces, request_.Next(pieces, kPiecesAtOnce));
    if (!sent.ok()) return sent.status();
    if (*sent == 0) return absl::OkStatus();
    traffic_->bytes_out.fetch_add(*sent, std::memory_order_relaxed);
    request_.Sent(*sent);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::size_t> Connection::Read(char* to, std::size_t size) {
  absl::StatusOr<std::size_t> got = stream_->Read(to, size);
  if (got.ok()) traffic_->bytes_in.fetch_add(*got, std::memory_order_relaxed);
  return got;
}

absl::Status Connection::Take(std::string_view bytes) {
  const absl::Status status = reader_.Feed(bytes);
  return status.ok() ? TakeReady() : status;
}

absl::Status Connection::TakeReady() {
  while (replies_.size() < expected_) {
    absl::StatusOr<std::optional<Reply>> reply = reader_.Next();
    if (!reply.ok()) return reply.status();
    if (!reply->has_value()) return absl::OkStatus();
    replies_.push_back(**std::move(reply));
  }
  if (!request_.sent()) {
    // A server that refuses something says so and hangs up.
    const Reply& last = replies_.back();
    if (last.kind == Reply::Kind::kError) return absl::UnavailableError(last.bytes);
    return NotRedis("it came before all was asked");
  }
  if (!reader_.empty()) return NotRedis("more than was asked for");
  request_.Clear();
  busy_ = false;
  return absl::OkStatus();
}

absl::StatusOr<bool> Connection::Advance() {
  absl::Status status = Send();
  // What a server says before it hangs up is worth more than that it did.
  while (busy_) {
    char buffer[kReadBytes];
    const absl::StatusOr<std::size_t> got = Read(buffer, sizeof(buffer));
    if (!got.ok()) return status.ok() ? got.status() : status;
    if (*got == 0) break;
    const absl::Status taken = Take({buffer, *got});
    if (!taken.ok()) return taken;
  }
  if (!status.ok()) return status;
  return !busy_;
}

std::vector<absl::Status> Connection::Finish(absl::Span<Connection* const> connections,
                                             absl::Time deadline) {
  std::vector<absl::Status> statuses(connections.size());
  std::vector<pollfd> files(connections.size());
  bool tls = false;
  std::size_t open = connections.size();
  for (std::size_t i = 0; i < connections.size(); ++i) {
    files[i] = {connections[i]->stream_->fd(), 0, POLLOUT};
    tls = tls || connections[i]->stream_->tls();
  }
  const NoPipeSignal no_signal(tls);
  while (true) {
    for (std::size_t i = 0; i < connections.size(); ++i) {
      if (files[i].fd < 0 || files[i].revents == 0) continue;
      const absl::StatusOr<bool> done = connections[i]->Advance();
      files[i].events = connections[i]->events();
      if (done.ok() && !*done) continue;
      statuses[i] = done.status();
      files[i].fd = -1;  // poll() passes over it
      --open;
    }
    if (open == 0) return statuses;
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) break;
    const timespec timeout = absl::ToTimespec(std::min(left, absl::Hours(1)));
    if (::ppoll(files.data(), files.size(), &timeout, nullptr) < 0) {
      for (pollfd& file : files) file.revents = 0;
      if (errno != EINTR) break;
    }
  }
  for (std::size_t i = 0; i < connections.size(); ++i) {
    if (files[i].fd >= 0) statuses[i] = absl::DeadlineExceededError("no answer in time");
  }
  return statuses;
}

// The reply's beginning: all that `buffer` has when its first line is whole or it is no value's.
absl::StatusOr<std::string_view> Connection::ReadFirstLine(char* buffer, std::size_t size,
                                                           absl::Time deadline,
                                                           std::size_t* received) {
  *received = 0;
  while (true) {
    absl::Status status = Send();
    if (!status.ok()) return status;
    const absl::StatusOr<std::size_t> got = Read(buffer + *received, size - *received);
    if (!got.ok()) return got.status();
    *received += *got;
    const std::string_view all(buffer, *received);
    if (!all.empty() && all[0] != '$') return all.substr(0, 0);
    const std::size_t end = all.find("\r\n");
    if (end != all.npos) return all.substr(0, end);
    if (all.size() >= kLongestValueLine) return NotRedis("a length without an end");
    if (*got > 0) continue;
    status = WaitFor(stream_->fd(), events(), deadline);
    if (!status.ok()) return status;
  }
}

absl::StatusOr<std::optional<Reply>> Connection::ReadOrdinary(std::string_view received,
                                                              absl::Time deadline) {
  absl::Status status = Take(received);
  if (!status.ok()) return status;
  if (busy_) {
    Connection* const self = this;
    status = Finish(absl::MakeConstSpan(&self, 1), deadline)[0];
    if (!status.ok()) return status;
  }
  return std::optional<Reply>(std::move(replies_[0]));
}

absl::Status Connection::ReadExactly(char* to, std::size_t size, absl::Time deadline) {
  std::size_t have = 0;
  while (have < size) {
    const absl::StatusOr<std::size_t> got = Read(to + have, size - have);
    if (!got.ok()) return got.status();
    have += *got;
    if (*got > 0) continue;
    stream_->WakeAt(std::min(size - have, kWakeBytes));
    const absl::Status status = WaitFor(stream_->fd(), stream_->read_events(), deadline);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Connection::ReadValue(std::string_view received, std::size_t size,
                                   const ValueTarget& target) {
  char* const memory = target.allocate(size);
  if (memory == nullptr && size > 0) {
    return absl::ResourceExhaustedError("the value was not wanted");
  }
  const absl::Time deadline = target.deadline_after(size);
  const std::size_t copied = std::min(received.size(), size);
  std::copy_n(received.data(), copied, memory);
  absl::Status status = ReadExactly(memory + copied, size - copied, deadline);
  if (!status.ok()) return status;
  received.remove_prefix(copied);
  char end[2];
  if (received.size() > sizeof(end)) return NotRedis("more than was asked for");
  std::copy_n(received.data(), received.size(), end);
  status = ReadExactly(end + received.size(), sizeof(end) - received.size(), deadline);
  if (!status.ok()) return status;
  if (end[0] != '\r' || end[1] != '\n') return NotRedis("a value without its end");
  stream_->WakeAt(1);
  request_.Clear();
  busy_ = false;
  return absl::OkStatus();
}

absl::StatusOr<std::optional<Reply>> Connection::FinishValue(const ValueTarget& target) {
  const NoPipeSignal no_signal(stream_->tls());
  char buffer[kReadBytes];
  std::size_t received = 0;
  const absl::StatusOr<std::string_view> line =
      ReadFirstLine(buffer, sizeof(buffer), target.first_byte, &received);
  if (!line.ok()) return line.status();
  const std::string_view all(buffer, received);
  if (line->empty() || *line == "$-1") return ReadOrdinary(all, target.first_byte);
  std::uint64_t size = 0;
  if (!absl::SimpleAtoi(absl::string_view(line->data() + 1, line->size() - 1), &size)) {
    return NotRedis("a length that is no number");
  }
  const absl::Status status = ReadValue(all.substr(line->size() + 2), size, target);
  if (!status.ok()) return status;
  return std::optional<Reply>();
}

}  // namespace parkade::remote
