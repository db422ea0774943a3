#include "src/server/flag_values.h"
#include "src/server/flags.h"

namespace parkade {
namespace {

constexpr double kMostMib = 1u << 30;  // 1 PiB
constexpr double kMostGib = 1u << 20;  // 1 PiB

constexpr FlagSpec kFlags[] = {
    {"conversation-cache-mib", "N", "MiB", "8192", FlagKind::kInteger, 0, kMostMib, true,
     "RAM that the cache may hold: images, buffers, queues, index. With a disk tier the default is "
     "1024, because the system's page cache already holds recent bytes. 0: no RAM tier; buffers "
     "and index remain, at most 192 MiB together."},
    {"conversation-cache-slots", "N", "conversations", "0", FlagKind::kInteger, 0, 1e6, true,
     "Most chats kept in RAM; branches of one chat count once. 0: no limit."},
    {"conversation-cache-min-free-mib", "N", "MiB", "2560", FlagKind::kInteger, 0, kMostMib, true,
     "Memory to leave free on the machine, or in the control group; below it conversations are "
     "parked on disk only."},
    {"conversation-cache-disk", "PATH", "", "off", FlagKind::kPath, 0, 0, true,
     "Directory of the disk tier; created with mode 0700. off: no disk tier. In router mode every "
     "model has a folder of its own in it, and all budgets are for each model."},
    {"conversation-cache-disk-gib", "N", "GiB", "auto", FlagKind::kGib, 0.1, kMostGib, true,
     "Disk space in GiB that the disk tier may take; fractions are allowed. auto: the smaller of "
     "64 and 20 % of the free space plus what the tier already holds, read at start."},
    {"conversation-cache-disk-min-free-mib", "N", "MiB", "4096", FlagKind::kInteger, 0, kMostMib,
     true, "Disk space to leave free; below it the disk tier is read-only until space returns."},
    {"conversation-cache-remote", "URL", "", "off", FlagKind::kAddress, 0, 0, true,
     "Redis or Valkey, one server or a cluster, that several machines share: "
     "redis://[user:password@]host:port[,host:port...][/prefix], rediss:// for TLS; @file:PATH in "
     "place of the password reads it from a file. off: no remote tier."},
    {"conversation-cache-remote-ttl-s", "N", "seconds", "604800", FlagKind::kInteger, 60, 1u << 30,
     true, "How long what is in the remote tier lives there after its last use."},
    {"conversation-cache-remote-deadline-ms", "N", "ms", "500", FlagKind::kInteger, 1, 600000, true,
     "Longest that a request waits for the remote tier's first byte; what is on its way has a time "
     "of its own, from its size and the measured speed."},
    {"conversation-cache-min-tokens", "N", "tokens", "64", FlagKind::kInteger, 0, 1u << 30, true,
     "Shorter conversations are not parked."},
    {"conversation-cache-codec", "auto|none|lz4|zstd", "", "auto", FlagKind::kCodec, 0, 0, true,
     "How bytes are stored on disk and in the remote tier. auto: raw unless a sample shrinks by "
     "5 %; on a link that is slower than the codec also zstd."},
    {"conversation-cache-key-file", "FILE", "", "off", FlagKind::kPath, 0, 0, true,
     "Key of 32 bytes, or 64 hexadecimal digits, in a file of mode 0600: what is on disk and in "
     "the "
     "remote tier is encrypted with it (AES-256-GCM). A directory keeps the key that it began "
     "with. "
     "off: nothing is encrypted."},
    {"conversation-cache-config", "FILE", "", "", FlagKind::kPath, 0, 0, false,
     "File with these flags as lines `key = value`, keys without the leading dashes; the command "
     "line wins. config/parkade.conf is an example."},
};

constexpr std::size_t kHelpColumn = 42;
constexpr std::size_t kHelpWidth = 100;

// Appends words of `text` from column kHelpColumn on, wrapped; `column` is where the line is now.
void AppendWrapped(std::string_view text, std::size_t column, std::string* out) {
  const auto indent = [&] {
    if (column < kHelpColumn) out->append(kHelpColumn - column, ' ');
    column = kHelpColumn;
  };
  while (!text.empty()) {
    const std::size_t end = text.find(' ');
    const std::string_view word = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    if (column >= kHelpColumn && column + 1 + word.size() > kHelpWidth) {
      out->push_back('\n');
      column = 0;
    }
    if (column < kHelpColumn) {
      indent();
    } else {
      out->push_back(' ');
      ++column;
    }
    out->append(word);
    column += word.size();
  }
  out->push_back('\n');
}

}  // namespace

absl::Span<const FlagSpec> FlagTable() { return kFlags; }

const FlagSpec* FindFlag(std::string_view name) {
  for (const FlagSpec& flag : kFlags) {
    if (flag.name == name) return &flag;
  }
  return nullptr;
}

std::string FlagsHelp() {
  std::string out = "----- conversation cache -----\n\n";
  for (const FlagSpec& flag : kFlags) {
    std::string head = "--";
    head.append(flag.name).append(" ").append(flag.value_name);
    out.append(head);
    std::size_t column = head.size();
    if (column + 1 > kHelpColumn) {
      out.push_back('\n');
      column = 0;
    }
    std::string text(flag.help);
    if (!flag.default_text.empty()) {
      text.append(" (default: ").append(flag.default_text);
      const bool number = flag.kind == FlagKind::kInteger;
      if (number && !flag.unit.empty()) text.append(" ").append(flag.unit);
      text.append(")");
    }
    AppendWrapped(text, column, &out);
  }
  out.append("--cache-ram N of llama-server is read as --conversation-cache-mib N.\n");
  return out;
}

}  // namespace parkade
