#include "tiers/remote/resolver.h"

#include <netdb.h>
#include <netinet/in.h>

#include <cstring>
#include <system_error>
#include <thread>

#include "absl/strings/str_cat.h"

namespace parkade::remote {
namespace {

using Addresses = absl::StatusOr<std::vector<SocketAddress>>;

Addresses Ask(const std::string& host, int flags) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (error != 0) {
    return absl::UnavailableError(absl::StrCat("no address: ", ::gai_strerror(error)));
  }
  std::vector<SocketAddress> addresses;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    SocketAddress address;
    if (one->ai_addrlen > sizeof(address.address)) continue;
    std::memcpy(&address.address, one->ai_addr, one->ai_addrlen);
    address.size = one->ai_addrlen;
    addresses.push_back(address);
  }
  ::freeaddrinfo(found);
  if (addresses.empty()) return absl::UnavailableError("no address");
  return addresses;
}

Addresses WithPort(Addresses addresses, int port) {
  if (!addresses.ok()) return addresses;
  for (SocketAddress& one : *addresses) {
    const auto network_port = htons(static_cast<std::uint16_t>(port));
    if (one.family() == AF_INET6) {
      reinterpret_cast<sockaddr_in6*>(&one.address)->sin6_port = network_port;
    } else {
      reinterpret_cast<sockaddr_in*>(&one.address)->sin_port = network_port;
    }
  }
  return addresses;
}

}  // namespace

struct Resolver::Shared {
  struct Lookup {
    bool done = false;
    Addresses addresses = absl::UnavailableError("not asked yet");
  };
  absl::Mutex mutex;
  // Running ones; those who wait keep theirs after it was taken out.
  std::map<std::string, std::shared_ptr<Lookup>> lookups ABSL_GUARDED_BY(mutex);
};

Resolver::Resolver() : shared_(std::make_shared<Shared>()) {}

absl::StatusOr<std::vector<SocketAddress>> Resolver::Resolve(const Endpoint& endpoint,
                                                             absl::Time deadline) {
  Addresses numeric = Ask(endpoint.host, AI_NUMERICHOST);
  if (numeric.ok()) return WithPort(std::move(numeric), endpoint.port);
  std::shared_ptr<Shared> shared = shared_;
  absl::MutexLock lock(&shared->mutex);
  std::shared_ptr<Shared::Lookup>& running = shared->lookups[endpoint.host];
  if (running == nullptr) {
    running = std::make_shared<Shared::Lookup>();
    try {
      std::thread([shared, host = endpoint.host] {
        Addresses addresses = Ask(host, 0);
        absl::MutexLock lock(&shared->mutex);
        const auto it = shared->lookups.find(host);
        it->second->addresses = std::move(addresses);
        it->second->done = true;
        shared->lookups.erase(it);
      }).detach();
    } catch (const std::system_error&) {
      // swallow: told as a status
      shared->lookups.erase(endpoint.host);
      return absl::UnavailableError("no thread to look the name up");
    }
  }
  const std::shared_ptr<Shared::Lookup> lookup = running;
  if (!shared->mutex.AwaitWithDeadline(absl::Condition(&lookup->done), deadline)) {
    return absl::DeadlineExceededError("the name was not found within the deadline");
  }
  return WithPort(lookup->addresses, endpoint.port);
}

}  // namespace parkade::remote
