// What is trusted, and one TLS session.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

struct ssl_ctx_st;
struct ssl_st;

namespace parkade::remote {

// Thread safe; outlives its sessions.
class TlsTrust {
 public:
  // `ca_file` (PEM) says whose certificates are trusted; empty: the system's, or what
  // SSL_CERT_FILE and SSL_CERT_DIR name. InvalidArgument with one line: the file can't be read.
  static absl::StatusOr<std::unique_ptr<TlsTrust>> Create(const std::string& ca_file);
  ~TlsTrust();
  TlsTrust(const TlsTrust&) = delete;
  TlsTrust& operator=(const TlsTrust&) = delete;

  // A client's session that accepts only a certificate for `host`, a name or an address. The caller
  // frees it (SSL_free). Null: no memory.
  ssl_st* NewSession(const std::string& host) const;

 private:
  explicit TlsTrust(ssl_ctx_st* context) : context_(context) {}
  ssl_ctx_st* const context_;
};

// Why a handshake failed. PermissionDenied: the certificate is not one to trust; else Unavailable.
absl::Status HandshakeError(const ssl_st* session);

// While it lives, what this thread writes to a closed connection raises no SIGPIPE: OpenSSL has no
// other way to ask for that. Costs three system calls.
class NoPipeSignal {
 public:
  explicit NoPipeSignal(bool needed);
  ~NoPipeSignal();
  NoPipeSignal(const NoPipeSignal&) = delete;
  NoPipeSignal& operator=(const NoPipeSignal&) = delete;

 private:
  bool blocked_ = false;  // by us
};

}  // namespace parkade::remote
