#include "tiers/remote/url.h"

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace parkade::remote {
namespace {

constexpr std::string_view kFile = "@file:";
constexpr std::size_t kMostPrefix = 64;

absl::Status Wrong(const std::string& what) {
  return absl::InvalidArgumentError(
      absl::StrCat("the remote's URL ", what,
                   "; it is redis://[user:password@]host:port[,host:port...][/prefix]"
                   " or the same with rediss://"));
}

bool ConsumePrefix(std::string_view* text, std::string_view prefix) {
  if (text->substr(0, prefix.size()) != prefix) return false;
  text->remove_prefix(prefix.size());
  return true;
}

int HexDigit(char c) {
  if (absl::ascii_isdigit(static_cast<unsigned char>(c))) return c - '0';
  const char lower = absl::ascii_tolower(static_cast<unsigned char>(c));
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

// False: a '%' without two hexadecimal digits.
bool PercentDecode(std::string_view text, std::string* decoded) {
  decoded->clear();
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded->push_back(text[i]);
      continue;
    }
    if (i + 2 >= text.size()) return false;
    const int high = HexDigit(text[i + 1]);
    const int low = HexDigit(text[i + 2]);
    if (high < 0 || low < 0) return false;
    decoded->push_back(static_cast<char>(high * 16 + low));
    i += 2;
  }
  return true;
}

absl::Status ParseUser(std::string_view text, RemoteUrl* url) {
  const bool only_file = text.substr(0, kFile.size()) == kFile;
  const std::size_t colon = only_file ? 0 : text.find(':');
  if (colon == std::string_view::npos) return Wrong("has a user without ':' and a password");
  if (!PercentDecode(text.substr(0, colon), &url->user)) {
    return Wrong("has a '%' in the user that is not followed by two hexadecimal digits");
  }
  std::string_view password = only_file ? text : text.substr(colon + 1);
  if (ConsumePrefix(&password, kFile)) {
    if (password.empty()) return Wrong("has no path after '@file:'");
    url->password_file = std::string(password);
    return absl::OkStatus();
  }
  if (!PercentDecode(password, &url->password)) {
    return Wrong("has a '%' in the password that is not followed by two hexadecimal digits");
  }
  if (url->password.empty()) return Wrong("has an empty password");
  return absl::OkStatus();
}

bool IsName(std::string_view host) {
  for (const unsigned char c : host) {
    if (!absl::ascii_isalnum(c) && c != '.' && c != '-' && c != '_') return false;
  }
  return !host.empty();
}

bool IsAddress6(std::string_view host) {
  for (const unsigned char c : host) {
    // After '%' comes the name of an interface.
    if (!absl::ascii_isalnum(c) && c != ':' && c != '.' && c != '%') return false;
  }
  return host.find(':') != std::string_view::npos;
}

absl::StatusOr<Endpoint> ParseEndpoint(std::string_view text, std::size_t number) {
  const std::string place = absl::StrCat("host ", number);
  Endpoint endpoint;
  std::string_view port;
  bool has_port = false;
  if (!text.empty() && text.front() == '[') {
    const std::size_t end = text.find(']');
    if (end == std::string_view::npos || !IsAddress6(text.substr(1, end - 1))) {
      return Wrong(absl::StrCat("has no IPv6 address in the brackets of ", place));
    }
    endpoint.host = std::string(text.substr(1, end - 1));
    port = text.substr(end + 1);
    has_port = ConsumePrefix(&port, ":");
    if (!has_port && !port.empty()) return Wrong(absl::StrCat("has text after the ']' of ", place));
  } else {
    const std::size_t colon = text.find(':');
    has_port = colon != std::string_view::npos;
    if (has_port) port = text.substr(colon + 1);
    endpoint.host = std::string(text.substr(0, colon));
    if (!IsName(endpoint.host)) {
      return Wrong(absl::StrCat("has no name or address as ", place));
    }
  }
  const bool digits = port.size() <= 5 && port.find_first_not_of("0123456789") == port.npos;
  if (has_port &&
      (!digits || !absl::SimpleAtoi(absl::string_view(port.data(), port.size()), &endpoint.port) ||
       endpoint.port < 1 || endpoint.port > 65535)) {
    return Wrong(absl::StrCat("has no port from 1 to 65535 after ", place));
  }
  return endpoint;
}

absl::Status ParsePrefix(std::string_view text, RemoteUrl* url) {
  if (!text.empty() && text.back() == '/') text.remove_suffix(1);
  if (text.empty()) return absl::OkStatus();
  bool fits = text.size() <= kMostPrefix;
  for (const unsigned char c : text) {
    fits = fits && (absl::ascii_isalnum(c) || std::string_view("._-:/").find(c) != text.npos);
  }
  if (!fits) return Wrong("has a prefix that is not 1 to 64 of letters, digits and '._-:/'");
  url->prefix = std::string(text);
  return absl::OkStatus();
}

}  // namespace

std::string Endpoint::ToString() const {
  const bool brackets = host.find(':') != std::string::npos;
  return brackets ? absl::StrCat("[", host, "]:", port) : absl::StrCat(host, ":", port);
}

std::string RemoteUrl::ToString() const {
  return absl::StrCat(tls ? "rediss://" : "redis://",
                      absl::StrJoin(seeds, ",",
                                    [](std::string* out, const Endpoint& seed) {
                                      absl::StrAppend(out, seed.ToString());
                                    }),
                      "/", prefix);
}

absl::StatusOr<RemoteUrl> ParseRemoteUrl(std::string_view text) {
  RemoteUrl url;
  if (ConsumePrefix(&text, "rediss://")) {
    url.tls = true;
  } else if (!ConsumePrefix(&text, "redis://")) {
    return Wrong("does not begin with redis:// or rediss://");
  }
  const std::size_t at = text.rfind('@');
  if (at != std::string_view::npos) {
    const absl::Status status = ParseUser(text.substr(0, at), &url);
    if (!status.ok()) return status;
    text.remove_prefix(at + 1);
  }
  const std::size_t slash = text.find('/');
  if (slash != std::string_view::npos) {
    const absl::Status status = ParsePrefix(text.substr(slash + 1), &url);
    if (!status.ok()) return status;
  }
  const std::string_view hosts = text.substr(0, slash);
  for (const auto& host : absl::StrSplit(absl::string_view(hosts.data(), hosts.size()), ',')) {
    absl::StatusOr<Endpoint> seed = ParseEndpoint({host.data(), host.size()}, url.seeds.size() + 1);
    if (!seed.ok()) return seed.status();
    url.seeds.push_back(*std::move(seed));
  }
  return url;
}

}  // namespace parkade::remote
