// The fakes of fakes.h for Python tests, as what a capsule holds.
#include <memory>
#include <sstream>

#include "tests/lambda_svc/native/fakes.h"
#include "tests/lambda_svc/native/probe_op.h"

using namespace lambda_svc::test;

void* lambda_fake_features(const char* slots) {
  std::vector<SlotSpec> specs;
  std::istringstream all(slots);
  for (std::string one; std::getline(all, one, ';');) {
    std::istringstream words(one);
    int dtype = 0, layout = 0;
    std::uint32_t width = 0;
    words >> dtype >> layout >> width;
    specs.push_back({"slot" + std::to_string(specs.size()), static_cast<feature_store::DType>(dtype),
                     static_cast<Layout>(layout), width});
  }
  return new std::shared_ptr<const feature_store::FeatureSource>(std::make_shared<FakeFeatures>(specs));
}

void* lambda_fake_table(std::uint32_t dim) {
  return new std::shared_ptr<const paramserver::RowSource>(std::make_shared<FakeTable>(dim));
}
