#include "paramserver/csrc/flight/bearer_tokens.h"

#include <arrow/flight/api.h>
#include <arrow/flight/server_middleware.h>

#include <string_view>
#include <utility>

namespace paramserver::flight {
namespace {

using arrow::flight::FlightMethod;

bool same(std::string_view expected, std::string_view came) noexcept {
  unsigned different = expected.size() != came.size();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const char other = i < came.size() ? came[i] : '\0';
    different |= static_cast<unsigned char>(expected[i]) ^ static_cast<unsigned char>(other);
  }
  return different == 0;
}

bool any_same(const std::vector<std::string>& tokens, std::string_view came) noexcept {
  bool found = false;
  for (const std::string& token : tokens) found |= same(token, came);
  return found;
}

std::string_view bearer_of(const arrow::flight::ServerCallContext& context) {
  constexpr std::string_view prefix = "Bearer ";
  const auto& headers = context.incoming_headers();
  const auto found = headers.find("authorization");
  if (found == headers.end() || !found->second.starts_with(prefix)) return {};
  return found->second.substr(prefix.size());
}

class TokenCheck final : public arrow::flight::ServerMiddlewareFactory {
 public:
  TokenCheck(Tokens tokens, Counter& refused) : tokens_(std::move(tokens)), refused_(refused) {}

  arrow::Status StartCall(const arrow::flight::CallInfo& info, const arrow::flight::ServerCallContext& context,
                          std::shared_ptr<arrow::flight::ServerMiddleware>* middleware) override {
    const std::string_view came = bearer_of(context);
    const bool controls = any_same(tokens_.control.empty() ? tokens_.lookup : tokens_.control, came);
    const bool looks_up = any_same(tokens_.lookup, came);
    if (controls || (looks_up && info.method == FlightMethod::DoExchange)) return arrow::Status::OK();
    add(refused_, 1);
    const std::string json =
        R"({"error": "RemoteError", "message": "this call needs a bearer token that the server knows for it"})";
    return arrow::flight::MakeFlightError(arrow::flight::FlightStatusCode::Unauthenticated, json, json);
  }

 private:
  const Tokens tokens_;
  Counter& refused_;
};

}  // namespace

std::shared_ptr<arrow::flight::ServerMiddlewareFactory> token_check(Tokens tokens, Counter& refused) {
  if (tokens.lookup.empty() && tokens.control.empty()) return nullptr;
  return std::make_shared<TokenCheck>(std::move(tokens), refused);
}

}  // namespace paramserver::flight
