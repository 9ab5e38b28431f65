//! `make fuzz`: see `pyrklog_fuzz::Target::Responses`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pyrklog_fuzz::Target::Responses.fuzz(data));
