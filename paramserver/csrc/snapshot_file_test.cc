// Snapshots without Python: what is written comes back for every geometry, the builder sorts what does not fit in
// memory, and a writer that ends early leaves nothing.
#include "paramserver/csrc/snapshot_file.h"

#include <dirent.h>
#include <stdlib.h>

#include <cstring>
#include <string>
#include <vector>

#include "paramserver/csrc/check.h"
#include "paramserver/csrc/error.h"
#include "paramserver/csrc/hash.h"
#include "paramserver/csrc/snapshot_file_builder.h"
#include "paramserver/csrc/snapshot_file_writer.h"

using namespace paramserver;

namespace {

std::size_t files_in(const std::string& folder) {
  std::size_t files = 0;
  DIR* open = ::opendir(folder.c_str());
  while (const dirent* entry = ::readdir(open)) files += entry->d_name[0] != '.' || std::strlen(entry->d_name) > 2;
  ::closedir(open);
  return files;
}

std::int64_t id_of(std::uint64_t i) { return static_cast<std::int64_t>(i * 0x9e3779b97f4a7c15ULL); }

// A row that says whose it is.
std::vector<std::byte> row_of(std::int64_t id, std::size_t row_bytes) {
  std::vector<std::byte> row(row_bytes);
  for (std::size_t j = 0; j < row_bytes; ++j) row[j] = static_cast<std::byte>(mix(id) >> j % 8 * 8 ^ j);
  return row;
}

void builder_round_trip(const std::string& folder, std::uint32_t dim, std::uint64_t rows, std::uint64_t memory) {
  const std::string path = folder + "/t.snap";
  const SnapshotHeader header{.stored = Stored::kF32, .dim = dim, .times = dim % 2 == 1, .rows = rows,
                              .base_sequence = 7, .package_version = -3, .time_s = 11};
  const std::vector<std::byte> default_row = row_of(5, header.row_bytes());
  SnapshotBuilder builder(path, header, default_row.data(), memory);
  for (std::uint64_t i = 0; i < rows; ++i) {
    const std::int64_t id = id_of(i);
    const auto time = static_cast<std::uint32_t>(i);
    builder.add(&id, row_of(id, header.row_bytes()).data(), &time, 1);
  }
  while (builder.write_partition()) {
  }
  builder.finish();
  CHECK(builder.rows_written() == rows);
  CHECK((builder.spilled_bytes() > 0) == (rows * header.row_bytes() > memory + (8 << 20)));
  const auto file = SnapshotFile::open(path);
  file->verify_blocks(0, file->layout().blocks());
  file->check_order(0, rows);
  CHECK(file->rows() == rows && file->header().base_sequence == 7 && file->header().package_version == -3);
  CHECK(std::memcmp(file->default_row(), default_row.data(), default_row.size()) == 0);
  std::vector<std::byte> all(rows * header.row_bytes());
  file->read_rows(0, rows, all.data());
  bool same = true;
  for (std::uint64_t i = 0; i < rows; ++i) {
    const std::vector<std::byte> row = row_of(file->ids()[i], header.row_bytes());
    same = same && std::memcmp(&all[i * row.size()], row.data(), row.size()) == 0;
    same = same && std::memcmp(file->mapped_row(i), row.data(), row.size()) == 0;
    if (header.times) same = same && id_of(file->times()[i]) == file->ids()[i];
  }
  CHECK(same);
  CHECK(files_in(folder) == 1);
}

template <class Fault, class Call>
void check_throws(Call&& call) {
  bool thrown = false;
  try {
    call();
  } catch (const Fault&) {
    thrown = true;
  }
  CHECK(thrown);
}

void writer_refuses(const std::string& folder) {
  const SnapshotHeader header{.dim = 1, .rows = 2};
  const float row = 1;
  const auto* bytes = reinterpret_cast<const std::byte*>(&row);
  const std::int64_t low = mix(1) < mix(2) ? 1 : 2, high = 3 - low;
  const std::string path = folder + "/u.snap";
  {
    SnapshotWriter writer(path, header, bytes);
    writer.append_packed(&high, bytes, nullptr, 1);
    check_throws<OptionError>([&] { writer.append_packed(&low, bytes, nullptr, 1); });
    check_throws<DuplicateIdError>([&] { writer.append_packed(&high, bytes, nullptr, 1); });
    check_throws<OptionError>([&] { writer.finish(); });
    CHECK(files_in(folder) == 2);
  }
  CHECK(files_in(folder) == 1);
  check_throws<TableFileError>([&] { SnapshotFile::open(path); });
  check_throws<TableFileError>([&] { SnapshotFile::open(folder); });
}

}  // namespace

int main() {
  char folder[] = "/tmp/snapshot_file_test.XXXXXX";
  if (::mkdtemp(folder) == nullptr) return 1;
  const std::uint64_t all = std::uint64_t{1} << 30;
  for (std::uint64_t rows : {0u, 1u, 17u, 40000u}) builder_round_trip(folder, 7, rows, all);
  for (std::uint32_t dim : {1u, 32u, 512u, 1024u, 1025u, 3000u, 4096u}) builder_round_trip(folder, dim, 700, all);
  builder_round_trip(folder, 65, 60000, std::uint64_t{1} << 20);
  writer_refuses(folder);
  const std::string last = std::string(folder) + "/t.snap";
  ::remove(last.c_str());
  ::remove(folder);
  return check_failures == 0 ? 0 : 1;
}
