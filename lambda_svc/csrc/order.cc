#include <cmath>

#include "lambda_svc/csrc/stages.h"
#include "lambda_svc/csrc/topk.h"

namespace lambda_svc {
namespace {

void score(const Plan& plan, const RankRequest& request, const Workspace& space, std::size_t n) {
  const auto** heads = space.at<const float*>(plan.head_list);
  for (std::size_t h = 0; h < plan.heads(); ++h) heads[h] = space.at<float>(plan.head_scores + h);
  std::vector<const void*> inputs;
  for (const Buffer& input : request.formula_inputs) inputs.push_back(input.data);
  plan.spec().formula->evaluate(heads, inputs.data(), n, space.at<double>(plan.rank_scores),
                                space.at<double>(plan.formula_stack));
}

std::uint8_t flags_of(double score, bool known) {
  return static_cast<std::uint8_t>((known ? 0 : kCandidateUnknown) | (std::isnan(score) ? kCandidateNan : 0));
}

}  // namespace

void order(const Plan& plan, const RankRequest& request, const Workspace& space, RankResult* result) {
  const std::size_t n = result->scored;
  score(plan, request, space, n);
  const auto* scores = space.at<double>(plan.rank_scores);
  const auto* best = space.at<std::uint32_t>(plan.order);
  const std::size_t k =
      top_k(scores, n, request.top_k, space.at<RankKey>(plan.rank_keys), space.at<std::uint32_t>(plan.order));
  for (std::size_t i = 0; i < n; ++i) result->nan_scores += std::isnan(scores[i]) ? 1 : 0;

  const bool cached = plan.cached(Side::kItem);
  const auto* known = cached ? space.at<std::uint8_t>(plan.side(Side::kItem).known) : nullptr;
  const auto* ids = space.at<std::int64_t>(plan.candidate_ids);
  result->positions.assign(best, best + k);
  result->candidate_ids.resize(k);
  result->rank_scores.resize(k);
  result->flags.resize(k);
  result->heads.resize(plan.heads() * k);
  for (std::size_t i = 0; i < k; ++i) {
    result->candidate_ids[i] = ids[best[i]];
    result->rank_scores[i] = scores[best[i]];
    result->flags[i] = flags_of(scores[best[i]], known == nullptr || known[best[i]] != 0);
  }
  for (std::size_t h = 0; h < plan.heads(); ++h) {
    const auto* head = space.at<float>(plan.head_scores + h);
    for (std::size_t i = 0; i < k; ++i) result->heads[h * k + i] = head[best[i]];
  }
}

}  // namespace lambda_svc
