// Encryption: what was sealed opens to the same bytes under the same key, and nothing else opens.
#include <gtest/gtest.h>

#include <set>

#include "src/format/page_hash.h"
#include "src/format/sealing.h"
#include "src/format/segment.h"
#include "tests/unit/format_samples.h"

namespace parkade {
namespace {

std::string KeyBytes(char first) {
  std::string bytes(kSealKeyBytes, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(first + i);
  return bytes;
}

SharedSealKey KeyOf(char first) { return *SealKey::Parse(KeyBytes(first)); }

std::string Message(const absl::Status& status) { return std::string(status.message()); }

TEST(SealKeys, AreReadRawAndAsDigits) {
  const std::string digits = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
  const std::string upper = "000102030405060708090A0B0C0D0E0F101112131415161718191A1B1C1D1E1F";
  for (const std::string& text :
       {KeyBytes(0), digits, digits + "\n", digits + "\r\n", upper + "\n"}) {
    const auto key = SealKey::Parse(text);
    ASSERT_TRUE(key.ok()) << key.status();
    EXPECT_EQ((*key)->id(), KeyOf(0)->id());
  }
  EXPECT_FALSE(KeyOf(0)->id() == KeyOf(1)->id());
  EXPECT_FALSE(KeyOf(0)->id().IsZero());
}

TEST(SealKeys, AnythingElseIsRefusedWithoutBeingShown) {
  const std::string digits(64, 'a');
  for (const std::string& text :
       {std::string(), std::string(31, 'x'), std::string(33, 'x'), digits.substr(1),
        digits + "\n\n", " " + digits, digits.substr(1) + "g", digits + digits}) {
    const auto key = SealKey::Parse(text);
    EXPECT_EQ(key.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_EQ(Message(key.status()), "a key is 32 bytes, or 64 hexadecimal digits");
  }
}

TEST(SealKeys, DeriveOtherBytesForOtherSaltsAndPurposes) {
  const SharedSealKey key = KeyOf(0);
  std::set<std::array<unsigned char, kSealKeyBytes>> seen;
  for (const char* salt : {"", "a", "b"}) {
    for (const char* purpose : {"", "a", "b"}) seen.insert(key->Derive(salt, purpose));
  }
  EXPECT_EQ(seen.size(), 9u);
  EXPECT_EQ(key->Derive("a", "b"), KeyOf(0)->Derive("a", "b"));
}

TEST(Sealers, OneBitOfAnythingIsNoticed) {
  const Sealer sealer(*KeyOf(0), {1, 2}, "test");
  const std::string plain = "the bytes of a conversation";
  std::string sealed(plain.size(), '\0');
  const SealTag tag = sealer.Seal({1, 7}, "head", plain, sealed.data());
  EXPECT_NE(sealed, plain);
  const auto open = [&](const Sealer& with, SealNonce nonce, std::string_view associated,
                        const std::string& bytes, const SealTag& stored) {
    std::string opened(bytes.size(), 'x');
    const absl::Status status = with.Open(nonce, associated, bytes, stored, opened.data());
    // What is not to be trusted is not handed out either.
    EXPECT_EQ(opened, status.ok() ? plain : std::string(bytes.size(), '\0'));
    return status.code();
  };
  EXPECT_EQ(open(sealer, {1, 7}, "head", sealed, tag), absl::StatusCode::kOk);
  for (std::size_t bit = 0; bit < 8 * sealed.size(); ++bit) {
    std::string damaged = sealed;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    ASSERT_EQ(open(sealer, {1, 7}, "head", damaged, tag), absl::StatusCode::kDataLoss);
  }
  for (int bit = 0; bit < 128; ++bit) {
    SealTag other = tag;
    (bit < 64 ? other.high : other.low) ^= 1ull << bit % 64;
    ASSERT_EQ(open(sealer, {1, 7}, "head", sealed, other), absl::StatusCode::kDataLoss);
  }
  for (const SealNonce nonce : {SealNonce{0, 7}, SealNonce{1, 8}, SealNonce{7, 1}}) {
    EXPECT_EQ(open(sealer, nonce, "head", sealed, tag), absl::StatusCode::kDataLoss);
  }
  EXPECT_EQ(open(sealer, {1, 7}, "heae", sealed, tag), absl::StatusCode::kDataLoss);
  EXPECT_EQ(open(sealer, {1, 7}, "", sealed, tag), absl::StatusCode::kDataLoss);
  for (const auto& other : {std::make_shared<Sealer>(*KeyOf(1), Digest128{1, 2}, "test"),
                            std::make_shared<Sealer>(*KeyOf(0), Digest128{1, 3}, "test"),
                            std::make_shared<Sealer>(*KeyOf(0), Digest128{1, 2}, "tesu")}) {
    EXPECT_EQ(open(*other, {1, 7}, "head", sealed, tag), absl::StatusCode::kDataLoss);
  }
}

TEST(RowSealers, OpenWhatAnyOneOfTheSameKeySealed) {
  RowSealer first(KeyOf(0));
  RowSealer second(KeyOf(0));
  RowSealer stranger(KeyOf(1));
  for (const std::string& value : {std::string(), std::string("v"), std::string(100000, 'v')}) {
    const std::string sealed = first.Seal(3, "key", value);
    EXPECT_EQ(sealed.size(), value.size() + RowSealer::kExtraBytes);
    for (int round = 0; round < 2; ++round) {
      EXPECT_EQ(*first.Open(3, "key", sealed), value);
      EXPECT_EQ(*second.Open(3, "key", sealed), value);
    }
    EXPECT_TRUE(absl::IsDataLoss(stranger.Open(3, "key", sealed).status()));
    EXPECT_TRUE(absl::IsDataLoss(first.Open(4, "key", sealed).status()));
    EXPECT_TRUE(absl::IsDataLoss(first.Open(3, "kez", sealed).status()));
    EXPECT_NE(first.Seal(3, "key", value), sealed) << "a nonce was used twice";
  }
  const std::string sealed = first.Seal(3, "key", "value");
  for (std::size_t length = 0; length < sealed.size(); ++length) {
    EXPECT_TRUE(absl::IsDataLoss(first.Open(3, "key", sealed.substr(0, length)).status()));
  }
  for (std::size_t i = 0; i < sealed.size(); ++i) {
    std::string damaged = sealed;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    EXPECT_TRUE(absl::IsDataLoss(second.Open(3, "key", damaged).status())) << i;
  }
}

TEST(SealedSegments, GoBothWaysAndHideTheirRows) {
  const SharedSealKey key = KeyOf(0);
  std::vector<CatalogueRow> rows = SampleRows();
  rows.push_back({CatalogueRow::Family::kName, "a name's key", "a name nobody should read"});
  const SharedSealer sealer = NewSegmentSealer(key);
  const std::string head = EncodeSegmentHead(77, rows, 4096, sealer.get());
  EXPECT_EQ(head.size(), SegmentHeadBytes(rows, true));
  EXPECT_EQ(head.size(), SegmentHeadBytes(rows, false) + 64);
  EXPECT_EQ(head.find("nobody should read"), std::string::npos);
  EXPECT_EQ(head.find("a name's key"), std::string::npos);
  std::uint64_t needed = 0;
  const auto decoded = DecodeSegmentHead(head + "payload", &needed, key.get());
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->segment, 77u);
  EXPECT_EQ(decoded->payload_bytes, 4096u);
  EXPECT_EQ(decoded->head_bytes, head.size());
  EXPECT_EQ(decoded->rows, rows);
  EXPECT_EQ(decoded->sealer->salt(), sealer->salt());
  EXPECT_EQ(*DecodeSegmentKeyId(head), key->id());
  EXPECT_EQ((*DecodeSegmentSealer(head.substr(0, kSegmentSealBytes), key.get()))->salt(),
            sealer->salt());
  EXPECT_FALSE(NewSegmentSealer(key)->salt() == sealer->salt());
}

TEST(SealedSegments, AreReadInPieces) {
  const SharedSealKey key = KeyOf(0);
  const std::string head = EncodeSegmentHead(77, SampleRows(), 0, NewSegmentSealer(key).get());
  for (std::size_t length = 0; length < head.size(); ++length) {
    std::uint64_t needed = 0;
    const auto decoded = DecodeSegmentHead(head.substr(0, length), &needed, key.get());
    ASSERT_EQ(decoded.status().code(), absl::StatusCode::kOutOfRange) << length;
    ASSERT_EQ(needed, length < 64 ? 64u : length < 128 ? 128u : head.size()) << length;
  }
}

TEST(SealedSegments, AWrongKeyIsNoDamage) {
  const SharedSealKey key = KeyOf(0);
  const std::string sealed = EncodeSegmentHead(77, SampleRows(), 0, NewSegmentSealer(key).get());
  const std::string plain = EncodeSegmentHead(77, SampleRows(), 0);
  std::uint64_t needed = 0;
  const absl::Status none = DecodeSegmentHead(sealed, &needed).status();
  EXPECT_EQ(none.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Message(none),
            "segment head: encrypted with the key " + ToHex(key->id()) + ", and none is given");
  const absl::Status other = DecodeSegmentHead(sealed, &needed, KeyOf(1).get()).status();
  EXPECT_EQ(other.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Message(other), "segment head: encrypted with the key " + ToHex(key->id()) +
                                ", the one given is " + ToHex(KeyOf(1)->id()));
  EXPECT_EQ(DecodeSegmentHead(plain, &needed, key.get()).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(DecodeSegmentKeyId(plain)->IsZero());
  EXPECT_EQ(*DecodeSegmentSealer(plain, nullptr), nullptr);
}

TEST(SealedSegments, NoChangedByteIsBelieved) {
  const SharedSealKey key = KeyOf(0);
  const std::string head = EncodeSegmentHead(77, SampleRows(), 4096, NewSegmentSealer(key).get());
  for (std::size_t i = 0; i < head.size(); ++i) {
    std::string damaged = head;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    std::uint64_t needed = 0;
    const auto decoded = DecodeSegmentHead(damaged, &needed, key.get());
    ASSERT_TRUE(absl::IsDataLoss(decoded.status())) << i << " " << decoded.status();
  }
}

TEST(SealedExtents, OpenOnlyAsThemselves) {
  const SharedSealer sealer = NewSegmentSealer(KeyOf(0));
  StoredExtent extent = SampleExtents()[0];
  extent.stored_bytes = 100;
  std::string stored(100, 'r');
  std::string sealed(100, '\0');
  const std::string header = SealExtent(*sealer, SampleKey(), extent, stored, sealed.data());
  EXPECT_NE(sealed, stored);
  const auto open = [&](std::string_view with_header, const ParkKey& key, const StoredExtent& as) {
    std::string bytes = sealed;
    const absl::Status status = OpenExtent(*sealer, with_header, key, as, bytes, bytes.data());
    if (status.ok()) {
      EXPECT_EQ(bytes, stored);
    }
    return status.code();
  };
  EXPECT_EQ(open(header, SampleKey(), extent), absl::StatusCode::kOk);
  for (std::size_t i = 0; i < header.size(); ++i) {
    std::string damaged = header;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    EXPECT_EQ(open(damaged, SampleKey(), extent), absl::StatusCode::kDataLoss) << i;
    EXPECT_EQ(open(header.substr(0, i), SampleKey(), extent), absl::StatusCode::kDataLoss);
  }
  ParkKey other_park = SampleKey();
  ++other_park.park;
  EXPECT_EQ(open(header, other_park, extent), absl::StatusCode::kDataLoss);
  StoredExtent other = extent;
  ++other.ordinal;
  EXPECT_EQ(open(header, SampleKey(), other), absl::StatusCode::kDataLoss);
  // Another extent's sealed bytes under this one's header.
  std::string swapped(100, '\0');
  SealExtent(*sealer, SampleKey(), other, stored, swapped.data());
  EXPECT_TRUE(
      absl::IsDataLoss(OpenExtent(*sealer, header, SampleKey(), extent, swapped, swapped.data())));
}

TEST(PageHashes, DependOnTheKeyAndOnEverythingBefore) {
  std::vector<Token> first(kPageTokens, 5);
  std::vector<Token> second(kPageTokens, 6);
  const std::string key = PageHashKey(KeyOf(0));
  EXPECT_EQ(key.size(), kSealKeyBytes);
  EXPECT_EQ(PageHashKey(nullptr), "");
  std::set<std::uint64_t> seen;
  for (const std::string& hash_key : {std::string(), key, PageHashKey(KeyOf(1))}) {
    for (const Digest128& secret : {Digest128{1, 2}, Digest128{1, 3}}) {
      for (const Digest128& identity : {Digest128{4, 5}, Digest128{4, 6}}) {
        PageHasher hasher(secret, identity, hash_key);
        PageHasher again(secret, identity, hash_key);
        PageHasher swapped(secret, identity, hash_key);
        const std::uint64_t one = hasher.Next(first.data());
        const std::uint64_t two = hasher.Next(second.data());
        EXPECT_EQ(again.Next(first.data()), one);
        EXPECT_EQ(again.Next(second.data()), two);
        EXPECT_TRUE(seen.insert(one).second);
        EXPECT_TRUE(seen.insert(two).second);
        EXPECT_TRUE(seen.insert(swapped.Next(second.data())).second);
        EXPECT_TRUE(seen.insert(swapped.Next(first.data())).second);
      }
    }
  }
}

}  // namespace
}  // namespace parkade
