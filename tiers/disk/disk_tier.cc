#include "tiers/disk/disk_tier.h"

#include <sys/sysinfo.h>

#include <algorithm>
#include <exception>
#include <limits>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "src/format/checksum.h"
#include "tiers/disk/catalogue_options.h"
#include "tiers/disk/tier_impl.h"

namespace parkade {

absl::StatusOr<std::unique_ptr<Tier>> OpenDiskTier(const DiskTierOptions& options) {
  try {
    absl::StatusOr<std::unique_ptr<disk::Directory>> directory =
        disk::Directory::Open(options.directory, true, options.key,
                              options.files != nullptr ? *options.files : disk::FileDoor::System());
    if (!directory.ok()) return directory.status();
    auto tier = std::make_unique<disk::DiskTier>(options, std::move(directory).value());
    if (absl::Status s = tier->Start(); !s.ok()) return s;
    return tier;
  } catch (const std::exception& e) {
    return absl::UnavailableError(absl::StrCat(options.directory, ": ", e.what()));
  }
}

namespace disk {
namespace {

// Tick comes about once a second.
constexpr int kRecountTicks = 60;
constexpr int kRecoveryTicks = 5;
constexpr absl::Duration kRefillAfter = absl::Seconds(5);
constexpr std::uint64_t kRefillBytes = 64u << 20;  // a tick
constexpr std::uint64_t kLeastUnusedBytes = 1ull << 30;
constexpr std::uint64_t kFormatNumber = kFormatVersion;
constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();

// Why a catalogue that was opened can't be written; OK when it can.
absl::Status ReadOnlyReason(const CatalogueDb& db) {
  if (!db.read_only()) return absl::OkStatus();
  return absl::ResourceExhaustedError("no space for the catalogue");
}

}  // namespace

DiskTier::DiskTier(const DiskTierOptions& options, std::unique_ptr<Directory> directory)
    : options_(options),
      directory_(std::move(directory)),
      ledger_(options.min_free_bytes),
      writer_(directory_.get(), options.failpoint),
      reader_(directory_.get()),
      ticks_until_recount_(kRecountTicks) {}

DiskTier::~DiskTier() {
  readahead_.reset();
  if (gate_ == nullptr) return;
  absl::StatusOr<CatalogueGate::Use> db = gate_->Enter();
  // swallow: only last uses wait for this sync; nobody is left to tell.
  if (db.ok()) (void)(*db)->SyncLog();
}

absl::Status DiskTier::Start() {
  if (absl::Status s = directory_->EmptyTemporary(); !s.ok()) return s;
  absl::StatusOr<std::unique_ptr<CatalogueDb>> db = OpenAndLoad();
  if (!db.ok()) return db.status();
  if (absl::Status s = ReadOnlyReason(**db); !s.ok()) Fail(s);
  gate_ = std::make_unique<CatalogueGate>(std::move(db).value());
  MeasureDatabase();
  if (options_.budget_bytes != 0) {
    ledger_.SetBudget(options_.budget_bytes);
  } else {
    ledger_.SetAutoBudget(directory_->FreeBytes());
  }
  readahead_ = std::make_unique<Readahead>([this](const ParkKey& key) {
    const absl::StatusOr<SharedPlace> place = FindPlace(key);
    // swallow: a hint.
    if (place.ok()) reader_.Advise((*place)->ref.segment);
  });
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<CatalogueDb>> DiskTier::OpenAndLoad() {
  RecoveryOptions recovery;
  recovery.failpoint = options_.failpoint;
  absl::StatusOr<ReconciledCatalogue> opened = OpenReconciled(directory_.get(), &reader_, recovery);
  if (!opened.ok()) return opened.status();
  ledger_.SetSegments(opened->report.segment_block_bytes, ledger_.epoch());
  lost_parks_ += opened->report.lost_parks;
  places_.Clear();
  if (absl::Status s = LoadRows(opened->db.get(), opened->report.highest_segment); !s.ok()) {
    return s;
  }
  return std::move(opened->db);
}

absl::Status DiskTier::LoadRows(CatalogueDb* db, std::uint64_t highest_segment) {
  absl::flat_hash_map<ConversationId, NameEntry, DigestHash> names;
  absl::flat_hash_map<Digest128, std::string, DigestHash> identities;
  absl::Status status = db->Scan(Family::kName, "", "", [&](auto key, auto value) {
    const absl::StatusOr<ConversationId> id = ParseConversationKey(key);
    const absl::StatusOr<RefRow> row = UnwrapRef(value);
    if (!id.ok() || !row.ok()) return true;
    absl::StatusOr<ConversationAttributes> attributes = DecodeAttributes(*id, row->inner);
    if (attributes.ok()) names[*id] = {row->ref, std::move(attributes).value()};
    return true;
  });
  if (!status.ok()) return status;
  status = db->Scan(Family::kIdentity, "", "", [&](auto key, auto value) {
    const absl::StatusOr<Digest128> digest = ParseDigestKey(key);
    if (digest.ok() && DecodeIdentity(value).ok()) identities[*digest] = std::string(value);
    return true;
  });
  if (!status.ok()) return status;
  {
    absl::MutexLock lock(&mutex_);
    names_ = std::move(names);
    identities_ = std::move(identities);
  }
  SegmentRef secret_ref;
  absl::StatusOr<Digest128> secret = LoadSecret(*db, &secret_ref);
  if (!secret.ok()) return secret.status();
  // What waits to be stored was hashed with the one before.
  if (!secret_.IsZero() && *secret != secret_) {
    return absl::FailedPreconditionError(directory_->path() + " holds another cache now");
  }
  secret_ = *secret;
  secret_row_ = WrapRef(secret_ref, EncodeSecret(secret_));
  if (db->read_only()) return absl::OkStatus();

  std::uint64_t next = highest_segment + 1;
  absl::StatusOr<std::string> row = db->Get(Family::kMeta, std::string(kNextSegmentKey));
  if (row.ok()) {
    const absl::StatusOr<std::uint64_t> number = DecodeNumber(*row);
    if (number.ok()) next = std::max(next, *number);
  }
  RowBatch batch;
  batch.puts.push_back(writer_.StartNumbers(next));
  batch.puts.push_back({Family::kMeta, std::string(kFormatKey), EncodeNumber(kFormatNumber)});
  if (absl::Status s = db->Write(batch, true); !s.ok()) return s;
  return RestoreSmallSegments(db, secret_ref);
}

// The row; else the copy in any park's segment; else, in a new directory, a new one.
absl::StatusOr<Digest128> DiskTier::LoadSecret(const CatalogueDb& db, SegmentRef* ref) {
  const std::string key(kSecretKey);
  absl::StatusOr<std::string> value = db.Get(Family::kMeta, key);
  if (!value.ok() && !absl::IsNotFound(value.status())) return value.status();
  if (!value.ok()) {
    std::uint64_t segment = 0;
    const absl::Status scanned = db.Scan(Family::kManifest, "", "", [&](auto, auto row_value) {
      const absl::StatusOr<RefRow> row = UnwrapRef(row_value);
      if (row.ok()) segment = row->ref.segment;
      return !row.ok();
    });
    if (!scanned.ok()) return scanned;
    if (segment == 0) return secret_.IsZero() ? RandomDigest() : secret_;
    absl::StatusOr<SegmentHead> head = reader_.ReadHead(segment);
    if (!head.ok()) return head.status();
    for (const CatalogueRow& row : head->rows) {
      if (row.family == Family::kMeta && row.key == key) value = row.value;
    }
    if (!value.ok()) return absl::DataLossError("the directory's secret is lost");
  }
  absl::StatusOr<RefRow> row = UnwrapRef(*value);
  if (!row.ok()) return row.status();
  *ref = row->ref;
  return DecodeSecret(row->inner);
}

// Secret and names have segments of their own; one that is missing is written again.
absl::Status DiskTier::RestoreSmallSegments(CatalogueDb* db, const SegmentRef& secret_ref) {
  std::vector<CatalogueRow> inner;
  if (secret_ref.segment == 0 || !directory_->Stat(secret_ref.segment).ok()) {
    inner.push_back({Family::kMeta, std::string(kSecretKey), EncodeSecret(secret_)});
  }
  {
    std::vector<NameEntry> entries;
    {
      absl::MutexLock lock(&mutex_);
      for (const auto& [id, entry] : names_) entries.push_back(entry);
    }
    for (const NameEntry& entry : entries) {
      if (directory_->Stat(entry.ref.segment).ok()) continue;
      inner.push_back({Family::kName, ConversationKey(entry.attributes.conversation),
                       EncodeAttributes(entry.attributes)});
    }
  }
  if (inner.empty()) return absl::OkStatus();
  const RowsSegment segment =
      BuildRowsSegment(writer_.TakeNumber(), inner, NewSegmentSealer(directory_->key()));
  absl::StatusOr<std::uint64_t> block_bytes = writer_.Write(segment);
  if (!block_bytes.ok()) return block_bytes.status();
  RowBatch batch;
  batch.puts = segment.rows;
  if (absl::Status s = db->Write(batch, true); !s.ok()) return s;
  ledger_.AddSegment(*block_bytes);
  for (const CatalogueRow& row : segment.rows) {
    if (row.family == Family::kMeta) secret_row_ = row.value;
    const absl::StatusOr<ConversationId> id = ParseConversationKey(row.key);
    if (row.family != Family::kName || !id.ok()) continue;
    absl::MutexLock lock(&mutex_);
    names_[*id].ref = segment.ref;
  }
  return absl::OkStatus();
}

TierUsage DiskTier::usage() const {
  TierUsage usage;
  usage.free_bytes = directory_->FreeBytes();
  const SpaceLedger::View view = ledger_.Look(usage.free_bytes);
  usage.physical_bytes = view.physical_bytes;
  usage.used_bytes = view.physical_bytes;
  usage.budget_bytes = view.effective_budget_bytes;
  usage.floor_limits_budget = view.floor_limits_budget;
  usage.written_bytes = writer_.written_bytes() + catalogue_written_bytes_.load();
  usage.read_bytes = reader_.read_bytes();
  usage.lost_parks = lost_parks_;
  usage.buffer_bytes = kAllWriteBuffersBytes + kBlockCacheBytes + ParkPlaces::kMostBytes;
  absl::StatusOr<CatalogueGate::Use> db = gate_->Enter();
  if (db.ok()) usage.written_bytes += (*db)->written_bytes();
  absl::MutexLock lock(&mutex_);
  if (!db.ok()) {
    usage.state = absl::StrCat("down: ", failure_.empty() ? "recovering" : failure_);
  } else if (!failure_.empty()) {
    usage.state = "read_only: " + failure_;
  } else if (view.below_floor) {
    usage.state = absl::StrCat("read_only: ", usage.free_bytes >> 20, " MiB free, floor ",
                               ledger_.floor_bytes() >> 20, " MiB");
  } else if (ledger_.Shortfall(0, usage.free_bytes) == kNever) {
    usage.state = absl::StrCat("read_only: no room for a park: ", usage.free_bytes >> 20,
                               " MiB free, ", usage.budget_bytes >> 20, " MiB of budget");
  }
  return usage;
}

void DiskTier::SetBudget(std::uint64_t budget_bytes) { ledger_.SetBudget(budget_bytes); }

std::uint64_t DiskTier::Shortfall(std::uint64_t payload_bytes) const {
  if (payload_bytes > kParkBytes || !Writable().ok()) {
    return kNever;
  }
  return ledger_.Shortfall(payload_bytes, directory_->FreeBytes());
}

absl::Status DiskTier::Writable() const {
  absl::MutexLock lock(&mutex_);
  if (failure_.empty()) return absl::OkStatus();
  return absl::UnavailableError("the disk tier is read-only: " + failure_);
}

void DiskTier::Fail(const absl::Status& status) {
  // That a file is missing says less than that all of them are.
  const absl::Status place = absl::IsNotFound(status) ? directory_->CheckPlace() : absl::OkStatus();
  absl::MutexLock lock(&mutex_);
  if (failure_.empty()) failure_ = std::string((place.ok() ? status : place).message());
  if (absl::IsDataLoss(status)) catalogue_damaged_ = true;
}

void DiskTier::MeasureDatabase() {
  const absl::StatusOr<std::uint64_t> bytes =
      FolderBlockBytes(directory_->root(), std::string(kCatalogueName));
  // swallow: what was measured last is nearer than nothing, and it is measured every second.
  if (bytes.ok()) ledger_.SetDatabase(*bytes);
}

void DiskTier::Recount() {
  const std::uint64_t epoch = ledger_.epoch();
  std::uint64_t block_bytes = 0;
  const absl::Status listed = directory_->ListSegments(
      1, [&](const SegmentFile& file) { block_bytes += file.block_bytes; },
      [](const std::string&) {});
  // A write or a removal in between makes the walk worthless: the next tick tries again.
  if (listed.ok() && ledger_.SetSegments(block_bytes, epoch)) ticks_until_recount_ = kRecountTicks;
}

bool DiskTier::CanRecover(std::unique_ptr<Directory>* again) {
  if (directory_->CheckPlace().ok()) {
    // swallow: the tier stays as it is, and says why already.
    return directory_->FreeBytes() >= ledger_.floor_bytes() + kHeadroomBytes &&
           directory_->ProbeWriting().ok();
  }
  absl::StatusOr<std::unique_ptr<Directory>> opened = directory_->OpenPlaceAgain();
  // swallow: as above; the next try is in a few ticks.
  if (!opened.ok()) return false;
  *again = *std::move(opened);
  return true;
}

absl::StatusOr<std::unique_ptr<CatalogueDb>> DiskTier::ReopenCatalogue(
    std::unique_ptr<Directory> again, bool damaged) {
  if (again != nullptr) {
    if (absl::Status s = directory_->TakeOver(std::move(again)); !s.ok()) return s;
    reader_.DropAll();
  }
  // Damage that opening does not see would come back with the next compaction.
  if (damaged) {
    if (absl::Status s = directory_->SetCatalogueAside(absl::ToUnixMillis(absl::Now())); !s.ok()) {
      return s;
    }
  }
  return OpenAndLoad();
}

void DiskTier::Recover() {
  ticks_until_recovery_ = kRecoveryTicks;
  std::unique_ptr<Directory> again;
  if (!CanRecover(&again)) return;
  bool damaged = false;
  {
    absl::MutexLock lock(&mutex_);
    damaged = std::exchange(catalogue_damaged_, false);
  }
  {
    absl::StatusOr<CatalogueGate::Use> db = gate_->Enter();
    if (db.ok()) catalogue_written_bytes_ += (*db)->written_bytes();
  }
  absl::Status failure;
  const absl::Status replaced =
      gate_->Replace([&]() -> absl::StatusOr<std::unique_ptr<CatalogueDb>> {
        absl::StatusOr<std::unique_ptr<CatalogueDb>> db =
            ReopenCatalogue(std::move(again), damaged);
        failure = db.ok() ? ReadOnlyReason(**db) : db.status();
        if (db.ok()) return db;
        // Reads go on until it can be written again: also of a damaged one what it still gives.
        // swallow: then there is none, and the first failure says why.
        if (damaged) (void)directory_->TakeCatalogueBack();
        return CatalogueDb::Open(directory_->CataloguePath(), CatalogueDb::Mode::kReadOnly,
                                 directory_->key(), directory_->door());
      });
  absl::MutexLock lock(&mutex_);
  failure_ = std::string((failure.ok() ? replaced : failure).message());
  if (absl::IsDataLoss(failure) || (damaged && !failure.ok())) catalogue_damaged_ = true;
}

void DiskTier::Tick() {
  // One at a time: a second one has nothing to add.
  if (ticking_.exchange(true)) return;
  const auto release = absl::MakeCleanup([this] { ticking_ = false; });
  {
    absl::StatusOr<CatalogueGate::Use> db = gate_->Enter();
    if (db.ok() && !(*db)->health().ok()) Fail((*db)->health());
  }
  MeasureDatabase();
  if (ticks_until_recovery_ > 0) --ticks_until_recovery_;
  if (const absl::Status place = directory_->CheckPlace(); !place.ok()) Fail(place);
  if (!Writable().ok() && ticks_until_recovery_ == 0) Recover();
  if (--ticks_until_recount_ <= 0) Recount();
  RefillCache();
}

// What was read past the system's cache goes there while nothing else is read, slowly, and into
// memory that nobody uses: a restart of the process then reads at memory speed, and nobody's pages
// have been pushed out for it.
void DiskTier::RefillCache() {
  if (absl::Now() - reader_.last_read() < kRefillAfter) return;
  struct sysinfo system;
  if (::sysinfo(&system) != 0) return;
  const std::uint64_t unused = std::uint64_t{system.freeram} * system.mem_unit;
  if (unused > kLeastUnusedBytes + kRefillBytes) reader_.RefillCache(kRefillBytes);
}

}  // namespace disk
}  // namespace parkade
