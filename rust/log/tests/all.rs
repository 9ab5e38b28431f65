//! Tests of a log through its interface.
//!
//! They are one program, since a program of each would take a second to build and nothing to run.
//! `Cargo.toml` names the others.

mod common;

mod adopted;
mod append_read;
mod at_end;
mod cached_damage;
mod cleaner;
mod compaction;
mod deletion;
mod directory;
mod down_convert;
mod full_map;
mod giving_way;
mod holes;
mod join;
mod join_compacted;
mod join_compacted_cases;
mod join_starts;
mod kafka_files;
mod no_space;
mod old_formats;
mod old_formats_crash;
mod old_formats_upkeep;
mod recovery;
mod syncing;
mod times;
mod transactions;
mod upkeep;
mod validation;
