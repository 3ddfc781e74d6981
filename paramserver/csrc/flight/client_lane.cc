#include "paramserver/csrc/flight/client_lane.h"

#include <arrow/api.h>
#include <arrow/flight/api.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>
#include <vector>

#include "paramserver/csrc/clock.h"

namespace paramserver::flight {
namespace {

namespace fl = arrow::flight;

constexpr std::uint32_t kFirstPauseMs = 20;

const std::shared_ptr<arrow::Schema>& ids_schema() {
  static const auto schema = arrow::schema({arrow::field("id", arrow::int64(), false)});
  return schema;
}

// Ids that stay alive for as long as Arrow holds the buffer.
class IdsBuffer final : public arrow::Buffer {
 public:
  explicit IdsBuffer(ShardIds ids)
      : arrow::Buffer(reinterpret_cast<const std::uint8_t*>(ids->data()), static_cast<std::int64_t>(ids->size() * 8)),
        ids_(std::move(ids)) {}

 private:
  ShardIds ids_;
};

std::shared_ptr<arrow::Buffer> metadata_of(const Try& lookup) {
  std::string bytes(sizeof lookup.header + lookup.table.size(), '\0');
  std::memcpy(bytes.data(), &lookup.header, sizeof lookup.header);
  std::memcpy(bytes.data() + sizeof lookup.header, lookup.table.data(), lookup.table.size());
  return arrow::Buffer::FromString(std::move(bytes));
}

std::uint64_t bytes_of(const Try& lookup) {
  return std::uint64_t{lookup.header.ids} * (sizeof(std::int64_t) + 1 + wire_row_bytes(lookup.header.wire, lookup.dim));
}

// A lookup without ids, which any live server answers, if only to refuse it: what `last` asked for, if anything was.
std::shared_ptr<Try> sign_of_life(const Try& last) {
  auto lookup = std::make_shared<Try>();
  lookup->header = last.header;
  lookup->header.ids = 0;
  lookup->header.budget_us = 0;
  lookup->table = last.table.empty() ? "?" : last.table;
  lookup->header.name_bytes = static_cast<std::uint8_t>(lookup->table.size());
  lookup->dim = last.dim;
  lookup->ids = std::make_shared<const std::vector<std::int64_t>>();
  lookup->mailbox = std::make_shared<Mailbox>();
  return lookup;
}

fl::FlightClientOptions connection_options(const LaneOptions& options) {
  fl::FlightClientOptions flight = fl::FlightClientOptions::Defaults();
  flight.tls_root_certs = options.tls_root_certs;
  flight.override_hostname = options.tls_override_hostname;
  const int connect_ms = static_cast<int>(options.connect_ms);
  // Connections are not shared between lanes, nor are their pauses after a failure: the lane has its own.
  flight.generic_options = {{"grpc.use_local_subchannel_pool", 1},
                            {"grpc.min_reconnect_backoff_ms", connect_ms},
                            {"grpc.initial_reconnect_backoff_ms", connect_ms},
                            {"grpc.max_reconnect_backoff_ms", connect_ms}};
  return flight;
}

}  // namespace

struct Lane::Stream {
  std::unique_ptr<fl::FlightClient> client;
  std::unique_ptr<fl::FlightStreamWriter> writer;
  std::unique_ptr<fl::FlightStreamReader> reader;
  bool broken = false;     // these two under the lane's mutex
  std::string given_up{};  // why this side ended it
};

Lane::Lane(std::string address, LaneOptions options)
    : address_(std::move(address)), options_(std::move(options)), thread_([this] { run(); }) {}

Lane::~Lane() { stop(); }

bool Lane::send(const std::shared_ptr<Try>& lookup) {
  const std::uint64_t bytes = bytes_of(*lookup);
  const std::lock_guard lock(mutex_);
  if (stream_ == nullptr || stream_->broken || stopping_) return false;
  if (queue_.size() >= options_.lookups_max || waiting_.size() >= options_.lookups_max) return false;
  if (waiting_bytes_ > 0 && waiting_bytes_ + bytes > options_.bytes_max) return false;
  lookup->header.lookup = ++last_number_;
  lookup->sent_ns = lookup->heard_ns = monotonic_ns();
  waiting_.emplace(lookup->header.lookup, lookup);
  waiting_bytes_ += bytes;
  queue_.push_back(lookup->header.lookup);
  counted_.sent += 1;
  last_.header = lookup->header;
  last_.table = lookup->table;
  last_.dim = lookup->dim;
  in_flight_.store(static_cast<std::uint32_t>(waiting_.size()), std::memory_order_relaxed);
  work_.notify_one();
  return true;
}

void Lane::forget(const Try& lookup) noexcept {
  const std::lock_guard lock(mutex_);
  if (waiting_.erase(lookup.header.lookup) > 0) waiting_bytes_ -= bytes_of(lookup);
  in_flight_.store(static_cast<std::uint32_t>(waiting_.size()), std::memory_order_relaxed);
}

void Lane::suspect() noexcept {
  LaneState up = LaneState::kUp;
  if (state_.compare_exchange_strong(up, LaneState::kSuspect)) suspect_ns_.store(monotonic_ns());
}

void Lane::tick(std::int64_t now_ns) {
  const std::int64_t ms = 1'000'000;
  const std::int64_t since = suspect_ns_.load();
  const std::int64_t opening = opening_ns_.load();
  const bool stalled = state() == LaneState::kSuspect && since != 0 && now_ns - since > options_.stall_ms * ms;
  const bool dumb = opening != 0 && now_ns - opening > 2 * std::int64_t{options_.connect_ms} * ms;
  if (stalled || dumb) {
    const std::lock_guard lock(mutex_);
    if (stream_ == nullptr) return;
    stream_->given_up = "the replica fell silent";
    stream_->reader->Cancel();
  } else if (now_ns - heard_ns_.load() > options_.quiet_ms * ms) {
    ask_for_a_sign();
  }
}

void Lane::ask_for_a_sign() {
  std::shared_ptr<Try> lookup;
  {
    const std::lock_guard lock(mutex_);
    const auto asked = waiting_.find(sign_);
    if (asked != waiting_.end()) {
      if (monotonic_ns() - asked->second->sent_ns > options_.quiet_ms * std::int64_t{500'000}) suspect();
      return;
    }
    lookup = sign_of_life(last_);
  }
  if (!send(lookup)) return;
  const std::lock_guard lock(mutex_);
  sign_ = lookup->header.lookup;
}

void Lane::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    if (stream_ != nullptr) stream_->reader->Cancel();
    work_.notify_all();
  }
  std::call_once(joined_, [this] { thread_.join(); });
}

LaneStats Lane::stats() const {
  const std::lock_guard lock(mutex_);
  LaneStats stats = counted_;
  stats.state = state();
  stats.in_flight = static_cast<std::uint32_t>(waiting_.size());
  return stats;
}

void Lane::run() {
  std::uint32_t pause_ms = kFirstPauseMs;
  for (;;) {
    Stream stream;
    opening_ns_.store(monotonic_ns());
    arrow::Status opened = open(stream);
    std::thread reader;
    if (opened.ok()) {
      {
        const std::lock_guard lock(mutex_);
        stream_ = &stream;
      }
      reader = std::thread([&] { read(stream); });
      ask_for_a_sign();
      write_until_broken(stream);
      stream.reader->Cancel();
      reader.join();
    } else {
      const std::lock_guard lock(mutex_);
      counted_.problem = opened.ToString();
    }
    // Down unless it was up until now: then the first attempt to open it again is still to be waited for.
    const bool was_up = state_.load() == LaneState::kUp;
    state_.store(was_up ? LaneState::kOpening : LaneState::kDown);
    suspect_ns_.store(0);
    opening_ns_.store(0);
    end(stream);
    fail_all("the stream to " + address_ + " broke");
    pause_ms = was_up ? kFirstPauseMs : std::min(2 * pause_ms, options_.retry_ms);
    if (!pause(was_up ? 0 : pause_ms)) return state_.store(LaneState::kDown);
  }
}

// False when the lane is to stop.
bool Lane::pause(std::uint32_t pause_ms) {
  std::unique_lock lock(mutex_);
  work_.wait_for(lock, std::chrono::milliseconds(pause_ms), [this] { return stopping_; });
  return !stopping_;
}

arrow::Status Lane::open(Stream& stream) {
  ARROW_ASSIGN_OR_RAISE(const fl::Location location, fl::Location::Parse(address_));
  ARROW_ASSIGN_OR_RAISE(stream.client, fl::FlightClient::Connect(location, connection_options(options_)));
  fl::FlightCallOptions call;
  if (!options_.token.empty()) call.headers.emplace_back("authorization", "Bearer " + options_.token);
  ARROW_ASSIGN_OR_RAISE(auto exchange, stream.client->DoExchange(call, fl::FlightDescriptor::Command("lookup")));
  stream.writer = std::move(exchange.writer);
  stream.reader = std::move(exchange.reader);
  return stream.writer->Begin(ids_schema());
}

void Lane::write_until_broken(Stream& stream) {
  while (const std::shared_ptr<Try> lookup = next(stream)) {
    if (const arrow::Status written = write(stream, *lookup); !written.ok()) {
      break_stream(stream, written.ToString());
      return;
    }
  }
}

// The next message that somebody still waits for; null when there is nothing more to do for this stream.
std::shared_ptr<Try> Lane::next(const Stream& stream) {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [&] { return stopping_ || stream.broken || !queue_.empty(); });
    if (stopping_ || stream.broken) return nullptr;
    const auto found = waiting_.find(queue_.front());
    queue_.pop_front();
    if (found != waiting_.end()) return found->second;
  }
}

