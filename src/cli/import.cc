#include "src/cli/import.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/cli/conversation_path.h"
#include "src/format/checksum.h"
#include "src/format/page_hash.h"

namespace parkade {
namespace {

// Page hashes of a sequence that comes park by park.
class ParkHasher {
 public:
  explicit ParkHasher(PageHasher hasher) : hasher_(std::move(hasher)) {}

  // Of the pages that end in these tokens.
  std::vector<std::uint64_t> Add(const std::vector<Token>& tokens) {
    std::vector<std::uint64_t> hashes;
    for (const Token token : tokens) {
      page_.push_back(token);
      if (page_.size() < kPageTokens) continue;
      hashes.push_back(hasher_.Next(page_.data()));
      page_.clear();
    }
    return hashes;
  }

 private:
  PageHasher hasher_;
  std::vector<Token> page_;
};

// Whether the conversation in the tier begins with the tokens that were checked.
absl::StatusOr<bool> HasTokens(Tier& tier, const ConversationPath& path, std::uint32_t tokens,
                               const Digest128& checksum) {
  if (path.tokens < tokens) return false;
  RunningChecksum running;
  std::uint32_t left = tokens;
  for (const PathStep& step : path.steps) {
    absl::StatusOr<std::vector<Token>> read = ReadStepTokens(tier, step);
    if (!read.ok()) return read.status();
    if (read->size() > left) read->resize(left);
    left -= static_cast<std::uint32_t>(read->size());
    AddTokens(*read, &running);
  }
  return running.Value() == checksum;
}

// Decides the id. Sets there_already when nothing is left to do.
absl::Status ChooseId(Tier& tier, const ContainerFile& file, const CheckedContainer& checked,
                      ImportReport* report) {
  report->id = file.header().conversation;
  const absl::StatusOr<ConversationPath> path = FindPath(tier, report->id);
  if (absl::IsNotFound(path.status())) return absl::OkStatus();
  const std::string id = ToHex(report->id);
  if (path.ok() && path->forgotten) {
    report->id = RandomDigest();
    report->notices.push_back(
        absl::StrCat("forks of the forgotten ", id, " are there; imported as ", ToHex(report->id)));
    return absl::OkStatus();
  }
  absl::StatusOr<bool> same = false;
  if (!path.ok()) {
    same = path.status();
  } else if (path->steps.back().stored.identity == file.header().identity) {
    same = HasTokens(tier, *path, file.trailer().tokens, checked.tokens_checksum);
  }
  // What is damaged is there, and is not the same.
  if (!same.ok() && !absl::IsDataLoss(same.status())) return same.status();
  report->there_already = same.ok() && *same;
  if (report->there_already) {
    report->name = path->attributes.name;
    return absl::OkStatus();
  }
  return absl::AlreadyExistsError(absl::StrCat(
      "conversation ", id, " is there already, with other tokens; parkade rm removes it"));
}

absl::Status PutIdentity(Tier& tier, const ContainerFile& file) {
  const Digest128 digest = file.header().identity;
  bool differs = false;
  const absl::Status listed =
      tier.EnumerateIdentities([&](const Digest128& other, const StoredIdentity& stored) {
        differs = differs || (other == digest && !(stored.layout == file.identity().layout));
      });
  if (!listed.ok()) return listed;
  if (differs) return absl::FailedPreconditionError("the identity is there with another layout");
  return tier.PutIdentity(digest, file.identity());
}

absl::StatusOr<bool> NameTaken(Tier& tier, const std::string& name) {
  bool taken = false;
  const absl::Status listed = tier.EnumerateAttributes(
      [&](const ConversationAttributes& attributes) { taken = taken || attributes.name == name; });
  if (!listed.ok()) return listed;
  return taken;
}

// Pin, name and hits as they were; used now.
absl::Status WriteAttributes(Tier& tier, const ContainerFile& file, std::int64_t now_unix_ms,
                             ImportReport* report) {
  ConversationAttributes attributes = file.attributes();
  attributes.conversation = report->id;
  attributes.last_used_unix_ms = now_unix_ms;
  if (!attributes.name.empty()) {
    const absl::StatusOr<bool> taken = NameTaken(tier, attributes.name);
    if (!taken.ok()) return taken.status();
    if (*taken) {
      report->notices.push_back(absl::StrCat("another conversation has the name '", attributes.name,
                                             "'; imported without it"));
      attributes.name.clear();
      attributes.name_tokens = 0;
    }
  }
  report->name = attributes.name;
  return tier.WriteAttributes(absl::MakeConstSpan(&attributes, 1), true);
}

}  // namespace

absl::StatusOr<CheckedContainer> CheckContainer(ContainerFile& file, const WorkWatch& watch) {
  CheckedContainer checked;
  RunningChecksum tokens;
  const absl::Status walked = file.Walk(
      [&](const ParkRecord& record, absl::Span<const ExtentBytes>) {
        AddTokens(record.tokens, &tokens);
        checked.payload_bytes += record.summary.payload_bytes;
        return absl::OkStatus();
      },
      watch);
  if (!walked.ok()) return walked;
  checked.tokens_checksum = tokens.Value();
  return checked;
}

absl::StatusOr<ImportReport> ImportConversation(Tier& tier, ContainerFile& file,
                                                const CheckedContainer& checked,
                                                std::int64_t now_unix_ms, const WorkWatch& watch,
                                                const SharedSealKey& key) {
  ImportReport report;
  report.tokens = file.trailer().tokens;
  report.parks = file.trailer().parks;
  report.payload_bytes = checked.payload_bytes;
  if (absl::Status s = ChooseId(tier, file, checked, &report); !s.ok()) return s;
  if (report.there_already) return report;
  if (absl::Status s = PutIdentity(tier, file); !s.ok()) return s;

  ParkHasher hasher(PageHasher(tier.secret(), file.header().identity, PageHashKey(key)));
  std::vector<ParkKey> stored;
  absl::Status status = file.Walk(
      [&](const ParkRecord& record, absl::Span<const ExtentBytes> payload) {
        ParkRecord own = record;
        own.summary.key.conversation = report.id;
        own.summary.page_hashes = hasher.Add(record.tokens);
        const absl::Status put = tier.Store(own, payload);
        if (put.ok()) stored.push_back(own.summary.key);
        return put;
      },
      watch);
  if (status.ok()) status = WriteAttributes(tier, file, now_unix_ms, &report);
  if (status.ok()) return report;
  const absl::Status removed = tier.Forget(report.id, stored);
  const absl::string_view after =
      removed.ok() ? "nothing was imported" : "a part of it is left; remove it with parkade rm";
  return absl::Status(status.code(), absl::StrCat(status.message(), "; ", after));
}

}  // namespace parkade
