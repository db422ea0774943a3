#include "tiers/remote/tls.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>

#include "absl/strings/str_cat.h"

namespace parkade::remote {
namespace {

bool IsAddress(const std::string& host) {
  in6_addr parsed;
  return ::inet_pton(AF_INET, host.c_str(), &parsed) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), &parsed) == 1;
}

sigset_t PipeSignal() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGPIPE);
  return set;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TlsTrust>> TlsTrust::Create(const std::string& ca_file) {
  ::ERR_clear_error();
  SSL_CTX* const context = ::SSL_CTX_new(::TLS_client_method());
  if (context == nullptr) return absl::InternalError("TLS can't be set up");
  std::unique_ptr<TlsTrust> trust(new TlsTrust(context));
  ::SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  ::SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  // A large value goes out record by record, from wherever its rest lies.
  ::SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  if (ca_file.empty()) {
    if (::SSL_CTX_set_default_verify_paths(context) != 1) {
      return absl::InternalError("the system's trusted certificates can't be read");
    }
  } else if (::SSL_CTX_load_verify_file(context, ca_file.c_str()) != 1) {
    ::ERR_clear_error();
    return absl::InvalidArgumentError(
        absl::StrCat(ca_file, " has no certificates that can be read"));
  }
  return trust;
}

TlsTrust::~TlsTrust() { ::SSL_CTX_free(context_); }

ssl_st* TlsTrust::NewSession(const std::string& host) const {
  SSL* const session = ::SSL_new(context_);
  if (session == nullptr) return nullptr;
  const bool set = IsAddress(host) ? ::X509_VERIFY_PARAM_set1_ip_asc(::SSL_get0_param(session),
                                                                     host.c_str()) == 1
                                   : ::SSL_set1_host(session, host.c_str()) == 1 &&
                                         ::SSL_set_tlsext_host_name(session, host.c_str()) == 1;
  if (set) return session;
  ::SSL_free(session);
  return nullptr;
}

absl::Status HandshakeError(const ssl_st* session) {
  const unsigned long error = ::ERR_peek_last_error();
  const long verified = ::SSL_get_verify_result(session);
  ::ERR_clear_error();
  if (verified != X509_V_OK) {
    return absl::PermissionDeniedError(absl::StrCat("the server's certificate is not trusted: ",
                                                    ::X509_verify_cert_error_string(verified)));
  }
  const char* reason = error != 0 ? ::ERR_reason_error_string(error) : nullptr;
  return absl::UnavailableError(
      absl::StrCat("no TLS: ", reason != nullptr ? reason : "the server closed the connection"));
}

NoPipeSignal::NoPipeSignal(bool needed) {
  if (!needed) return;
  const sigset_t pipe_signal = PipeSignal();
  sigset_t before;
  ::pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);
  blocked_ = ::sigismember(&before, SIGPIPE) == 0;
}

NoPipeSignal::~NoPipeSignal() {
  if (!blocked_) return;
  const sigset_t pipe_signal = PipeSignal();
  const timespec now = {};
  // Takes what came meanwhile, if anything did.
  while (::sigtimedwait(&pipe_signal, nullptr, &now) == SIGPIPE) {
  }
  ::pthread_sigmask(SIG_UNBLOCK, &pipe_signal, nullptr);
}

}  // namespace parkade::remote