arrow::Status Lane::write(Stream& stream, const Try& lookup) {
  const auto n = static_cast<std::int64_t>(lookup.header.ids);
  const auto column = arrow::ArrayData::Make(arrow::int64(), n, {nullptr, std::make_shared<IdsBuffer>(lookup.ids)}, 0);
  return stream.writer->WriteWithMetadata(*arrow::RecordBatch::Make(ids_schema(), n, {column}), metadata_of(lookup));
}

void Lane::end(Stream& stream) {
  {
    const std::lock_guard lock(mutex_);
    stream_ = nullptr;
  }
  // The call must be finished before its client goes; what it ended with is known from the reader.
  if (stream.writer != nullptr) (void)stream.writer->Close();
}

void Lane::read(Stream& stream) {
  for (;;) {
    arrow::Result<fl::FlightStreamChunk> next = stream.reader->Next();
    if (!next.ok()) return break_stream(stream, next.status().ToString());
    if (next->app_metadata == nullptr && next->data == nullptr) return break_stream(stream, "the server ended it");
    heard();
    take(read_answer(next->app_metadata.get(), std::move(next->data)));
  }
}

void Lane::take(std::variant<Chunk, BadAnswer> message) {
  const auto* bad = std::get_if<BadAnswer>(&message);
  const std::uint64_t number = bad == nullptr ? std::get<Chunk>(message).header.lookup : bad->lookup;
  std::shared_ptr<Try> lookup;
  {
    const std::lock_guard lock(mutex_);
    if (bad != nullptr) counted_.bad += 1;
    const auto found = waiting_.find(number);
    if (found == waiting_.end()) {
      if (bad == nullptr) counted_.late += 1;
      return;
    }
    lookup = found->second;
  }
  if (bad != nullptr) {
    fail(*lookup, bad->reason);
  } else if (!deliver(*lookup, std::move(std::get<Chunk>(message)), monotonic_ns())) {
    return;
  }
  forget(*lookup);
}

void Lane::heard() noexcept {
  heard_ns_.store(monotonic_ns());
  if (state_.load() == LaneState::kUp) return;
  suspect_ns_.store(0);
  if (opening_ns_.exchange(0) != 0) {
    const std::lock_guard lock(mutex_);
    counted_.opened += 1;
  }
  state_.store(LaneState::kUp, std::memory_order_release);
}

void Lane::fail_all(const std::string& reason) {
  std::unordered_map<std::uint64_t, std::shared_ptr<Try>> lost;
  {
    const std::lock_guard lock(mutex_);
    lost.swap(waiting_);
    queue_.clear();
    waiting_bytes_ = 0;
    in_flight_.store(0, std::memory_order_relaxed);
  }
  for (const auto& [number, lookup] : lost) fail(*lookup, reason);
}

void Lane::break_stream(Stream& stream, const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (stream.broken) return;
    stream.broken = true;
    counted_.broken += 1;
    if (!stopping_) counted_.problem = stream.given_up.empty() ? reason : stream.given_up;
    work_.notify_all();
  }
  fail_all("the stream to " + address_ + " broke: " + reason);
}

}  // namespace paramserver::flight
