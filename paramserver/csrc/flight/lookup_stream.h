// One DoExchange call: reads lookups as they come and answers them, small ones where they are read, the others on
// threads of this stream.
//
// A client that stops reading makes writes wait. Every stream therefore has threads and bounds of its own, so that such
// a client stalls nobody else.
// Thread-safety: run() is called once, by the thread of the call. Ownership: reader and writer must outlive this.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "paramserver/csrc/flight/answer_writer.h"
#include "paramserver/csrc/flight/lookup_answer.h"

namespace arrow::flight {
class FlightMessageReader;
struct FlightStreamChunk;
}  // namespace arrow::flight

namespace paramserver::flight {

struct StreamBounds {
  std::size_t lookups_max = 256;              // unanswered on one stream
  std::size_t ids_in_flight_max = 4 << 20;    // of them together
  std::size_t threads_max = 2;                // that answer, beside the one that reads
  std::size_t inline_ids_max = 8192;          // a lookup of at most so many ids is answered by the thread that reads
};

class LookupStream {
 public:
  LookupStream(const AnswerContext& context, const StreamBounds& bounds, const std::atomic<bool>& closing,
               arrow::flight::FlightMessageReader& reader, arrow::flight::FlightMessageWriter& writer)
      : context_(context), bounds_(bounds), closing_(closing), reader_(reader), writer_(writer) {}
  ~LookupStream();

  // Until the client ends the stream and everything it asked is answered, or the stream breaks.
  arrow::Status run();

 private:
  void take(arrow::flight::FlightStreamChunk& chunk);
  void take_lookup(ArrivedLookup lookup);
  bool enqueue(ArrivedLookup& lookup);
  void answer_queued();
  void finish();

  const AnswerContext& context_;
  const StreamBounds bounds_;
  const std::atomic<bool>& closing_;
  arrow::flight::FlightMessageReader& reader_;
  AnswerWriter writer_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<ArrivedLookup> queue_;
  std::size_t lookups_ = 0;  // queued or being answered by `threads_`
  std::size_t ids_ = 0;      // of them
  std::size_t idle_ = 0;     // threads that wait for a lookup
  bool finished_ = false;    // no lookup will be queued any more
  std::vector<std::thread> threads_;
};

}  // namespace paramserver::flight
