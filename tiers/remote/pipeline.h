// Many commands, each at its node, all nodes at once.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "tiers/remote/cluster.h"
#include "tiers/remote/node.h"
#include "tiers/remote/redis.h"
#include "tiers/remote/reply.h"
#include "tiers/remote/verdict.h"

namespace parkade::remote {

// One call of Redis::Run. One thread.
class Pipeline {
 public:
  Pipeline(Cluster* cluster, absl::Span<const Command> commands, absl::Time deadline)
      : cluster_(cluster), commands_(commands), deadline_(deadline), pauses_(deadline) {}

  absl::StatusOr<std::vector<Reply>> Run();

 private:
  // A command that has no final reply yet.
  struct Open {
    std::size_t index = 0;
    std::shared_ptr<Node> node;  // null: who has the key
    bool asking = false;
  };
  // What one node is asked in a round.
  struct Share {
    std::shared_ptr<Node> node;
    std::vector<Open> commands;
  };

  // All of `open_` once; what is to be asked again is `open_` then.
  absl::Status Round();
  absl::Status Exchange(std::map<std::string, Share>* shares, std::vector<std::vector<Reply>>* all);
  absl::Status Sort(Share* share, std::vector<Reply> replies);
  static Request MakeRequest(absl::Span<const Command> commands, const Share& share,
                             std::size_t* replies);

  Cluster* const cluster_;
  const absl::Span<const Command> commands_;
  const absl::Time deadline_;
  Pauses pauses_;
  std::vector<Reply> replies_;
  std::vector<Open> open_;
  bool only_redirects_ = true;  // of this round's unfinished ones
  std::string reason_;          // a server's, for one of them
};

}  // namespace parkade::remote
