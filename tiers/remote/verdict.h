// What a server's reply means for the command that it answers, and waiting before the next try.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tiers/remote/cluster.h"
#include "tiers/remote/node.h"
#include "tiers/remote/reply.h"

namespace parkade::remote {

struct Verdict {
  enum class Kind {
    kFinal,     // the caller's
    kRedirect,  // ask `to`
    kLater,     // ask again, whoever has the key then
    kDenied,
  };
  Kind kind = Kind::kFinal;
  std::shared_ptr<Node> to;
  bool asking = false;  // after the word ASKING
};

// Tells `cluster` what it learns from the reply; reading its map may be part of that.
Verdict Judge(const Reply& reply, const std::shared_ptr<Node>& from, Cluster* cluster,
              absl::Time deadline);

// Between tries. One call's; one thread.
class Pauses {
 public:
  explicit Pauses(absl::Time deadline) : deadline_(deadline) {}

  // Before another try, because a server said `reason` or `redirected` the command. A redirected
  // one goes on at once, unless it is sent in circles. Unavailable with the reason: no time is
  // left.
  absl::Status Before(bool redirected, const std::string& reason);

 private:
  const absl::Time deadline_;
  int redirects_ = 0;
  absl::Duration next_ = absl::Milliseconds(5);
};

}  // namespace parkade::remote
