//! Any bytes as a `cluster.yml`, from the text to the plan. What holds is `tests/it/config_survives.rs`, which the
//! tests compile too.

#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/it/any_file.rs"]
mod any_file;
#[path = "../../tests/it/config_survives.rs"]
mod config_survives;
#[path = "../../tests/it/sim/bare.rs"]
mod sim;

static KEY: OnceLock<any_file::AnyFile> = OnceLock::new();

fuzz_target!(|bytes: &[u8]| {
    let key = KEY.get_or_init(any_file::AnyFile::new);
    config_survives::survives(bytes, key);
});
