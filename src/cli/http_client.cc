#include "src/cli/http_client.h"

#include <curl/curl.h>

#include <cstdint>
#include <memory>

#include "absl/strings/str_cat.h"

namespace parkade {
namespace {

constexpr std::size_t kMostReplyBytes = 64 << 20;

// What libcurl calls for each piece of the body; less than `bytes` stops the transfer.
std::size_t Append(char* data, std::size_t size, std::size_t count, void* body) {
  auto* text = static_cast<std::string*>(body);
  const std::size_t bytes = size * count;
  if (text->size() + bytes > kMostReplyBytes) return 0;
  text->append(data, bytes);
  return bytes;
}

struct EasyCleanup {
  void operator()(CURL* easy) const { curl_easy_cleanup(easy); }
};

struct ListCleanup {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};

absl::StatusOr<HttpReply> Ask(const std::string& base_url, const std::string& api_key,
                              const HttpRequest& request) {
  const std::unique_ptr<CURL, EasyCleanup> easy(curl_easy_init());
  if (easy == nullptr) return absl::InternalError("libcurl can't be used");
  std::unique_ptr<curl_slist, ListCleanup> headers(
      curl_slist_append(nullptr, "Content-Type: application/json"));
  if (!api_key.empty() && headers != nullptr) {
    // Appends in place: the list's head stays.
    curl_slist_append(headers.get(), absl::StrCat("Authorization: Bearer ", api_key).c_str());
  }
  const std::string url = base_url + request.path;
  HttpReply reply;
  char error[CURL_ERROR_SIZE] = "";
  curl_easy_setopt(easy.get(), CURLOPT_URL, url.c_str());
  curl_easy_setopt(easy.get(), CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(easy.get(), CURLOPT_PROXY, "");
  curl_easy_setopt(easy.get(), CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy.get(), CURLOPT_CONNECTTIMEOUT, 5L);
  curl_easy_setopt(easy.get(), CURLOPT_TIMEOUT, 30L);
  curl_easy_setopt(easy.get(), CURLOPT_HTTPHEADER, headers.get());
  if (!request.body.empty()) {
    curl_easy_setopt(easy.get(), CURLOPT_POSTFIELDSIZE, static_cast<long>(request.body.size()));
    curl_easy_setopt(easy.get(), CURLOPT_POSTFIELDS, request.body.c_str());
  }
  curl_easy_setopt(easy.get(), CURLOPT_CUSTOMREQUEST, request.method.c_str());
  curl_easy_setopt(easy.get(), CURLOPT_WRITEFUNCTION, &Append);
  curl_easy_setopt(easy.get(), CURLOPT_WRITEDATA, &reply.body);
  curl_easy_setopt(easy.get(), CURLOPT_ERRORBUFFER, error);
  const CURLcode code = curl_easy_perform(easy.get());
  if (code != CURLE_OK) {
    return absl::UnavailableError(absl::StrCat(
        "no answer from ", base_url, ": ", error[0] != '\0' ? error : curl_easy_strerror(code)));
  }
  curl_easy_getinfo(easy.get(), CURLINFO_RESPONSE_CODE, &reply.status);
  return reply;
}

}  // namespace

HttpCall MakeHttpCall(const std::string& base_url, const std::string& api_key) {
  return
      [base_url, api_key](const HttpRequest& request) { return Ask(base_url, api_key, request); };
}

}  // namespace parkade
