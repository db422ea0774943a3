#include "tests/bench/many_chats.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "src/engine/fake/fake_engine.h"
#include "src/format/checksum.h"
#include "tests/bench/disk_cache.h"
#include "tiers/disk/catalogue_db.h"
#include "tiers/disk/directory.h"
#include "tiers/disk/disk_tier.h"
#include "tiers/disk/rows.h"

namespace parkade::bench {
namespace {

constexpr std::uint32_t kRoots = 50;
constexpr std::uint32_t kSharedTokens = 1000;
constexpr std::uint64_t kBudgetBytes = 1ull << 46;
constexpr std::uint64_t kMinFreeBytes = 64ull << 20;
// Parks in one batch of rows.
constexpr std::uint32_t kBatchParks = 400;

// One buffer stands for the bytes of every extent: nobody reads or writes them.
class SharedBytes : public ExtentBuffer {
 public:
  SharedBytes() : ExtentBuffer(memory, sizeof(memory)) {}

 private:
  static char memory[kExtentBytes];
};
char SharedBytes::memory[kExtentBytes];

absl::Status MakeSparseFile(const disk::Directory& directory, const disk::SegmentRef& ref,
                            std::string_view head) {
  absl::StatusOr<disk::Fd> fd =
      disk::OpenAt(directory.root(), disk::SegmentPath(ref.segment), O_WRONLY | O_CREAT | O_EXCL);
  if (!fd.ok()) return fd.status();
  const std::string name = disk::SegmentPath(ref.segment);
  if (absl::Status s = disk::WriteAll(*fd, {{const_cast<char*>(head.data()), head.size()}}, name);
      !s.ok()) {
    return s;
  }
  if (::ftruncate(fd->get(), static_cast<off_t>(ref.size_bytes)) != 0) {
    return disk::ErrnoStatus(errno, "a sparse segment file");
  }
  return absl::OkStatus();
}

DiskTierOptions TierOptions(const std::string& directory) {
  DiskTierOptions options;
  options.directory = directory;
  options.budget_bytes = kBudgetBytes;
  options.min_free_bytes = kMinFreeBytes;
  return options;
}

StoredIdentity IdentityOf(const StateLayout& layout) {
  StoredIdentity identity;
  identity.identity.Set("weights", "many chats");
  identity.layout = layout;
  return identity;
}

}  // namespace

ManyChats::ManyChats(std::uint32_t conversations, std::uint32_t tokens, std::uint32_t parks,
                     std::uint64_t seed)
    : conversations_(conversations),
      tokens_(tokens),
      parks_(parks),
      seed_(seed),
      layout_(MakeFakeLayout(18, 256, 0, 0, 0, 0)),
      stages_(MakeFakeStages(layout_, {1})) {}

Digest128 ManyChats::identity() const { return IdentityOf(layout_).identity.digest(); }

bool ManyChats::IsFork(std::uint32_t conversation) const {
  return conversation >= kRoots && conversation % 2 == 1;
}

std::uint32_t ManyChats::RootOf(std::uint32_t conversation) const {
  return conversation / 2 % std::min(kRoots, conversations_);
}

ConversationId ManyChats::IdOf(std::uint32_t conversation) const {
  // Ascending, so that the catalogue is written in order.
  return {(std::uint64_t{conversation} + 1) << 40, seed_ ^ conversation};
}

std::vector<Token> ManyChats::Tokens(std::uint32_t conversation) const {
  std::vector<Token> tokens = RandomTokens(tokens_, seed_ + conversation);
  if (IsFork(conversation)) {
    const std::vector<Token> shared = RandomTokens(kSharedTokens, seed_ + RootOf(conversation));
    std::copy(shared.begin(), shared.end(), tokens.begin());
  }
  return tokens;
}

std::vector<ParkRecord> ManyChats::Parks(std::uint32_t conversation,
                                         const Digest128& secret) const {
  const std::vector<Token> tokens = Tokens(conversation);
  std::vector<std::uint64_t> hashes(tokens.size() / kPageTokens);
  std::uint64_t previous = ChainSeed(secret, identity());
  for (std::size_t page = 0; page < hashes.size(); ++page) {
    previous = ChainHash(previous, tokens.data() + page * kPageTokens);
    hashes[page] = previous;
  }
  const std::uint32_t begin = IsFork(conversation) ? kSharedTokens : 0;
  const std::uint32_t length = (tokens_ - begin) / parks_;
  std::vector<ParkRecord> records(parks_);
  for (std::uint32_t i = 0; i < parks_; ++i) {
    ParkSummary& summary = records[i].summary;
    summary.key = {IdOf(conversation), i};
    summary.identity = identity();
    summary.first_token = begin + i * length;
    summary.token_count = i + 1 == parks_ ? tokens_ - summary.first_token : length;
    if (begin > 0) {
      summary.parent = IdOf(RootOf(conversation));
      summary.parent_tokens = begin;
    }
    summary.created_unix_ms = 1'700'000'000'000 + conversation;
    summary.stages = stages_;
    const TokenRange range{summary.first_token, summary.end_token()};
    for (std::uint32_t page = range.begin / kPageTokens; (page + 1) * kPageTokens <= range.end;
         ++page) {
      summary.page_hashes.push_back(hashes[page]);
    }
    records[i].tokens.assign(tokens.begin() + range.begin, tokens.begin() + range.end);
    records[i].extents = CutIntoExtents(layout_, stages_, RowGroup::kFull, range);
    for (ExtentInfo& extent : records[i].extents) {
      extent.checksum = {seed_, extent.first};
      summary.payload_bytes += extent.raw_bytes;
    }
  }
  return records;
}

absl::Status ManyChats::WriteDirectory(const std::string& directory, Segments segments) const {
  return Write(directory, segments, [] {});
}

absl::Status ManyChats::WriteDirectoryAndDie(const std::string& directory) const {
  const pid_t writer = ::fork();
  if (writer < 0) return absl::UnavailableError("no process for the library's writer");
  if (writer == 0) {
    const absl::Status written =
        Write(directory, Segments::kEmpty, [] { ::kill(::getpid(), SIGKILL); });
    // Not reached unless it failed.
    std::fprintf(stderr, "%s\n", std::string(written.message()).c_str());
    ::_exit(1);
  }
  int status = 0;
  while (::waitpid(writer, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) return absl::OkStatus();
  return absl::InternalError("the library's writer failed");
}

absl::Status ManyChats::Write(const std::string& directory, Segments segments,
                              const std::function<void()>& before_close) const {
  Digest128 secret;
  {
    // An empty tier of its own making: lock, version, secret, identity.
    absl::StatusOr<std::unique_ptr<Tier>> tier = OpenDiskTier(TierOptions(directory));
    if (!tier.ok()) return tier.status();
    secret = (*tier)->secret();
    if (absl::Status s = (*tier)->PutIdentity(identity(), IdentityOf(layout_)); !s.ok()) return s;
  }
  return WriteParks(directory, secret, segments, before_close);
}

absl::Status ManyChats::WriteParks(const std::string& path, const Digest128& secret,
                                   Segments segments,
                                   const std::function<void()>& before_close) const {
  absl::StatusOr<std::unique_ptr<disk::Directory>> directory = disk::Directory::Open(path, false);
  if (!directory.ok()) return directory.status();
  absl::StatusOr<std::unique_ptr<disk::CatalogueDb>> db =
      disk::CatalogueDb::Open((*directory)->CataloguePath(), disk::CatalogueDb::Mode::kExisting);
  if (!db.ok()) return db.status();
  const auto bytes = std::make_shared<const SharedBytes>();
  std::uint64_t segment = 0;
  disk::RowBatch batch;
  std::uint32_t in_batch = 0;
  for (std::uint32_t conversation = 0; conversation < conversations_; ++conversation) {
    for (const ParkRecord& record : Parks(conversation, secret)) {
      const std::vector<ExtentBytes> payload(record.extents.size(), bytes);
      absl::StatusOr<disk::ParkSegment> park =
          disk::BuildParkSegment(++segment, record, payload, CodecChoice::kNone, {});
      if (!park.ok()) return park.status();
      if (absl::Status s = (*directory)->EnsureFolder(segment); !s.ok()) return s;
      const std::string_view head = segments == Segments::kHeads ? park->head : std::string_view();
      if (absl::Status s = MakeSparseFile(**directory, park->ref, head); !s.ok()) return s;
      std::move(park->rows.begin(), park->rows.end(), std::back_inserter(batch.puts));
      if (++in_batch < kBatchParks) continue;
      if (absl::Status s = (*db)->Write(batch, false); !s.ok()) return s;
      batch = {};
      in_batch = 0;
    }
  }
  if (absl::Status s = (*db)->Write(batch, true); !s.ok()) return s;
  before_close();
  return absl::OkStatus();
}

}  // namespace parkade::bench
