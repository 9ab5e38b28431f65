//! `make fuzz`: see `pyrklog_fuzz::Target::AvroValues`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pyrklog_fuzz::Target::AvroValues.fuzz(data));
