#include "tests/bench/server_process.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/bench/measure.h"

namespace parkade::bench {
namespace {

using nlohmann::json;

constexpr double kStartSeconds = 300;
constexpr double kDurableSeconds = 300;
constexpr long kRequestSeconds = 1800;
// What the server says when lookups and parks begin to count.
constexpr char kReadyLine[] = "the weights are known";

absl::StatusOr<std::string> Program(const char* name) {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string program = (self.parent_path() / name).string();
  if (::access(program.c_str(), X_OK) == 0) return program;
  return absl::NotFoundError(absl::StrCat(program, " is not built"));
}

absl::StatusOr<std::string> Model() {
  const char* given = std::getenv("PARKADE_MODEL");
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const std::string base = cache != nullptr ? cache : absl::StrCat(home ? home : "", "/.cache");
  const std::string model =
      given != nullptr ? given : base + "/parkade/models/gemma-3-270m-q4_k_m.gguf";
  if (::access(model.c_str(), R_OK) == 0) return model;
  return absl::NotFoundError(
      absl::StrCat(model, " is not there; ./config/run.sh --build-only gets it"));
}

absl::StatusOr<int> FreePort() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::UnavailableError(std::strerror(errno));
  const auto close_fd = absl::MakeCleanup([fd] { ::close(fd); });
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  if (::bind(fd, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return absl::UnavailableError(std::strerror(errno));
  }
  return ntohs(address.sin_port);
}

absl::StatusOr<pid_t> Spawn(const std::vector<std::string>& command, const std::string& log_file) {
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const int log = ::open(log_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (log < 0) return absl::UnavailableError(absl::StrCat(log_file, ": ", strerror(errno)));
  const auto close_log = absl::MakeCleanup([log] { ::close(log); });
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return absl::UnavailableError(strerror(errno));
  if (pid > 0) return pid;
  // The server must not outlive a bench that is killed.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() == parent && ::dup2(log, STDOUT_FILENO) >= 0 && ::dup2(log, STDERR_FILENO) >= 0) {
    ::execv(words[0], words.data());
  }
  ::_exit(127);
}

std::string FileText(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::size_t TakePiece(char* data, std::size_t size, std::size_t count, void* take) {
  (*static_cast<const std::function<void(std::string_view)>*>(take))({data, size * count});
  return size * count;
}

// Server-sent events of one completion, put together from pieces.
class EventReader {
 public:
  explicit EventReader(double begin) : begin_(begin) {}

  void Take(std::string_view piece) {
    buffer_.append(piece);
    for (std::size_t end = buffer_.find('\n'); end != std::string::npos; end = buffer_.find('\n')) {
      Line(buffer_.substr(0, end));
      buffer_.erase(0, end + 1);
    }
  }

  absl::StatusOr<Completion> Finish() {
    if (!complete_) {
      return absl::UnavailableError(
          absl::StrCat("the answer did not end: ", buffer_.substr(0, 300), error_.substr(0, 300)));
    }
    result_.total_s = NowSeconds() - begin_;
    if (result_.answer.size() > 1) {
      result_.decode_token_s =
          (last_token_ - first_token_) / static_cast<double>(result_.answer.size() - 1);
    }
    return result_;
  }

 private:
  void Line(const std::string& line) {
    if (line.rfind("data: ", 0) != 0) return;
    const json event = json::parse(line.substr(6), nullptr, false);
    if (event.is_discarded() || event.contains("error")) {
      error_ = line;
      return;
    }
    for (const json& token : event.value("tokens", json::array())) {
      last_token_ = NowSeconds();
      if (result_.answer.empty()) {
        first_token_ = last_token_;
        result_.first_token_s = first_token_ - begin_;
      }
      result_.answer.push_back(token.get<Token>());
    }
    if (!event.value("stop", false)) return;
    complete_ = true;
    result_.reused_tokens = event.at("timings").value("cache_n", 0u);
  }

  const double begin_;
  double first_token_ = 0;
  double last_token_ = 0;
  bool complete_ = false;
  std::string buffer_;
  std::string error_;
  Completion result_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ServerProcess>> ServerProcess::Start(
    const std::string& log_file, bool cache, const std::vector<std::string>& arguments) {
  const absl::StatusOr<std::string> program = Program("parkade-server");
  if (!program.ok()) return program.status();
  const absl::StatusOr<std::string> model = Model();
  if (!model.ok()) return model.status();
  const absl::StatusOr<int> port = FreePort();
  if (!port.ok()) return port.status();
  std::vector<std::string> command = {
      *program,     "-m", *model, "--host", "127.0.0.1", "--port", absl::StrCat(*port),
      "--parallel", "1"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  const absl::StatusOr<pid_t> pid = Spawn(command, log_file);
  if (!pid.ok()) return pid.status();
  std::unique_ptr<ServerProcess> server(new ServerProcess(*pid, *port, log_file));
  if (absl::Status s = server->WaitReady(cache); !s.ok()) return s;
  return server;
}

absl::StatusOr<std::unique_ptr<RpcDevice>> RpcDevice::Start(const std::string& log_file) {
  const absl::StatusOr<std::string> program = Program("ggml-rpc-server");
  if (!program.ok()) return program.status();
  const absl::StatusOr<int> port = FreePort();
  if (!port.ok()) return port.status();
  const absl::StatusOr<pid_t> pid =
      Spawn({*program, "-H", "127.0.0.1", "-p", absl::StrCat(*port), "-t", "1"}, log_file);
  if (!pid.ok()) return pid.status();
  std::unique_ptr<RpcDevice> device(new RpcDevice(*pid, absl::StrCat("127.0.0.1:", *port)));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(*port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  for (const double end = NowSeconds() + kStartSeconds; NowSeconds() < end;) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool listens =
        ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
    ::close(fd);
    if (listens) return device;
    absl::SleepFor(absl::Milliseconds(20));
  }
  return absl::DeadlineExceededError("ggml-rpc-server does not listen");
}

RpcDevice::~RpcDevice() {
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

ServerProcess::~ServerProcess() { Kill(); }

void ServerProcess::Kill() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = 0;
}

bool ServerProcess::Running() {
  if (pid_ <= 0) return false;
  if (::waitpid(pid_, nullptr, WNOHANG) != pid_) return true;
  pid_ = 0;
  return false;
}

absl::Status ServerProcess::WaitReady(bool cache) {
  for (const double end = NowSeconds() + kStartSeconds; NowSeconds() < end;) {
    if (!Running()) {
      const std::string log = FileText(log_file_);
      return absl::UnavailableError(absl::StrCat(
          "the server ended: ", log.substr(log.size() - std::min<std::size_t>(log.size(), 300))));
    }
    const absl::StatusOr<json> health = GetJson("/health");
    const bool answers = health.ok() && health->value("status", "") == "ok";
    if (answers && (!cache || absl::StrContains(FileText(log_file_), kReadyLine))) {
      return absl::OkStatus();
    }
    absl::SleepFor(absl::Milliseconds(50));
  }
  return absl::DeadlineExceededError("the server does not get ready");
}

absl::Status ServerProcess::Ask(const std::string& path, const std::string* body,
                                const std::function<void(std::string_view)>& take,
                                const char* method) {
  const std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> easy(curl_easy_init(),
                                                                 &curl_easy_cleanup);
  if (easy == nullptr) return absl::InternalError("libcurl can't be used");
  const std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)> headers(
      curl_slist_append(nullptr, "Content-Type: application/json"), &curl_slist_free_all);
  const std::string url = absl::StrCat("http://127.0.0.1:", port_, path);
  curl_easy_setopt(easy.get(), CURLOPT_URL, url.c_str());
  curl_easy_setopt(easy.get(), CURLOPT_PROXY, "");
  curl_easy_setopt(easy.get(), CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy.get(), CURLOPT_TIMEOUT, kRequestSeconds);
  curl_easy_setopt(easy.get(), CURLOPT_TCP_NODELAY, 1L);
  curl_easy_setopt(easy.get(), CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(easy.get(), CURLOPT_WRITEFUNCTION, &TakePiece);
  curl_easy_setopt(easy.get(), CURLOPT_WRITEDATA, &take);
  if (body != nullptr) {
    curl_easy_setopt(easy.get(), CURLOPT_POSTFIELDS, body->c_str());
    curl_easy_setopt(easy.get(), CURLOPT_POSTFIELDSIZE, static_cast<long>(body->size()));
  }
  if (method != nullptr) curl_easy_setopt(easy.get(), CURLOPT_CUSTOMREQUEST, method);
  const CURLcode code = curl_easy_perform(easy.get());
  if (code == CURLE_OK) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(path, ": ", curl_easy_strerror(code)));
}

absl::StatusOr<std::string> ServerProcess::GetText(const std::string& path) {
  std::string text;
  const absl::Status asked =
      Ask(path, nullptr, [&text](std::string_view piece) { text.append(piece); });
  if (!asked.ok()) return asked;
  return text;
}

absl::Status ServerProcess::Delete(const std::string& path) {
  std::string text;
  const absl::Status asked = Ask(
      path, nullptr, [&text](std::string_view piece) { text.append(piece); }, "DELETE");
  if (!asked.ok()) return asked;
  const json parsed = json::parse(text, nullptr, false);
  if (!parsed.is_discarded() && !parsed.contains("error")) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("DELETE ", path, ": ", text));
}

absl::StatusOr<json> ServerProcess::GetJson(const std::string& path) {
  const absl::StatusOr<std::string> text = GetText(path);
  if (!text.ok()) return text.status();
  json parsed = json::parse(*text, nullptr, false);
  if (parsed.is_discarded()) return absl::InternalError(absl::StrCat(path, " is not JSON"));
  return parsed;
}

absl::StatusOr<json> ServerProcess::PostJson(const std::string& path, const json& body) {
  const std::string sent = body.dump();
  std::string text;
  const absl::Status asked =
      Ask(path, &sent, [&text](std::string_view piece) { text.append(piece); });
  if (!asked.ok()) return asked;
  json parsed = json::parse(text, nullptr, false);
  if (parsed.is_discarded() || parsed.contains("error")) {
    return absl::InternalError(absl::StrCat(path, ": ", text));
  }
  return parsed;
}

absl::StatusOr<Completion> ServerProcess::Complete(const CompletionRequest& request) {
  const json body = {{"prompt", request.prompt}, {"n_predict", request.answer_tokens},
                     {"stream", true},           {"temperature", 0},
                     {"ignore_eos", true},       {"return_tokens", true},
                     {"cache_prompt", true}};
  const std::string text = body.dump();
  EventReader reader(NowSeconds());
  try {
    const absl::Status asked =
        Ask("/completion", &text, [&reader](std::string_view piece) { reader.Take(piece); });
    if (!asked.ok()) return asked;
    return reader.Finish();
  } catch (const json::exception& e) {
    return absl::InternalError(e.what());
  }
}

absl::Status ServerProcess::WaitDurable(std::uint32_t tokens) {
  std::uint32_t durable = 0;
  for (const double end = NowSeconds() + kDurableSeconds; NowSeconds() < end;) {
    const absl::StatusOr<json> listed = GetJson("/conversations");
    if (!listed.ok()) return listed.status();
    for (const json& entry : listed->value("conversations", json::array())) {
      durable = std::max(durable, entry.value("durable_tokens", 0u));
    }
    if (durable >= tokens) return absl::OkStatus();
    absl::SleepFor(absl::Milliseconds(50));
  }
  return absl::DeadlineExceededError(absl::StrCat(durable, " of ", tokens, " tokens are durable"));
}

std::uint64_t ServerProcess::resident_bytes() const {
  std::ifstream in(absl::StrCat("/proc/", pid_, "/statm"));
  std::uint64_t size = 0;
  std::uint64_t resident = 0;
  in >> size >> resident;
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace parkade::bench
