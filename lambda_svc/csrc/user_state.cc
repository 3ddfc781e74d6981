#include "lambda_svc/csrc/user_state.h"

#include <cstring>

namespace lambda_svc {
namespace {

std::size_t bytes_of(const Plan& plan) {
  std::size_t bytes = 0;
  for (const FeedPlan& value : plan.user_values) bytes += value.bytes_per_row;
  return bytes;
}

}  // namespace

UserState::UserState(const Plan& plan, const Workspace& space, std::uint64_t epoch, const RankResult& made)
    : items_(plan.spec().executable),
      user_(plan.spec().user),
      epoch_(epoch),
      values_(bytes_of(plan)),
      features_(made.features[static_cast<int>(Side::kUser)]),
      tables_(made.tables),
      unknown_user_(made.unknown_user) {
  std::byte* to = values_.data();
  for (const FeedPlan& value : plan.user_values) {
    std::memcpy(to, space.at<std::byte>(value.region), value.bytes_per_row);
    to += value.bytes_per_row;
  }
}

bool UserState::fits(const Plan& plan, std::uint64_t epoch) const {
  return epoch == epoch_ && items_.lock() == plan.spec().executable && user_.lock() == plan.spec().user &&
         values_.size() == bytes_of(plan) && tables_.size() == plan.spec().tables.size();
}

void UserState::restore(const Plan& plan, const Workspace& space, RankResult* result) const {
  const std::byte* from = values_.data();
  for (const FeedPlan& value : plan.user_values) {
    std::memcpy(space.at<std::byte>(value.region), from, value.bytes_per_row);
    from += value.bytes_per_row;
  }
  result->features[static_cast<int>(Side::kUser)] = features_;
  result->tables = tables_;
  result->unknown_user = unknown_user_;
}

std::size_t UserState::bytes() const {
  return sizeof(UserState) + values_.capacity() + tables_.capacity() * sizeof(tables_[0]);
}

}  // namespace lambda_svc
