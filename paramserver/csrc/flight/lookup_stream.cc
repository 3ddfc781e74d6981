#include "paramserver/csrc/flight/lookup_stream.h"

#include <arrow/api.h>
#include <arrow/flight/api.h>

#include <utility>
#include <variant>

namespace paramserver::flight {

LookupStream::~LookupStream() { finish(); }

arrow::Status LookupStream::run() {
  writer_.begin();
  arrow::Status ended;
  while (true) {
    auto next = reader_.Next();
    if (!next.ok()) {
      writer_.set_gone();
      ended = next.status();
      break;
    }
    if (next->data == nullptr && next->app_metadata == nullptr) break;
    take(*next);
  }
  finish();
  return ended;
}

void LookupStream::take(arrow::flight::FlightStreamChunk& chunk) {
  const auto arrived = std::chrono::steady_clock::now();
  const auto& metadata = chunk.app_metadata;
  auto read = read_lookup(metadata == nullptr ? nullptr : metadata->data(),
                          metadata == nullptr ? 0 : static_cast<std::size_t>(metadata->size()), std::move(chunk.data));
  if (const auto* bad = std::get_if<BadMessage>(&read)) {
    add(context_.counters.messages_bad, 1);
    LookupHeader header;
    header.lookup = bad->lookup;
    refuse(context_, header, AnswerCode::kBadRequest, bad->reason, writer_);
    return;
  }
  take_lookup({std::get<LookupMessage>(std::move(read)), arrived});
}

void LookupStream::take_lookup(ArrivedLookup lookup) {
  const LookupHeader header = lookup.message.header;
  if (closing_.load(std::memory_order_relaxed)) {
    refuse(context_, header, AnswerCode::kClosing, "this server is closing: ask another replica", writer_);
  } else if (header.ids <= bounds_.inline_ids_max && !may_wait(context_, lookup.message)) {
    const InFlight::Entry entry(context_.counters.lookups);
    answer(context_, lookup, writer_);
  } else if (!enqueue(lookup)) {
    refuse(context_, header, AnswerCode::kOverloaded,
           "this stream has its maximum of lookups or ids in flight: " + std::to_string(bounds_.lookups_max) + " and " +
               std::to_string(bounds_.ids_in_flight_max),
           writer_);
  }
}

bool LookupStream::enqueue(ArrivedLookup& lookup) {
  const std::lock_guard lock(mutex_);
  if (lookups_ >= bounds_.lookups_max || ids_ + lookup.message.header.ids > bounds_.ids_in_flight_max) return false;
  ++lookups_;
  ids_ += lookup.message.header.ids;
  queue_.push_back(std::move(lookup));
  if (idle_ < queue_.size() && threads_.size() < bounds_.threads_max) {
    threads_.emplace_back([this] { answer_queued(); });
  }
  changed_.notify_one();
  return true;
}

void LookupStream::answer_queued() {
  std::unique_lock lock(mutex_);
  while (true) {
    ++idle_;
    changed_.wait(lock, [&] { return finished_ || !queue_.empty(); });
    --idle_;
    if (queue_.empty()) return;
    const ArrivedLookup lookup = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    {
      const InFlight::Entry entry(context_.counters.lookups);
      answer(context_, lookup, writer_);
    }
    lock.lock();
    --lookups_;
    ids_ -= lookup.message.header.ids;
  }
}

void LookupStream::finish() {
  {
    const std::lock_guard lock(mutex_);
    finished_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

}  // namespace paramserver::flight
