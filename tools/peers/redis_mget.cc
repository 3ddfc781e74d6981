// Redis through its C client hiredis: one MGET of a batch of ids. Speaks the protocol of protocol.py:
//   redis_mget PORT ROWS BYTES BATCH FILE
//
// Keys are the 8 bytes of an id, values BYTES bytes of row. Rows are set in pipelines of 10,000; a batch is one MGET
// command, and its time ends when every value is copied into one array.
#include <hiredis/hiredis.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "tools/peers/batches.h"

namespace {

constexpr std::size_t kPipeline = 10'000;

int failed(const redisContext* redis, const char* what) {
  std::fprintf(stderr, "redis_mget: %s: %s\n", what, redis->errstr);
  return 1;
}

int fill(redisContext* redis, std::size_t rows, std::size_t bytes) {
  std::vector<char> value(bytes);
  for (std::size_t first = 0; first < rows; first += kPipeline) {
    const std::size_t end = first + kPipeline < rows ? first + kPipeline : rows;
    for (std::size_t row = first; row < end; ++row) {
      const std::int64_t id = static_cast<std::int64_t>(row) * kOdd;
      std::memset(value.data(), static_cast<int>(row % 251), bytes);
      const char* words[] = {"SET", reinterpret_cast<const char*>(&id), value.data()};
      const std::size_t lengths[] = {3, sizeof(id), bytes};
      if (redisAppendCommandArgv(redis, 3, words, lengths) != REDIS_OK) return failed(redis, "SET");
    }
    for (std::size_t row = first; row < end; ++row) {
      void* reply = nullptr;
      if (redisGetReply(redis, &reply) != REDIS_OK) return failed(redis, "SET");
      freeReplyObject(reply);
    }
  }
  return 0;
}

int serve(redisContext* redis, std::size_t bytes, std::size_t batch, const char* file) {
  std::vector<const char*> words(batch + 1, "MGET");
  std::vector<std::size_t> lengths(batch + 1, sizeof(std::int64_t));
  std::vector<unsigned char> out(batch * bytes);
  lengths[0] = 4;
  return answer_batches(file, batch, out, "one MGET a batch", 0, 0, [&](const std::vector<std::int64_t>& ids) {
    for (std::size_t i = 0; i < batch; ++i) words[i + 1] = reinterpret_cast<const char*>(&ids[i]);
    auto* reply = static_cast<redisReply*>(
        redisCommandArgv(redis, static_cast<int>(batch + 1), words.data(), lengths.data()));
    if (reply == nullptr) return failed(redis, "MGET") == 0;
    for (std::size_t i = 0; i < reply->elements; ++i) {
      const redisReply* one = reply->element[i];
      if (one->type == REDIS_REPLY_STRING && static_cast<std::size_t>(one->len) == bytes) {
        std::memcpy(out.data() + i * bytes, one->str, bytes);
      }
    }
    freeReplyObject(reply);
    return true;
  });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  redisContext* redis = redisConnect("127.0.0.1", std::stoi(argv[1]));
  if (redis == nullptr || redis->err != 0) {
    std::fprintf(stderr, "redis_mget: no redis at 127.0.0.1:%s\n", argv[1]);
    return 1;
  }
  const std::size_t rows = std::stoull(argv[2]), bytes = std::stoull(argv[3]), batch = std::stoull(argv[4]);
  return fill(redis, rows, bytes) != 0 ? 1 : serve(redis, bytes, batch, argv[5]);
}
