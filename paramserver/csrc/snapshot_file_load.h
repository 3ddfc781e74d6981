// Snapshots into tables in RAM: the slots are read in file order by several threads, checked, and handed to the table.
//
// Thread-safety: from one thread for each table; it starts threads of its own.
#pragma once

#include <cstdint>

#include "paramserver/csrc/snapshot_file.h"
#include "paramserver/csrc/table.h"

namespace paramserver {

// The sizes and the type of both must be the same: throws OptionError.
void load_default_row(const SnapshotFile& file, Table& table);

// A step is a few blocks of the slots section, and holds whole rows.
std::uint64_t load_steps(const SnapshotFile& file) noexcept;

// Puts the rows of steps [first, end) into the table and returns how many they are. The system is asked to read `ahead`
// steps more meanwhile. Throws StoreDamaged (with `verify`), TableFileError, MemoryExhausted, and as Table::load_rows;
// the table then has a part of the rows.
std::uint64_t load_rows(const SnapshotFile& file, Table& table, std::uint64_t first, std::uint64_t end,
                        std::uint64_t ahead, unsigned threads, bool verify);

}  // namespace paramserver
