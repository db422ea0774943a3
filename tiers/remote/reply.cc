#include "tiers/remote/reply.h"

#include <hiredis/hiredis.h>

#include <new>

#include "absl/strings/str_cat.h"

namespace parkade::remote {
namespace {

// CLUSTER SLOTS of a thousand nodes has some ten thousand.
constexpr long long kMostElements = 1 << 20;

// Where the reply of this task belongs: in its parent's array, or free-standing and then owned by
// whoever takes it from the reader. Null: no memory.
Reply* Place(const redisReadTask* task) {
  if (task->parent != nullptr) {
    return &static_cast<Reply*>(task->parent->obj)->elements[static_cast<std::size_t>(task->idx)];
  }
  return new (std::nothrow) Reply;
}

Reply::Kind KindOf(int type) {
  switch (type) {
    case REDIS_REPLY_ERROR:
      return Reply::Kind::kError;
    case REDIS_REPLY_STATUS:
      return Reply::Kind::kStatus;
    default:
      return Reply::Kind::kBytes;
  }
}

// hiredis calls these from C: a null pointer says that there is no memory, no exception leaves
// them.
template <typename Fill>
void* Make(const redisReadTask* task, Fill fill) noexcept {
  Reply* reply = Place(task);
  if (reply == nullptr) return nullptr;
  try {
    fill(reply);
  } catch (const std::bad_alloc&) {
    // swallow: hiredis reports it as REDIS_ERR_OOM, and so do we
    if (task->parent == nullptr) delete reply;
    return nullptr;
  }
  return reply;
}

void* MakeString(const redisReadTask* task, char* bytes, std::size_t size) {
  return Make(task, [&](Reply* reply) {
    reply->kind = KindOf(task->type);
    reply->bytes.assign(bytes, size);
  });
}

void* MakeArray(const redisReadTask* task, std::size_t size) {
  return Make(task, [&](Reply* reply) {
    reply->kind = Reply::Kind::kArray;
    reply->elements.resize(size);
  });
}

void* MakeInteger(const redisReadTask* task, long long value) {
  return Make(task, [&](Reply* reply) {
    reply->kind = Reply::Kind::kInteger;
    reply->integer = value;
  });
}

void* MakeDouble(const redisReadTask* task, double, char* bytes, std::size_t size) {
  return MakeString(task, bytes, size);
}

void* MakeNil(const redisReadTask* task) {
  return Make(task, [](Reply*) {});
}

void* MakeBool(const redisReadTask* task, int value) { return MakeInteger(task, value); }

void FreeRoot(void* reply) { delete static_cast<Reply*>(reply); }

redisReplyObjectFunctions kFunctions = {MakeString, MakeArray, MakeInteger, MakeDouble,
                                        MakeNil,    MakeBool,  FreeRoot};

absl::Status ReaderError(const redisReader* reader) {
  return absl::InternalError(absl::StrCat("the answer is not Redis': ", reader->errstr));
}

}  // namespace

void ReplyReader::Free::operator()(redisReader* reader) const { redisReaderFree(reader); }

ReplyReader::ReplyReader() : reader_(redisReaderCreateWithFunctions(&kFunctions)) {
  if (reader_ != nullptr) reader_->maxelements = kMostElements;
}

ReplyReader::~ReplyReader() = default;

absl::Status ReplyReader::Feed(std::string_view bytes) {
  if (reader_ == nullptr) return absl::InternalError("no memory for an answer");
  if (redisReaderFeed(reader_.get(), bytes.data(), bytes.size()) != REDIS_OK) {
    return ReaderError(reader_.get());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<Reply>> ReplyReader::Next() {
  if (reader_ == nullptr) return absl::InternalError("no memory for an answer");
  void* made = nullptr;
  if (redisReaderGetReply(reader_.get(), &made) != REDIS_OK) return ReaderError(reader_.get());
  if (made == nullptr) return std::optional<Reply>();
  const std::unique_ptr<Reply> reply(static_cast<Reply*>(made));
  return std::optional<Reply>(std::move(*reply));
}

bool ReplyReader::empty() const {
  if (reader_ == nullptr || reader_->len != reader_->pos) return false;
  // A reply may be half read though all bytes of it were consumed; its task is open then. One
  // without a type was opened by looking for a reply where there was none.
  return reader_->ridx == -1 || (reader_->ridx == 0 && reader_->task[0]->type == -1);
}

}  // namespace parkade::remote
