#include "tiers/remote/verdict.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "absl/time/clock.h"

namespace parkade::remote {
namespace {

constexpr int kFreeRedirects = 4;
constexpr absl::Duration kLongestPause = absl::Milliseconds(100);

bool OneOf(std::string_view code, std::initializer_list<std::string_view> codes) {
  return std::find(codes.begin(), codes.end(), code) != codes.end();
}

}  // namespace

Verdict Judge(const Reply& reply, const std::shared_ptr<Node>& from, Cluster* cluster,
              absl::Time deadline) {
  if (reply.kind != Reply::Kind::kError) return {};
  const std::string_view error(reply.bytes);
  const std::string_view code = error.substr(0, error.find(' '));
  if (const std::optional<Redirect> redirect = ParseRedirect(error, from->endpoint())) {
    if (!redirect->ask) cluster->NoteMoved(*redirect, deadline);
    return {Verdict::Kind::kRedirect, cluster->NodeAt(redirect->to), redirect->ask};
  }
  if (OneOf(code, {"LOADING", "TRYAGAIN"})) return {Verdict::Kind::kLater, nullptr, false};
  if (OneOf(code, {"CLUSTERDOWN", "MASTERDOWN", "READONLY"})) {
    cluster->NoteFailure(from);
    return {Verdict::Kind::kLater, nullptr, false};
  }
  if (OneOf(code, {"NOAUTH", "WRONGPASS", "NOPERM"})) {
    return {Verdict::Kind::kDenied, nullptr, false};
  }
  return {};
}

absl::Status Pauses::Before(bool redirected, const std::string& reason) {
  const absl::Time now = absl::Now();
  if (redirected && ++redirects_ <= kFreeRedirects) {
    if (now < deadline_) return absl::OkStatus();
    return absl::UnavailableError(reason);
  }
  if (now + next_ >= deadline_) return absl::UnavailableError(reason);
  absl::SleepFor(next_);
  next_ = std::min(2 * next_, kLongestPause);
  return absl::OkStatus();
}

}  // namespace parkade::remote
