// Names to addresses with a deadline, which the system's resolver does not know.
#pragma once

#include <sys/socket.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "tiers/remote/url.h"

namespace parkade::remote {

struct SocketAddress {
  sockaddr_storage address = {};
  socklen_t size = 0;
  int family() const { return address.ss_family; }
};

// Thread safe.
class Resolver {
 public:
  Resolver();

  // At least one address. A numeric one costs nothing; a name is looked up by a thread that goes on
  // by itself past the deadline, and whoever asks for the same name meanwhile waits for that one.
  // Unavailable: there is no such name, or no answer; DeadlineExceeded.
  absl::StatusOr<std::vector<SocketAddress>> Resolve(const Endpoint& endpoint, absl::Time deadline);

 private:
  struct Shared;
  // Threads outlive this object.
  std::shared_ptr<Shared> shared_;
};

}  // namespace parkade::remote
